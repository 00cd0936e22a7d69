// Package ud is the engine of unreliable datagrams: messages of one packet to whomever an address handle names, from
// whoever knows the Q_Key (IBA 9.8.3).
//
// The sending half is package unreliable's: a request ends when its packet has left. A receive begins with 40 bytes that
// tell where the datagram came from, see [Engine.Receive].
//
//	e := ud.New(ud.Config{Config: common, ActiveMTU: port.MTU})
package ud

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/internal/unreliable"
	"github.com/softnic/softnicd/wire"
)

// Common is what the unreliable services are made of.
type Common = unreliable.Config

// Config is what a queue pair for datagrams is made of.
type Config struct {
	Common
	// ActiveMTU returns the MTU of the port in bytes, the most that a datagram carries. It is asked for each.
	ActiveMTU func() int
	// PKey returns an entry of the port's P_Key table; nil means the default partition.
	PKey func(index uint16) ib.PKey
}

// Engine is a queue pair for datagrams. It implements transport.Engine.
type Engine struct {
	*unreliable.Base
	cfg Config

	grh   wire.Buffer
	piece [1]wire.Piece // all of grh
}

var (
	_ transport.Engine  = (*Engine)(nil)
	_ transport.Aborter = (*Engine)(nil)
)

// New makes an engine in RESET.
func New(cfg Config) *Engine {
	if cfg.PKey == nil {
		cfg.PKey = func(uint16) ib.PKey { return ib.DefaultPKey }
	}
	e := &Engine{cfg: cfg, grh: wire.Buffer{B: make([]byte, ib.GRHSize)}}
	e.piece[0] = wire.Piece{Mem: &e.grh, Len: ib.GRHSize}
	e.Base = unreliable.New(cfg.Common, (*service)(e))
	return e
}

// service is the engine as package unreliable sees it.
type service Engine

// Judge implements unreliable.Service: a datagram is one packet, and needs an address handle of the queue pair's own
// protection domain. The port's MTU bounds its length; the specification would say nothing of a longer one, hardware tells
// the sender (reference 5.2).
func (e *service) Judge(r *transport.Request) (ib.WCStatus, transport.VendorErr) {
	switch {
	case r.Opcode != ib.WRSend && r.Opcode != ib.WRSendWithImm, r.Datagram.Path == nil:
		return ib.WCLocQPOpErr, transport.VendorMalformedWQE
	case r.Length > uint64(e.cfg.ActiveMTU()):
		return ib.WCLocLenErr, transport.VendorTooLong
	}
	return ib.WCSuccess, transport.VendorNone
}

// Head implements unreliable.Service. Instead of a controlled Q_Key, with the top bit, the queue pair's own is sent: so
// nobody has one who was not given it by the privileged (IBA 10.2.5).
func (e *service) Head(f *wire.Frame, r *transport.Request, _, _ uint32, psn ib.PSN) {
	op := wire.UDSendOnly
	if r.Opcode == ib.WRSendWithImm {
		op = wire.UDSendOnlyImm
	}
	h := unreliable.Header(f, op, e.cfg.PKey(e.Attr().PKeyIndex), r.Datagram.QPN, psn)
	f.Path = r.Datagram.Path
	f.BTH().SetSolicited(r.Flags&ib.SendSolicited != 0)
	key := r.Datagram.QKey
	if key.Controlled() {
		key = e.Attr().QKey
	}
	deth := wire.FindDETH(h)
	deth.SetQKey(key)
	deth.SetSourceQP(e.cfg.QPN)
	if imm := wire.FindImmDt(h); imm != nil {
		imm.SetData(r.Imm)
	}
}

// MTU implements unreliable.Service: every datagram is one packet.
func (e *service) MTU() int { return maxDatagram }

// maxDatagram is the largest payload of any port.
const maxDatagram = 4096

// Changed implements unreliable.Service.
func (e *service) Changed(ib.QPAttrMask) {}
