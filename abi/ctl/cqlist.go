package ctl

// OpListCQs lists the completion queues of all sessions.
const OpListCQs Op = 27

// ProcessNameSize is the bytes of a process name, zero-padded: what the kernel keeps of it, with an end.
const ProcessNameSize = 16

// CQPlace is a place in the daemon's list of completion queues, which is in order of device, context and handle. Zeroes
// stand before the first.
type CQPlace struct {
	Device  uint32 // 1 is the daemon's first
	CQ      uint32 // handle
	Context uint64 // counts the contexts of the device
}

// ListCQs asks for one page of the completion queues behind a place: those of the caller's own user, or of everybody if
// that is the daemon's user or root. It needs no open device.
type ListCQs struct {
	After CQPlace
}

// Bits of CQInfo.Flags.
const (
	CQChannel           = 1 << 0 // the queue has a completion channel
	CQDead              = 1 << 1 // it overran: every queue pair of it is in the error state
	CQReclaimCompletion = 1 << 2 // its device gives slots back when requests complete, not when completions are polled
)

// CQInfo is a completion queue at one moment.
type CQInfo struct {
	Place       CQPlace
	Device      [NameSize]byte
	ProcessName [ProcessNameSize]byte // empty if it cannot be read
	UID         uint32
	PID         uint32 // 0 if it cannot be seen from the daemon
	Capacity    uint32
	Occupancy   uint32 // entries that wait
	HighWater   uint32 // the most that ever waited at once
	Queues      uint32 // send and receive queues that complete into it
	Demand      uint64 // sum of their depths: what can be posted at once
	Overruns    uint64 // entries that were lost
	Events      uint64 // completion events sent
	ModCount    uint32
	ModPeriod   uint32 // microseconds
	Armed       uint32 // abi.ArmKind
	Flags       uint32
}

// ListCQsReply is one page, in order; an empty one is the last. A queue that exists all the while is listed exactly once.
type ListCQsReply struct {
	N        uint32
	Reserved uint32
	CQs      [20]CQInfo
}
