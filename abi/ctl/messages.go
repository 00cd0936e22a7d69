package ctl

// NameSize is the bytes of a device name, zero-padded.
const NameSize = 64

// Empty is a request or reply without fields.
type Empty struct{}

// ListDevicesReply has one page of names.
type ListDevicesReply struct {
	Count uint32 // of all devices
	N     uint32 // of names here
	Names [32][NameSize]byte
	GUIDs [32]uint64
}

// ListDevices asks for device names from First on. It needs no open device.
type ListDevices struct {
	First    uint32
	Reserved uint32
}

// Open binds the session to a device; an empty name means the first. Attached: the doorbell memfd (abi.DoorbellSize,
// sealed). The reply comes with the device page (map read-only), the doorbell eventfd, and the asynchronous event
// socket. The eventfd wakes all shards of the device: who has rung for a queue pair writes it if the shard that CreateQPReply
// names sleeps.
type Open struct {
	Name       [NameSize]byte
	ABIVersion uint32
	Reserved   uint32
}

// OpenReply answers Open.
type OpenReply struct {
	Name        [NameSize]byte
	NodeGUID    uint64
	Generation  uint64
	Shards      uint32
	Embedded    uint32 // 1: attachments are memory
	ReclaimPoll uint32 // 1: a send slot comes back when its completion is polled, 0: when it completes
	Context     uint32 // counts the contexts of the device, see CQPlace; modulo 2^32
}

// QueryDeviceReply mirrors ib.DeviceAttr.
type QueryDeviceReply struct {
	FWVer                 [32]byte
	NodeGUID              uint64
	SysImageGUID          uint64
	MaxMRSize             uint64
	PageSizeCap           uint64
	DeviceCapFlags        uint64
	HCACoreClock          uint64
	TimestampMask         uint64
	VendorID              uint32
	VendorPartID          uint32
	HWVer                 uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	MaxSGE                uint32
	MaxSGERD              uint32
	MaxInlineData         uint32
	MaxCQ                 uint32
	MaxCQE                uint32
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRDAtom           uint32
	MaxResRDAtom          uint32
	MaxQPInitRDAtom       uint32
	AtomicCap             uint32
	MaxMW                 uint32
	MaxMcastGrp           uint32
	MaxMcastQPAttach      uint32
	MaxTotalMcastQPAttach uint32
	MaxAH                 uint32
	MaxSRQ                uint32
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxPKeys              uint32
	LocalCAAckDelay       uint32
	PhysPortCnt           uint32
	NumCompVectors        uint32
	MaxCQModCount         uint32
	MaxCQModPeriod        uint32
	MinAckTimeout         uint32
	Reserved              uint32
}

// QueryPort names a port, 1 on every device of today.
type QueryPort struct {
	Port     uint32
	Reserved uint32
}

// QueryPortReply mirrors ib.PortAttr.
type QueryPortReply struct {
	State         uint32
	PhysState     uint32
	MaxMTU        uint32
	ActiveMTU     uint32
	GIDTblLen     uint32
	PKeyTblLen    uint32
	PortCapFlags  uint32
	MaxMsgSz      uint32
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	ActiveWidth   uint32
	ActiveSpeed   uint32
	LinkLayer     uint32
	Flags         uint32
	NetdevIfindex uint32
	LinkMTU       uint32
	Netdev        [16]byte
}

// QueryGID asks for an entry of the GID table.
type QueryGID struct {
	Port  uint32
	Index uint32
}

// QueryGIDReply is the entry; an empty one is refused with ENODATA.
type QueryGIDReply struct {
	GID     [16]byte
	Type    uint32
	Ifindex uint32
}

// QueryPKey asks for an entry of the P_Key table.
type QueryPKey struct {
	Port  uint32
	Index uint32
}

// QueryPKeyReply is the entry.
type QueryPKeyReply struct {
	PKey     uint32
	Reserved uint32
}

// AddArena gives the device a memory of the application, attached: a sealed memfd of at least Size bytes. Rings and
// regions are placed in arenas by number and offset.
type AddArena struct {
	Size uint64
}

// HandleReply returns the handle of something new.
type HandleReply struct {
	Handle   uint32
	Reserved uint32
}

// Handle names an object to be destroyed or asked about.
type Handle struct {
	Handle   uint32
	Reserved uint32
}

// Kinds of registered memory.
const (
	MemoryShared   = 0 // Arena and Offset
	MemoryProcess  = 1 // the application's own address space at Addr; attached, if it wants: its /proc/self/mem
	MemoryEmbedded = 2 // attached memory, embedded devices only
	MemoryParts    = 3 // several of the first two kinds: RegMRParts
)

