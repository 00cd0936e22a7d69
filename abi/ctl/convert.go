package ctl

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// The attributes of package ib, in messages. Messages have 32 bits where ib has narrow types: a value that does not fit
// is a mistake to report, EINVAL, and never another value.

// FromDeviceAttr returns the message for a.
func FromDeviceAttr(a *ib.DeviceAttr) QueryDeviceReply {
	return QueryDeviceReply{
		FWVer: a.FWVer, NodeGUID: a.NodeGUID, SysImageGUID: a.SysImageGUID, MaxMRSize: a.MaxMRSize,
		PageSizeCap: a.PageSizeCap, DeviceCapFlags: uint64(a.DeviceCapFlags), HCACoreClock: a.HCACoreClock,
		TimestampMask: a.TimestampMask, VendorID: a.VendorID, VendorPartID: a.VendorPartID, HWVer: a.HWVer,
		MaxQP: a.MaxQP, MaxQPWR: a.MaxQPWR, MaxSGE: a.MaxSGE, MaxSGERD: a.MaxSGERD, MaxInlineData: a.MaxInlineData,
		MaxCQ: a.MaxCQ, MaxCQE: a.MaxCQE, MaxMR: a.MaxMR, MaxPD: a.MaxPD, MaxQPRDAtom: a.MaxQPRDAtom,
		MaxResRDAtom: a.MaxResRDAtom, MaxQPInitRDAtom: a.MaxQPInitRDAtom, AtomicCap: a.AtomicCap, MaxMW: a.MaxMW,
		MaxMcastGrp: a.MaxMcastGrp, MaxMcastQPAttach: a.MaxMcastQPAttach,
		MaxTotalMcastQPAttach: a.MaxTotalMcastQPAttach, MaxAH: a.MaxAH, MaxSRQ: a.MaxSRQ, MaxSRQWR: a.MaxSRQWR,
		MaxSRQSGE: a.MaxSRQSGE, MaxPKeys: a.MaxPKeys, LocalCAAckDelay: a.LocalCAAckDelay, PhysPortCnt: a.PhysPortCnt,
		NumCompVectors: a.NumCompVectors, MaxCQModCount: a.MaxCQModCount, MaxCQModPeriod: a.MaxCQModPeriod,
		MinAckTimeout: a.MinAckTimeout,
	}
}

// ToDeviceAttr returns the attributes in m.
func ToDeviceAttr(m *QueryDeviceReply) (ib.DeviceAttr, error) {
	return ib.DeviceAttr{
		FWVer: m.FWVer, NodeGUID: m.NodeGUID, SysImageGUID: m.SysImageGUID, MaxMRSize: m.MaxMRSize,
		PageSizeCap: m.PageSizeCap, DeviceCapFlags: ib.DeviceCap(m.DeviceCapFlags), HCACoreClock: m.HCACoreClock,
		TimestampMask: m.TimestampMask, VendorID: m.VendorID, VendorPartID: m.VendorPartID, HWVer: m.HWVer,
		MaxQP: m.MaxQP, MaxQPWR: m.MaxQPWR, MaxSGE: m.MaxSGE, MaxSGERD: m.MaxSGERD, MaxInlineData: m.MaxInlineData,
		MaxCQ: m.MaxCQ, MaxCQE: m.MaxCQE, MaxMR: m.MaxMR, MaxPD: m.MaxPD, MaxQPRDAtom: m.MaxQPRDAtom,
		MaxResRDAtom: m.MaxResRDAtom, MaxQPInitRDAtom: m.MaxQPInitRDAtom, AtomicCap: m.AtomicCap, MaxMW: m.MaxMW,
		MaxMcastGrp: m.MaxMcastGrp, MaxMcastQPAttach: m.MaxMcastQPAttach,
		MaxTotalMcastQPAttach: m.MaxTotalMcastQPAttach, MaxAH: m.MaxAH, MaxSRQ: m.MaxSRQ, MaxSRQWR: m.MaxSRQWR,
		MaxSRQSGE: m.MaxSRQSGE, MaxPKeys: m.MaxPKeys, LocalCAAckDelay: m.LocalCAAckDelay, PhysPortCnt: m.PhysPortCnt,
		NumCompVectors: m.NumCompVectors, MaxCQModCount: m.MaxCQModCount, MaxCQModPeriod: m.MaxCQModPeriod,
		MinAckTimeout: m.MinAckTimeout,
	}, nil
}

