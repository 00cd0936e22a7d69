package ib

// WROpcode is the operation of a send work request. Values as ibv_wr_opcode.
type WROpcode uint8

// Operations.
const (
	WRRDMAWrite        WROpcode = 0
	WRRDMAWriteWithImm WROpcode = 1
	WRSend             WROpcode = 2
	WRSendWithImm      WROpcode = 3
	WRRDMARead         WROpcode = 4
	WRAtomicCmpAndSwp  WROpcode = 5
	WRAtomicFetchAdd   WROpcode = 6
	WRLocalInv         WROpcode = 7
	WRBindMW           WROpcode = 8
	WRSendWithInv      WROpcode = 9
	WRFlush            WROpcode = 14
	WRAtomicWrite      WROpcode = 15
)

// String returns the name without its prefix: "RDMA_WRITE_WITH_IMM".
func (o WROpcode) String() string {
	if int(o) < len(wrOpcodes) && wrOpcodes[o] != "" {
		return wrOpcodes[o]
	}
	return number("WROpcode", o)
}

var wrOpcodes = [...]string{
	WRRDMAWrite:        "RDMA_WRITE",
	WRRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM",
	WRSend:             "SEND",
	WRSendWithImm:      "SEND_WITH_IMM",
	WRRDMARead:         "RDMA_READ",
	WRAtomicCmpAndSwp:  "ATOMIC_CMP_AND_SWP",
	WRAtomicFetchAdd:   "ATOMIC_FETCH_AND_ADD",
	WRLocalInv:         "LOCAL_INV",
	WRBindMW:           "BIND_MW",
	WRSendWithInv:      "SEND_WITH_INV",
	WRFlush:            "FLUSH",
	WRAtomicWrite:      "ATOMIC_WRITE",
}

// SendFlags modify a send work request. Values as ibv_send_flags.
type SendFlags uint8

// Flags of a send work request.
const (
	SendFence     SendFlags = 1 << 0 // wait for earlier READs and atomics
	SendSignaled  SendFlags = 1 << 1 // complete with an entry in the CQ
	SendSolicited SendFlags = 1 << 2 // ask for a solicited event at the receiver
	SendInline    SendFlags = 1 << 3 // take the data at posting
)

// String joins the names of the flags: "FENCE|SIGNALED".
func (f SendFlags) String() string { return join(f, sendFlagNames) }

var sendFlagNames = []bitName[SendFlags]{
	{SendFence, "FENCE"}, {SendSignaled, "SIGNALED"}, {SendSolicited, "SOLICITED"}, {SendInline, "INLINE"},
}

// AccessFlags are rights on memory or on a queue pair. Values as ibv_access_flags.
type AccessFlags uint32

// Access rights. Local reading is always allowed.
const (
	AccessLocalWrite      AccessFlags = 1 << 0
	AccessRemoteWrite     AccessFlags = 1 << 1
	AccessRemoteRead      AccessFlags = 1 << 2
	AccessRemoteAtomic    AccessFlags = 1 << 3
	AccessMWBind          AccessFlags = 1 << 4
	AccessZeroBased       AccessFlags = 1 << 5
	AccessOnDemand        AccessFlags = 1 << 6
	AccessHugeTLB         AccessFlags = 1 << 7
	AccessFlushGlobal     AccessFlags = 1 << 8
	AccessFlushPersistent AccessFlags = 1 << 9
	AccessRelaxedOrdering AccessFlags = 1 << 20
	// AccessOptional is the range of bits that a device may ignore.
	AccessOptional AccessFlags = 0x3ff00000
)

// String joins the names of the rights: "LOCAL_WRITE|REMOTE_READ".
func (f AccessFlags) String() string { return join(f, accessNames) }

var accessNames = []bitName[AccessFlags]{
	{AccessLocalWrite, "LOCAL_WRITE"}, {AccessRemoteWrite, "REMOTE_WRITE"}, {AccessRemoteRead, "REMOTE_READ"},
	{AccessRemoteAtomic, "REMOTE_ATOMIC"}, {AccessMWBind, "MW_BIND"}, {AccessZeroBased, "ZERO_BASED"},
	{AccessOnDemand, "ON_DEMAND"}, {AccessHugeTLB, "HUGETLB"}, {AccessFlushGlobal, "FLUSH_GLOBAL"},
	{AccessFlushPersistent, "FLUSH_PERSISTENT"}, {AccessRelaxedOrdering, "RELAXED_ORDERING"},
}

// SGE is a scatter/gather entry: Length bytes at Addr in the region that LKey names. Length 0 names nothing, and its
// key is not looked at.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   LKey
}