// RegMR registers memory.
type RegMR struct {
	PD     uint32
	Kind   uint32
	Arena  uint32
	Access uint32 // ib.AccessFlags
	Offset uint64 // in the arena
	Addr   uint64 // the application's address of the first byte (process), informative otherwise
	Length uint64
	Base   uint64 // the address requests use for the first byte: Addr, an iova, or 0
}

// RegMRReply has the keys.
type RegMRReply struct {
	Handle   uint32
	LKey     uint32
	RKey     uint32
	Reserved uint32
}

// CreateChannel makes a completion channel; the reply comes with its descriptor. Events are ChannelEvent messages.
type CreateChannel struct{}

// ChannelEvent is a completion event, as it is read from a channel's descriptor.
type ChannelEvent struct {
	Cookie uint64 // of the CQ
	Count  uint32 // events since the last message for this CQ, 1 or more
	CQ     uint32 // handle
}

// ChannelEventSize is the bytes of a ChannelEvent.
const ChannelEventSize = 16

// AsyncEvent is an asynchronous event, as it is read from the descriptor that Open returned.
type AsyncEvent struct {
	Type   uint32 // ib.EventType
	Handle uint32 // of the CQ, QP or SRQ; the port number of a port event
	Cookie uint64 // of the object
}

// AsyncEventSize is the bytes of an AsyncEvent.
const AsyncEventSize = 16

// CreateCQ makes a completion queue in a block of abi.CQBlockSize(abi.CQCapacity(Entries)) bytes.
type CreateCQ struct {
	Entries    uint32 // asked for
	CompVector uint32
	Channel    uint32 // handle, 0 for none
	Arena      uint32
	Offset     uint64
	Cookie     uint64 // the application's own, in events
}

// CreateCQReply has the real capacity.
type CreateCQReply struct {
	Handle   uint32
	Capacity uint32
}

// ResizeCQ moves a completion queue to another ring: that of a block of abi.CQBlockSize(abi.CQCapacity(Entries)) bytes,
// which the reader knows already (see the table of a completion queue's block in abi). EINVAL if more entries wait.
type ResizeCQ struct {
	CQ       uint32
	Entries  uint32
	Arena    uint32
	Reserved uint32
	Offset   uint64
}

// ResizeCQReply has the real capacity.
type ResizeCQReply struct {
	Capacity uint32
	Reserved uint32
}

// ModifyCQ sets the moderation.
type ModifyCQ struct {
	CQ       uint32
	Count    uint32
	Period   uint32 // microseconds
	Reserved uint32
}

// CreateQP makes a queue pair in a block of abi.QPLayout.Size bytes.
type CreateQP struct {
	PD            uint32
	Type          uint32 // ib.QPType
	SendCQ        uint32
	RecvCQ        uint32
	SRQ           uint32 // handle, 0 for none
	SigAll        uint32 // 1: every send request completes in the CQ
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	Arena         uint32
	Offset        uint64
	Cookie        uint64
	Flags         uint32 // ib.QPCreateFlags
	Reserved      uint32 // 0
}

// CreateQPReply has the number, the doorbell slot and the real capacities.
type CreateQPReply struct {
	Handle        uint32
	QPN           uint32
	Slot          uint32
	Shard         uint32 // whose word of the device page says whether the eventfd is to be written
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	Reserved      uint32
}

// QPAttr mirrors ib.QPAttr.
type QPAttr struct {
	State            uint32
	CurState         uint32
	PathMTU          uint32
	PathMigState     uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          uint32
	AccessFlags      uint32
	PKeyIndex        uint32
	EnSQDAsyncNotify uint32
	SQDraining       uint32
	MaxRDAtomic      uint32
	MaxDestRDAtomic  uint32
	MinRNRTimer      uint32
	PortNum          uint32
	Timeout          uint32
	RetryCnt         uint32
	RNRRetry         uint32
	RateLimit        uint32
	DGID             [16]byte
	FlowLabel        uint32
	SGIDIndex        uint32
	HopLimit         uint32
	TrafficClass     uint32
	SL               uint32
	IsGlobal         uint32
	AHPort           uint32
	StaticRate       uint32
}

// ModifyQP changes the attributes that Mask names.
type ModifyQP struct {
	QP   uint32
	Mask uint32 // ib.QPAttrMask
	Attr QPAttr
}

// QueryQPReply returns all attributes and capacities.
type QueryQPReply struct {
	Attr          QPAttr
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	SigAll        uint32
}

// QueryCounters asks for the device's counters from First on, by name.
type QueryCounters struct {
	First    uint32
	Reserved uint32
}

// CounterSize is the bytes of a counter's name, zero-padded.
const CounterSize = 40

// QueryCountersReply has one page of counters.
type QueryCountersReply struct {
	Count  uint32
	N      uint32
	Names  [64][CounterSize]byte
	Values [64]uint64
}