// FromPortAttr returns the message for a.
func FromPortAttr(a *ib.PortAttr) QueryPortReply {
	return QueryPortReply{
		State: uint32(a.State), PhysState: uint32(a.PhysState), MaxMTU: uint32(a.MaxMTU), ActiveMTU: uint32(a.ActiveMTU),
		GIDTblLen: a.GIDTblLen, PKeyTblLen: a.PKeyTblLen, PortCapFlags: a.PortCapFlags, MaxMsgSz: a.MaxMsgSz,
		BadPKeyCntr: a.BadPKeyCntr, QKeyViolCntr: a.QKeyViolCntr, ActiveWidth: uint32(a.ActiveWidth),
		ActiveSpeed: a.ActiveSpeed, LinkLayer: uint32(a.LinkLayer), Flags: uint32(a.Flags),
		NetdevIfindex: a.NetdevIfindex, LinkMTU: a.LinkMTU, Netdev: a.Netdev,
	}
}

// ToPortAttr returns the attributes in m.
func ToPortAttr(m *QueryPortReply) (ib.PortAttr, error) {
	var n narrower
	a := ib.PortAttr{
		State: ib.PortState(n.u8("state", m.State)), PhysState: n.u8("phys_state", m.PhysState),
		MaxMTU: ib.MTU(n.u8("max_mtu", m.MaxMTU)), ActiveMTU: ib.MTU(n.u8("active_mtu", m.ActiveMTU)),
		GIDTblLen: m.GIDTblLen, PKeyTblLen: m.PKeyTblLen, PortCapFlags: m.PortCapFlags, MaxMsgSz: m.MaxMsgSz,
		BadPKeyCntr: m.BadPKeyCntr, QKeyViolCntr: m.QKeyViolCntr, ActiveWidth: n.u8("active_width", m.ActiveWidth),
		ActiveSpeed: m.ActiveSpeed, LinkLayer: n.u8("link_layer", m.LinkLayer), Flags: n.u8("flags", m.Flags),
		NetdevIfindex: m.NetdevIfindex, LinkMTU: m.LinkMTU, Netdev: m.Netdev,
	}
	return a, n.err
}

// FromQPAttr returns the message for a, without a.Cap, which travels beside it, and without what RoCE ignores of an
// address vector: DLID and SrcPathBits.
func FromQPAttr(a *ib.QPAttr) QPAttr {
	return QPAttr{
		State: uint32(a.State), CurState: uint32(a.CurState), PathMTU: uint32(a.PathMTU),
		PathMigState: uint32(a.PathMigState), QKey: uint32(a.QKey), RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN),
		DestQPN: uint32(a.DestQPN), AccessFlags: uint32(a.AccessFlags), PKeyIndex: uint32(a.PKeyIndex),
		EnSQDAsyncNotify: fromBool(a.EnSQDAsyncNotify), SQDraining: fromBool(a.SQDraining),
		MaxRDAtomic: uint32(a.MaxRDAtomic), MaxDestRDAtomic: uint32(a.MaxDestRDAtomic),
		MinRNRTimer: uint32(a.MinRNRTimer), PortNum: uint32(a.PortNum), Timeout: uint32(a.Timeout),
		RetryCnt: uint32(a.RetryCnt), RNRRetry: uint32(a.RNRRetry), RateLimit: a.RateLimit,
		DGID: a.AH.GRH.DGID, FlowLabel: a.AH.GRH.FlowLabel, SGIDIndex: uint32(a.AH.GRH.SGIDIndex),
		HopLimit: uint32(a.AH.GRH.HopLimit), TrafficClass: uint32(a.AH.GRH.TrafficClass), SL: uint32(a.AH.SL),
		IsGlobal: fromBool(a.AH.IsGlobal), AHPort: uint32(a.AH.PortNum), StaticRate: uint32(a.AH.StaticRate),
	}
}

