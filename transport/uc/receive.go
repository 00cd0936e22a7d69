package uc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/internal/unreliable"
	"github.com/softnic/softnicd/wire"
)

// receiver puts the peer's messages together.
type receiver struct {
	epsn        ib.PSN // the PSN expected next
	msg         message
	established bool // COMM_EST was raised
}

// message is one of several packets that is under way.
type message struct {
	kind kind
	key  ib.RKey
	va   uint64
	size uint64 // RETH length of a WRITE
	done uint64 // bytes that were placed
}

type kind uint8

const (
	none kind = iota // what is neither FIRST nor ONLY is dropped
	sending
	writing
)

// Receive implements transport.Engine. Nothing is ever answered, so there is something to transmit only after a failure.
func (e *Engine) Receive(_ clock.Time, p *wire.Packet) bool {
	if !e.Hears() || p.Opcode.Service() != wire.ServiceUC {
		return false
	}
	if e.State() == ib.StateRTR && !e.established {
		e.established = true
		e.cfg.QP.Event(ib.EventCommEst)
	}
	if !e.follows(p) {
		return e.State() == ib.StateErr
	}
	if !e.accept(p) {
		e.cfg.Counters.MessagesDropped++
		e.msg = message{}
	}
	return e.State() == ib.StateErr
}

// follows judges the place of a packet (IBA 9.8.2.2). A FIRST or ONLY begins a message, whatever its number. Anything else
// has to be the next packet of the message that is under way.
func (e *Engine) follows(p *wire.Packet) bool {
	op := p.Opcode
	next := p.PSN() == e.epsn
	if !next {
		e.cfg.Counters.OutOfSequence++
	}
	e.epsn = p.PSN().Next()
	if op.IsFirst() || op.IsOnly() {
		e.abandon()
		return true
	}
	if !next || e.msg.kind != kindOf(op) {
		e.abandon()
		return false
	}
	return true
}

func kindOf(op wire.Opcode) kind {
	if op.IsSend() {
		return sending
	}
	return writing
}

// abandon ends the message that is under way without its end having come. Its receive is there for the next one, from the
// beginning; but one from a shared receive queue, which others may have overtaken, tells of it (wc_status.csv, 16). This
// does not concern the state: the next message may be whole.
func (e *Engine) abandon() {
	if e.msg.kind == none {
		return
	}
	taken := e.msg.kind == sending
	e.msg = message{}
	e.cfg.Counters.MessagesDropped++
	if taken && e.cfg.SharedRecv && e.Held() {
		e.cfg.Counters.RespCQEError++
		e.End(transport.Completion{Status: ib.WCRemAbortErr, VendorErr: transport.VendorSequence})
	}
}

// accept executes a packet. It returns false if the message cannot be had.
func (e *Engine) accept(p *wire.Packet) bool {
	op := p.Opcode
	if !op.Payload().Fits(p.Len, (*service)(e).MTU()) || p.BTH().PadCount() != uint8(-p.Len&3) {
		return false
	}
	if op.IsFirst() || op.IsOnly() {
		e.msg = message{kind: kindOf(op)}
		if h := wire.FindRETH(p.Header); h != nil {
			e.msg.key, e.msg.va, e.msg.size = h.RKey(), h.VA(), uint64(h.Length())
			e.cfg.Counters.RxWriteRequests++
		}
	}
	ok := false
	if op.IsSend() {
		ok = e.place(p)
	} else {
		ok = e.write(p)
	}
	if !ok {
		return false
	}
	e.msg.done += uint64(p.Len)
	if op.Ends() {
		e.deliver(p)
	}
	return true
}

// place puts a packet of a SEND into the receive. A message that is longer is dropped, and the receive stays.
func (e *Engine) place(p *wire.Packet) bool {
	r := e.Take()
	if r == nil {
		return false
	}
	if n := uint64(p.Len); n > r.Length-min(e.msg.done, r.Length) || e.msg.done+n > e.maxMessage() {
		e.cfg.Counters.RespLocalLengthError++
		return false
	}
	return p.Len == 0 || e.Scatter(e.msg.done, p, p.Payload)
}

// write puts a packet of a WRITE where its first packet said. The key is asked each time, since it may be gone meanwhile. A
// message that ends otherwise than it was announced is dropped; what came before stays written.
func (e *Engine) write(p *wire.Packet) bool {
	op, m, n := p.Opcode, &e.msg, uint64(p.Len)
	left := m.size - m.done
	if m.size > e.maxMessage() || n > left || op.Ends() != (n == left) {
		e.cfg.Counters.RespInvalidRequest++
		return false
	}
	if e.Attr().AccessFlags&ib.AccessRemoteWrite == 0 {
		e.cfg.Counters.RespInvalidRequest++
		return false
	}
	// The immediate of a WRITE needs a receive, which it does not write to.
	if takesReceive(op) && e.Take() == nil {
		return false
	}
	// A zero-length WRITE names no memory, so its R_Key goes unread. IBA C9-88.
	if m.size == 0 {
		return true
	}
	va, length := m.va, m.size
	if m.done > 0 {
		va, length = m.va+m.done, n
	}
	mem, v := e.cfg.Table.Remote(e.cfg.Domain, e.cfg.QPN, m.key, va, length, ib.AccessRemoteWrite)
	if v != dma.OK {
		e.cfg.Counters.RespRemoteAccessErrors++
		return false
	}
	if err := dma.CopyPayload(mem, 0, p.Payload); err != nil {
		if !unreliable.FromSource(p, err) {
			e.cfg.Counters.RespRemoteAccessErrors++
		}
		return false
	}
	return true
}

func (e *Engine) maxMessage() uint64 {
	if n := e.cfg.MaxMessage; n != 0 {
		return min(n, 1<<31)
	}
	return 1 << 31
}

// deliver ends a message, and its receive if it has one.
func (e *Engine) deliver(p *wire.Packet) {
	done := e.msg.done
	e.msg = message{}
	if !takesReceive(p.Opcode) {
		return
	}
	wc := transport.Completion{
		Opcode: ib.WCRecv, ByteLen: uint32(done), SrcQP: e.Attr().DestQPN, Solicited: p.BTH().Solicited(),
	}
	if p.Opcode.IsWrite() {
		wc.Opcode = ib.WCRecvRDMAWithImm
	}
	if h := wire.FindImmDt(p.Header); h != nil {
		wc.Flags, wc.Imm = ib.WCWithImm, h.Data()
	}
	e.End(wc)
}
