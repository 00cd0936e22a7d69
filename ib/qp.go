package ib

// QPType is the transport service of a queue pair. Values as ibv_qp_type, GSI apart.
type QPType uint8

// Transport services.
const (
	QPTypeRC        QPType = 2
	QPTypeUC        QPType = 3
	QPTypeUD        QPType = 4
	QPTypeRawPacket QPType = 8
	QPTypeXRCSend   QPType = 9  // XRC initiator
	QPTypeXRCRecv   QPType = 10 // XRC target
	QPTypeGSI       QPType = 11 // QP1; no application can create one
	QPTypeSMI       QPType = 12 // QP0; never exists on Ethernet, here for the transition table
)

// String returns the name without its prefix: "RC", "XRC_SEND".
func (t QPType) String() string {
	if int(t) < len(qpTypes) && qpTypes[t] != "" {
		return qpTypes[t]
	}
	return number("QPType", t)
}

var qpTypes = [...]string{
	QPTypeRC:        "RC",
	QPTypeUC:        "UC",
	QPTypeUD:        "UD",
	QPTypeRawPacket: "RAW_PACKET",
	QPTypeXRCSend:   "XRC_SEND",
	QPTypeXRCRecv:   "XRC_RECV",
	QPTypeGSI:       "GSI",
	QPTypeSMI:       "SMI",
}

// QPState is a state of IBA 10.3.1. Values as ibv_qp_state.
type QPState uint8

// The states of a queue pair.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
	StateUnknown
)

// String returns the name without its prefix: "RTS".
func (s QPState) String() string {
	if int(s) < len(qpStates) {
		return qpStates[s]
	}
	return number("QPState", s)
}

var qpStates = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"}

// QPCreateFlags are properties that a queue pair is made with. Values as ibv_qp_create_flags.
type QPCreateFlags uint32

// QPCreateBlockSelfMcastLB is for UD: the queue pair does not hear what it sends to groups that it is attached to.
const QPCreateBlockSelfMcastLB QPCreateFlags = 1 << 1

// String joins the names of the flags.
func (f QPCreateFlags) String() string { return join(f, qpCreateFlagNames) }

var qpCreateFlagNames = []bitName[QPCreateFlags]{{QPCreateBlockSelfMcastLB, "BLOCK_SELF_MCAST_LB"}}

// QPAttrMask says which fields of a [QPAttr] count. Values as ibv_qp_attr_mask.
type QPAttrMask uint32

// The attributes.
const (
	QPAttrState            QPAttrMask = 1 << 0
	QPAttrCurState         QPAttrMask = 1 << 1
	QPAttrEnSQDAsyncNotify QPAttrMask = 1 << 2
	QPAttrAccessFlags      QPAttrMask = 1 << 3
	QPAttrPKeyIndex        QPAttrMask = 1 << 4
	QPAttrPort             QPAttrMask = 1 << 5
	QPAttrQKey             QPAttrMask = 1 << 6
	QPAttrAV               QPAttrMask = 1 << 7
	QPAttrPathMTU          QPAttrMask = 1 << 8
	QPAttrTimeout          QPAttrMask = 1 << 9
	QPAttrRetryCnt         QPAttrMask = 1 << 10
	QPAttrRNRRetry         QPAttrMask = 1 << 11
	QPAttrRQPSN            QPAttrMask = 1 << 12
	QPAttrMaxRDAtomic      QPAttrMask = 1 << 13
	QPAttrAltPath          QPAttrMask = 1 << 14
	QPAttrMinRNRTimer      QPAttrMask = 1 << 15
	QPAttrSQPSN            QPAttrMask = 1 << 16
	QPAttrMaxDestRDAtomic  QPAttrMask = 1 << 17
	QPAttrPathMigState     QPAttrMask = 1 << 18
	QPAttrCap              QPAttrMask = 1 << 19
	QPAttrDestQPN          QPAttrMask = 1 << 20
	QPAttrRateLimit        QPAttrMask = 1 << 25
)

// String joins the names of the attributes: "STATE|PKEY_INDEX|PORT".
func (m QPAttrMask) String() string { return join(m, qpAttrNames) }

