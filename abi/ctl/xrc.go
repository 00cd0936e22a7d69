package ctl

// Operations of XRC.
const (
	OpOpenXRCD     Op = 36
	OpCloseXRCD    Op = 37
	OpCreateXSRQ   Op = 38
	OpCreateTarget Op = 39
	OpOpenTarget   Op = 40
)

// OpenXRCD opens or makes an XRC domain: that of the file that is attached, else that which processes of the same user find
// by Name, else a private one. HandleReply answers it.
type OpenXRCD struct {
	Name     [NameSize]byte // zero-padded
	Flags    uint32         // ib.XRCDFlags
	Reserved uint32
}

// CreateXSRQ makes a shared receive queue in an XRC domain, whose receives complete in CQ.
type CreateXSRQ struct {
	SRQ  CreateSRQ
	XRCD uint32
	CQ   uint32
}

// CreateXSRQReply has the real capacities, and the number by which requests name the queue.
type CreateXSRQReply struct {
	Handle uint32
	MaxWR  uint32
	MaxSGE uint32
	Number uint32
}

// CreateTarget makes an XRC target, a queue pair without rings. CreateQPReply answers it, with a slot that means nothing;
// ModifyQP, QueryQP and DestroyQP are for it as for any other.
type CreateTarget struct {
	XRCD     uint32
	Reserved uint32
	Cookie   uint64
}

// OpenTarget opens a target of the same domain. CreateQPReply answers it.
type OpenTarget struct {
	XRCD   uint32
	QPN    uint32
	Cookie uint64
}
