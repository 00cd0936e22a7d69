package sim

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// look has the owner of a frame check it, and returns which request of a talker it belongs to.
func (e *endpoint) look(f *wire.Frame) (message int) {
	if e.talker != nil {
		return e.talker.checkFrame(f)
	}
	e.checkFrame(f)
	return -1
}

// checkFrame asks of a frame what must be true of all: it goes to the peer, from us, and is no longer than agreed.
func (e *endpoint) checkFrame(f *wire.Frame) {
	w, h := e.app.w, f.BTH()
	e.checkPatience(h.Opcode())
	if h.Opcode() != wire.CNP { // a word between devices, outside of the sequence
		e.checkOrder(f)
	}
	switch {
	case e.app.dead && (e.sibling == nil || e.sibling.app.dead):
		w.accuse("%s sent a packet after its end", e.name)
	case f.Path.Source != e.app.node.gid || f.Path.Dest != e.peer.app.node.gid:
		w.accuse("%s sent from %v to %v, which is not its path", e.name, f.Path.Source.Addr(), f.Path.Dest.Addr())
	case h.DestQP() != e.peer.qp.QPN():
		w.accuse("%s sent to queue pair %v, its peer is %v", e.name, h.DestQP(), e.peer.qp.QPN())
	case uint8(h.Opcode())&0xe0 != e.service() && h.Opcode() != wire.CNP || !h.Opcode().Valid() || h.PKey() != ib.DefaultPKey || h.TVer() != 0:
		w.accuse("%s sent a header that makes no sense: % x", e.name, f.Header())
	case f.PayloadLen() > e.conn.plan.MTU.Bytes():
		w.accuse("%s sent %d bytes over a path MTU of %v", e.name, f.PayloadLen(), e.conn.plan.MTU)
	}
}

// checkOrder holds requests to the order of their numbers: fresh ones follow each other, and what was sent before is not
// called stable, since its owner may have it back already.
func (e *endpoint) checkOrder(f *wire.Frame) {
	h := f.BTH()
	op := h.Opcode()
	if op.IsRequest() && e.isOld(h.PSN()) {
		return
	}
	first := op.IsRequest() && h.PSN() == e.fresh
	if f.Stable && (!first || !op.IsSend() && !op.IsWrite() && op&0x1f != wire.RCAtomicWrite) {
		e.app.w.accuse("%s sent %v psn %v as if its owner had promised to leave the memory alone", e.name, op, h.PSN())
	}
	switch {
	case !op.IsRequest():
	case h.PSN().After(e.fresh):
		e.app.w.accuse("%s sent psn %v, and nothing from %v on before it", e.name, h.PSN(), e.fresh)
	case first && e.sqd != nil && !h.PSN().Before(e.sqd.limit):
		e.app.w.accuse("%s began psn %v in SQD, where what was begun ends before %v", e.name, h.PSN(), e.sqd.limit)
	case first:
		n := uint32(1)
		if op.IsRead() {
			mtu := uint32(e.conn.plan.MTU.Bytes())
			n = max(1, (wire.FindRETH(f.Header()).Length()+mtu-1)/mtu)
		}
		e.fresh = e.fresh.Add(n)
	}
}
