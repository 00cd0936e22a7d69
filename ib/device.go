package ib

// PortState is the logical state of a port. Values as ibv_port_state.
type PortState uint8

// Port states.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

// String returns the name without its prefix: "ACTIVE".
func (s PortState) String() string {
	if int(s) < len(portStates) {
		return portStates[s]
	}
	return number("PortState", s)
}

var portStates = [...]string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}

// DeviceCap are capability bits of a device. Values as ibv_device_cap_flags.
type DeviceCap uint64

// Device capabilities.
const (
	CapResizeMaxWR     DeviceCap = 1 << 0
	CapBadPKeyCntr     DeviceCap = 1 << 1
	CapBadQKeyCntr     DeviceCap = 1 << 2
	CapCurrQPStateMod  DeviceCap = 1 << 7
	CapPortActiveEvent DeviceCap = 1 << 10
	CapSysImageGUID    DeviceCap = 1 << 11
	CapRCRNRNakGen     DeviceCap = 1 << 12
	CapSRQResize       DeviceCap = 1 << 13
	CapNNotifyCQ       DeviceCap = 1 << 14
	CapMemWindow       DeviceCap = 1 << 17
	CapXRC             DeviceCap = 1 << 20
	CapMemMgtExt       DeviceCap = 1 << 21
	CapMemWindow2A     DeviceCap = 1 << 23
	CapMemWindow2B     DeviceCap = 1 << 24
	CapFlushGlobal     DeviceCap = 1 << 38
	CapFlushPersistent DeviceCap = 1 << 39
	CapAtomicWrite     DeviceCap = 1 << 40
)

// String joins the names of the capabilities: "RC_RNR_NAK_GEN|SRQ_RESIZE".
func (c DeviceCap) String() string { return join(c, deviceCapNames) }

var deviceCapNames = []bitName[DeviceCap]{
	{CapResizeMaxWR, "RESIZE_MAX_WR"}, {CapBadPKeyCntr, "BAD_PKEY_CNTR"}, {CapBadQKeyCntr, "BAD_QKEY_CNTR"},
	{CapCurrQPStateMod, "CURR_QP_STATE_MOD"}, {CapPortActiveEvent, "PORT_ACTIVE_EVENT"},
	{CapSysImageGUID, "SYS_IMAGE_GUID"}, {CapRCRNRNakGen, "RC_RNR_NAK_GEN"}, {CapSRQResize, "SRQ_RESIZE"},
	{CapNNotifyCQ, "N_NOTIFY_CQ"}, {CapMemWindow, "MEM_WINDOW"}, {CapXRC, "XRC"},
	{CapMemMgtExt, "MEM_MGT_EXTENSIONS"}, {CapMemWindow2A, "MEM_WINDOW_TYPE_2A"},
	{CapMemWindow2B, "MEM_WINDOW_TYPE_2B"}, {CapFlushGlobal, "FLUSH_GLOBAL"},
	{CapFlushPersistent, "FLUSH_PERSISTENT"}, {CapAtomicWrite, "ATOMIC_WRITE"},
}

// AtomicHCA says that atomics are atomic against all queue pairs of the device, not against the CPU.
const AtomicHCA = 1

// DeviceAttr are the limits and identity of a device; the names are those of ibv_device_attr.
type DeviceAttr struct {
	FWVer                 [32]byte
	NodeGUID              uint64 // host order; prints as EUI-64
	SysImageGUID          uint64
	MaxMRSize             uint64
	PageSizeCap           uint64
	VendorID              uint32
	VendorPartID          uint32
	HWVer                 uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	MaxSGE                uint32
	MaxSGERD              uint32
	MaxInlineData         uint32 // bytes, a limit of MaxInlineData at QP creation
	DeviceCapFlags        DeviceCap
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
	LocalCAAckDelay       uint32 // exponent of 4.096 us
	PhysPortCnt           uint32
	NumCompVectors        uint32
	MaxCQModCount         uint32
	MaxCQModPeriod        uint32 // microseconds
	MinAckTimeout         uint32 // microseconds: the floor of the effective local ACK timeout on this host
	HCACoreClock          uint64 // kHz of the completion timestamp
	TimestampMask         uint64
}

// PortAttr are the attributes of a port; the names are those of ibv_port_attr.
type PortAttr struct {
	State         PortState
	PhysState     uint8 // 5 LinkUp, 3 Disabled, 2 Polling
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTblLen     uint32
	PKeyTblLen    uint32
	PortCapFlags  uint32
	MaxMsgSz      uint32 // bytes
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	ActiveWidth   uint8
	ActiveSpeed   uint32
	LinkLayer     uint8 // 2: Ethernet
	Flags         uint8 // 1: GRH required
	NetdevIfindex uint32
	LinkMTU       uint32 // of the network interface, bytes
	Netdev        [16]byte
}
