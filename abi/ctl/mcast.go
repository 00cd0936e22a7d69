package ctl

// Operations on multicast groups. Empty answers both.
const (
	OpAttachMcast Op = 41
	OpDetachMcast Op = 42
)

// McastOwn is the flag of AttachMcast for queue pairs that hear what they send themselves.
const McastOwn = 1

// AttachMcast attaches a queue pair to a group, DetachMcast takes it out again.
type AttachMcast struct {
	QP    uint32
	Flags uint32 // McastOwn; DetachMcast: 0
	GID   [16]byte
}
