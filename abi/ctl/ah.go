package ctl

import "github.com/softnic/softnicd/ib"

// Operations on address handles.
const (
	OpCreateAH  Op = 33
	OpDestroyAH Op = 34
)

// CreateAH makes an address handle. HandleReply has the number by which send requests name it.
type CreateAH struct {
	PD           uint32
	Port         uint32
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint32
	HopLimit     uint32
	TrafficClass uint32
	SL           uint32
	IsGlobal     uint32
	StaticRate   uint32
	Reserved     uint32
}

// SetAttr puts an address vector into the message, without what RoCE ignores: DLID and SrcPathBits.
func (m *CreateAH) SetAttr(a *ib.AHAttr) {
	r := &a.GRH
	m.Port, m.DGID, m.FlowLabel, m.SGIDIndex = uint32(a.PortNum), r.DGID, r.FlowLabel, uint32(r.SGIDIndex)
	m.HopLimit, m.TrafficClass, m.SL = uint32(r.HopLimit), uint32(r.TrafficClass), uint32(a.SL)
	m.IsGlobal, m.StaticRate = fromBool(a.IsGlobal), uint32(a.StaticRate)
}

// Attr returns the address vector in m.
func (m *CreateAH) Attr() (ib.AHAttr, error) {
	var n narrower
	a := ib.AHAttr{
		GRH: ib.GlobalRoute{
			DGID: m.DGID, FlowLabel: m.FlowLabel, SGIDIndex: n.u8("sgid_index", m.SGIDIndex),
			HopLimit: n.u8("hop_limit", m.HopLimit), TrafficClass: n.u8("traffic_class", m.TrafficClass),
		},
		SL: n.u8("sl", m.SL), StaticRate: n.u8("static_rate", m.StaticRate),
		IsGlobal: n.bool("is_global", m.IsGlobal), PortNum: n.u8("port_num", m.Port),
	}
	return a, n.err
}
