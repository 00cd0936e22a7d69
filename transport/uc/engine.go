// Package uc is the engine of unreliable connections: messages of any length to one peer, of which each arrives whole or
// not at all, and nobody says which (IBA 9.8.2).
//
// The sending half is package unreliable's: a request ends when its packets have left. The receiving half puts messages
// together. A packet that is not the next one ends the message it belongs to; the next FIRST or ONLY begins anew, whatever
// its number.
//
//	e := uc.New(uc.Config{QPN: qpn, Cap: cap, Domain: pd, Table: keys, QP: qp, Counters: c})
package uc

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/internal/unreliable"
	"github.com/softnic/softnicd/wire"
)

// Config is what an unreliable connection is made of.
type Config = unreliable.Config

// Engine is an unreliable connection. It implements transport.Engine.
type Engine struct {
	*unreliable.Base
	cfg Config
	receiver
}

var (
	_ transport.Engine  = (*Engine)(nil)
	_ transport.Aborter = (*Engine)(nil)
)

// New makes an engine in RESET.
func New(cfg Config) *Engine {
	e := &Engine{cfg: cfg}
	e.Base = unreliable.New(cfg, (*service)(e))
	return e
}

// Query implements transport.Engine.
func (e *Engine) Query(attr *ib.QPAttr) {
	e.Base.Query(attr)
	if e.Hears() {
		attr.RQPSN = e.epsn
	}
}

// service is the engine as package unreliable sees it.
type service Engine

// segments are the opcodes of a message's packets.
type segments struct{ first, middle, last, only wire.Opcode }

// opcodes is indexed by the operation of the work request; what has no ONLY is not offered (reference 7.2), SEND WITH
// INVALIDATE for one: the manual page of ibv_post_send has it for UC, but there is no such packet.
var opcodes = [...]segments{
	ib.WRSend:             {wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLast, wire.UCSendOnly},
	ib.WRSendWithImm:      {wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLastImm, wire.UCSendOnlyImm},
	ib.WRRDMAWrite:        {wire.UCWriteFirst, wire.UCWriteMiddle, wire.UCWriteLast, wire.UCWriteOnly},
	ib.WRRDMAWriteWithImm: {wire.UCWriteFirst, wire.UCWriteMiddle, wire.UCWriteLastImm, wire.UCWriteOnlyImm},
}

func (s *segments) at(i, n uint32) wire.Opcode {
	switch {
	case n == 1:
		return s.only
	case i == 0:
		return s.first
	case i == n-1:
		return s.last
	}
	return s.middle
}

// Judge implements unreliable.Service.
func (e *service) Judge(r *transport.Request) (ib.WCStatus, transport.VendorErr) {
	if !unreliable.IsLocal(r.Opcode) && (int(r.Opcode) >= len(opcodes) || opcodes[r.Opcode].only == 0) {
		return ib.WCLocQPOpErr, transport.VendorMalformedWQE
	}
	return ib.WCSuccess, transport.VendorNone
}

// Head implements unreliable.Service. AckReq is never set: nobody would answer.
func (e *service) Head(f *wire.Frame, r *transport.Request, i, n uint32, psn ib.PSN) {
	op := opcodes[r.Opcode].at(i, n)
	h := unreliable.Header(f, op, e.Path().Partition(), e.Attr().DestQPN, psn)
	f.Path = e.Path()
	// SE belongs to the end of messages that consume a receive (IBA 9.2).
	f.BTH().SetSolicited(r.Flags&ib.SendSolicited != 0 && op.Ends() && takesReceive(op))
	if reth := wire.FindRETH(h); reth != nil {
		reth.SetVA(r.Remote)
		reth.SetRKey(r.RKey)
		reth.SetLength(uint32(r.Length))
	}
	if imm := wire.FindImmDt(h); imm != nil {
		imm.SetData(r.Imm)
	}
}

// MTU implements unreliable.Service. Until the way to RTR gives a path MTU it is the least there is.
func (e *service) MTU() int { return max(e.Attr().PathMTU.Bytes(), ib.MTU256.Bytes()) }

// Changed implements unreliable.Service.
func (e *service) Changed(mask ib.QPAttrMask) {
	switch {
	case e.State() == ib.StateReset:
		e.receiver = receiver{}
	case e.State() == ib.StateErr:
		e.msg = message{}
	case mask&ib.QPAttrRQPSN != 0:
		e.epsn = ib.NewPSN(uint32(e.Attr().RQPSN))
	}
}

// takesReceive reports whether op needs a receive: every SEND, and the end of a WRITE with immediate.
func takesReceive(op wire.Opcode) bool {
	return op.IsSend() || op.IsWrite() && op.Headers().Has(wire.HasImm)
}