var qpAttrNames = []bitName[QPAttrMask]{
	{QPAttrState, "STATE"}, {QPAttrCurState, "CUR_STATE"}, {QPAttrEnSQDAsyncNotify, "EN_SQD_ASYNC_NOTIFY"},
	{QPAttrAccessFlags, "ACCESS_FLAGS"}, {QPAttrPKeyIndex, "PKEY_INDEX"}, {QPAttrPort, "PORT"}, {QPAttrQKey, "QKEY"},
	{QPAttrAV, "AV"}, {QPAttrPathMTU, "PATH_MTU"}, {QPAttrTimeout, "TIMEOUT"}, {QPAttrRetryCnt, "RETRY_CNT"},
	{QPAttrRNRRetry, "RNR_RETRY"}, {QPAttrRQPSN, "RQ_PSN"}, {QPAttrMaxRDAtomic, "MAX_QP_RD_ATOMIC"},
	{QPAttrAltPath, "ALT_PATH"}, {QPAttrMinRNRTimer, "MIN_RNR_TIMER"}, {QPAttrSQPSN, "SQ_PSN"},
	{QPAttrMaxDestRDAtomic, "MAX_DEST_RD_ATOMIC"}, {QPAttrPathMigState, "PATH_MIG_STATE"}, {QPAttrCap, "CAP"},
	{QPAttrDestQPN, "DEST_QPN"}, {QPAttrRateLimit, "RATE_LIMIT"},
}

// GRHSize is the bytes of a GRH, and so of the place for the network header in front of a received datagram.
const GRHSize = 40

// NetworkType is the kind of the network header in front of a received datagram.
type NetworkType uint8

// Network headers, as ConnectX numbers them in its completions.
const (
	NetworkIPv6 NetworkType = 1 // or a GRH, which looks the same
	NetworkIPv4 NetworkType = 2 // in the last 20 bytes of the GRH's place
)

// GlobalRoute is the GRH of an address vector; RoCE always has one.
type GlobalRoute struct {
	DGID         GID
	FlowLabel    uint32 // 20 bits; chooses the UDP source port, see FlowLabelUDPPort
	SGIDIndex    uint8
	HopLimit     uint8 // 0 means 64
	TrafficClass uint8 // DSCP<<2 | ECN
}

// AHAttr is an address vector.
type AHAttr struct {
	GRH         GlobalRoute
	DLID        uint16 // ignored on RoCE
	SL          uint8  // VLAN priority
	SrcPathBits uint8  // ignored on RoCE
	StaticRate  uint8
	IsGlobal    bool // must be set on RoCE
	PortNum     uint8
}

// QPCap are the capacities of a queue pair: what is asked for at creation is a minimum.
type QPCap struct {
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32 // bytes
}

// QPAttr are the attributes that Modify sets and Query returns.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     uint8
	QKey             QKey
	RQPSN            PSN
	SQPSN            PSN
	DestQPN          QPN
	AccessFlags      AccessFlags
	Cap              QPCap
	AH               AHAttr
	PKeyIndex        uint16
	EnSQDAsyncNotify bool
	SQDraining       bool
	MaxRDAtomic      uint8 // READs and atomics that this side may have outstanding
	MaxDestRDAtomic  uint8 // READs and atomics that the peer may have outstanding here
	MinRNRTimer      uint8 // code 0..31, see RNRTimer
	PortNum          uint8
	Timeout          uint8  // local ACK timeout exponent: 4.096 us * 2^Timeout, 0 for none
	RetryCnt         uint8  // 0..7
	RNRRetry         uint8  // 0..7, 7 for ever
	RateLimit        uint32 // kbit/s, 0 for none
}

// FlowLabelUDPPort derives the UDP source port of a connection: from the flow label, or from the pair of queue pair
// numbers when it is 0. rdma-core and Linux use the same rule, so that ECMP sees one flow per connection.
func FlowLabelUDPPort(flowLabel uint32, local, remote QPN) uint16 {
	if flowLabel == 0 {
		v := uint64(local) * uint64(remote)
		v ^= v >> 20
		v ^= v >> 40
		flowLabel = uint32(v)
	}
	flowLabel &= 0xfffff
	return uint16(0xc000 | (flowLabel&0x3fff ^ flowLabel>>14))
}