// ToQPAttr returns the attributes in m.
func ToQPAttr(m *QPAttr) (ib.QPAttr, error) {
	var n narrower
	a := ib.QPAttr{
		State: ib.QPState(n.u8("qp_state", m.State)), CurState: ib.QPState(n.u8("cur_qp_state", m.CurState)),
		PathMTU: ib.MTU(n.u8("path_mtu", m.PathMTU)), PathMigState: n.u8("path_mig_state", m.PathMigState),
		QKey: ib.QKey(m.QKey), RQPSN: ib.PSN(m.RQPSN), SQPSN: ib.PSN(m.SQPSN), DestQPN: ib.QPN(m.DestQPN),
		AccessFlags: ib.AccessFlags(m.AccessFlags), PKeyIndex: n.u16("pkey_index", m.PKeyIndex),
		EnSQDAsyncNotify: n.bool("en_sqd_async_notify", m.EnSQDAsyncNotify),
		SQDraining:       n.bool("sq_draining", m.SQDraining),
		MaxRDAtomic:      n.u8("max_rd_atomic", m.MaxRDAtomic),
		MaxDestRDAtomic:  n.u8("max_dest_rd_atomic", m.MaxDestRDAtomic),
		MinRNRTimer:      n.u8("min_rnr_timer", m.MinRNRTimer), PortNum: n.u8("port_num", m.PortNum),
		Timeout: n.u8("timeout", m.Timeout), RetryCnt: n.u8("retry_cnt", m.RetryCnt),
		RNRRetry: n.u8("rnr_retry", m.RNRRetry), RateLimit: m.RateLimit,
		AH: ib.AHAttr{
			GRH: ib.GlobalRoute{
				DGID: m.DGID, FlowLabel: m.FlowLabel, SGIDIndex: n.u8("sgid_index", m.SGIDIndex),
				HopLimit: n.u8("hop_limit", m.HopLimit), TrafficClass: n.u8("traffic_class", m.TrafficClass),
			},
			SL: n.u8("sl", m.SL), StaticRate: n.u8("static_rate", m.StaticRate),
			IsGlobal: n.bool("is_global", m.IsGlobal), PortNum: n.u8("ah port_num", m.AHPort),
		},
	}
	return a, n.err
}

// Cap returns the capacities asked for.
func (m *CreateQP) Cap() ib.QPCap {
	return ib.QPCap{MaxSendWR: m.MaxSendWR, MaxRecvWR: m.MaxRecvWR, MaxSendSGE: m.MaxSendSGE, MaxRecvSGE: m.MaxRecvSGE,
		MaxInlineData: m.MaxInlineData}
}

// SetCap sets the capacities asked for.
func (m *CreateQP) SetCap(c ib.QPCap) {
	m.MaxSendWR, m.MaxRecvWR, m.MaxSendSGE, m.MaxRecvSGE = c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE
	m.MaxInlineData = c.MaxInlineData
}

// Cap returns the real capacities.
func (m *CreateQPReply) Cap() ib.QPCap {
	return ib.QPCap{MaxSendWR: m.MaxSendWR, MaxRecvWR: m.MaxRecvWR, MaxSendSGE: m.MaxSendSGE, MaxRecvSGE: m.MaxRecvSGE,
		MaxInlineData: m.MaxInlineData}
}

// SetCap sets the real capacities.
func (m *CreateQPReply) SetCap(c ib.QPCap) {
	m.MaxSendWR, m.MaxRecvWR, m.MaxSendSGE, m.MaxRecvSGE = c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE
	m.MaxInlineData = c.MaxInlineData
}

// Cap returns the real capacities.
func (m *QueryQPReply) Cap() ib.QPCap {
	return ib.QPCap{MaxSendWR: m.MaxSendWR, MaxRecvWR: m.MaxRecvWR, MaxSendSGE: m.MaxSendSGE, MaxRecvSGE: m.MaxRecvSGE,
		MaxInlineData: m.MaxInlineData}
}

// SetCap sets the real capacities.
func (m *QueryQPReply) SetCap(c ib.QPCap) {
	m.MaxSendWR, m.MaxRecvWR, m.MaxSendSGE, m.MaxRecvSGE = c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE
	m.MaxInlineData = c.MaxInlineData
}

// narrower narrows values and keeps the first error.
type narrower struct{ err error }

func (n *narrower) within(name string, v, limit uint32) uint32 {
	if v > limit && n.err == nil {
		n.err = &Error{Errno: syscall.EINVAL, Sentence: fmt.Sprintf("%s %d is more than %d", name, v, limit)}
	}
	return v
}

func (n *narrower) u8(name string, v uint32) uint8   { return uint8(n.within(name, v, 1<<8-1)) }
func (n *narrower) u16(name string, v uint32) uint16 { return uint16(n.within(name, v, 1<<16-1)) }
func (n *narrower) bool(name string, v uint32) bool  { return n.within(name, v, 1) != 0 }

func fromBool(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
