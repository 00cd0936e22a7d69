package ctl

// Operations on shared receive queues.
const (
	OpCreateSRQ  Op = 28
	OpModifySRQ  Op = 29
	OpQuerySRQ   Op = 30
	OpDestroySRQ Op = 31
)

// CreateSRQ makes a shared receive queue in a block of abi.SRQLayout(MaxWR, MaxSGE).Size bytes.
type CreateSRQ struct {
	PD     uint32
	MaxWR  uint32
	MaxSGE uint32
	Arena  uint32
	Offset uint64
	Cookie uint64
}

// CreateSRQReply has the real capacities.
type CreateSRQReply struct {
	Handle   uint32
	MaxWR    uint32
	MaxSGE   uint32
	Reserved uint32
}

// ModifySRQ changes the attributes that Mask names. With ib.SRQAttrMaxWR the queue moves to another block, at Offset of
// Arena, which the application prepares while it posts nothing: the receives that were not taken stand in it, at their
// indexes, and so does the count of what was posted. The device uses the old block no more when it has answered.
type ModifySRQ struct {
	SRQ      uint32
	Mask     uint32 // ib.SRQAttrMask
	MaxWR    uint32
	Limit    uint32
	Arena    uint32
	Reserved uint32
	Offset   uint64
}

// QuerySRQReply has the attributes, and how many receives are posted and not taken.
type QuerySRQReply struct {
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32
	Posted uint32
}
