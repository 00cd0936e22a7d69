package ib

// XRCDFlags say how an XRC domain is opened. The values are those of Linux's O_CREAT and O_EXCL, which
// ibv_xrcd_init_attr takes.
type XRCDFlags uint32

// How an XRC domain is opened.
const (
	XRCDCreate    XRCDFlags = 0o100 // make it if there is none
	XRCDExclusive XRCDFlags = 0o200 // fail if there is one
)

// String joins the names of the flags: "CREAT|EXCL".
func (f XRCDFlags) String() string { return join(f, xrcdFlagNames) }

var xrcdFlagNames = []bitName[XRCDFlags]{{XRCDCreate, "CREAT"}, {XRCDExclusive, "EXCL"}}
