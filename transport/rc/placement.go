package rc

import (
	"encoding/binary"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// The memory placement extensions (IBA A19): ATOMIC WRITE stores eight bytes at once, FLUSH answers when everything
// written before has been placed. Both sides of both are here.
//
// To the requester an ATOMIC WRITE is a WRITE of one packet, and a FLUSH a READ of nothing. Both count against
// max_rd_atomic.

// judgeValue asks whether an ATOMIC WRITE has its eight bytes (oA19-28): from a list or inline, or else the operand of the
// request, which then becomes the payload. It lies in memory as the peer's is to hold it.
func (r *requester) judgeValue(w *work) {
	if w.entries == 0 && !w.inline {
		w.length = 8
		binary.NativeEndian.PutUint64(r.q.values.B[r.q.valueAt(r.q.tail-1):], w.swap)
	}
	if w.length != 8 {
		w.spoil(ib.WCLocLenErr, transport.VendorTooLong)
	}
}

// judgeFlush asks whether a FLUSH names no memory of this side, and whether a header can hold what it asks for.
func judgeFlush(w *work) {
	switch {
	case w.entries != 0, uint32(w.compare) > 15, w.compare>>32 > 3:
		w.spoil(ib.WCLocQPOpErr, transport.VendorMalformedWQE)
	case w.swap > maxMessageSize:
		w.spoil(ib.WCLocLenErr, transport.VendorTooLong)
	}
}

func buildFlush(h *wire.FETH, reth *wire.RETH, w *work) {
	h.SetPlacement(uint8(w.compare))
	h.SetSelectivity(uint8(w.compare >> 32))
	reth.SetVA(w.remote)
	reth.SetRKey(w.rkey)
	reth.SetLength(uint32(w.swap))
}

// flushRights returns the rights that a FLUSH needs, and false if it asks for nothing that there is.
func flushRights(h *wire.FETH) (need ib.AccessFlags, ok bool) {
	p := ib.FlushPlacement(h.Placement())
	if p&ib.FlushGlobal != 0 {
		need |= ib.AccessFlushGlobal
	}
	if p&ib.FlushPersistent != 0 {
		need |= ib.AccessFlushPersistent
	}
	return need, p != 0 && p&^(ib.FlushGlobal|ib.FlushPersistent) == 0 && ib.FlushLevel(h.Selectivity()) <= ib.FlushRegion
}

// checkPlacement asks whether the peer may have such a request outstanding at all. Of FLUSHes that are more at a time than
// was agreed the last are dropped, to be sent again: Linux rxe does not count them.
func (r *responder) checkPlacement(op wire.Opcode) verdict {
	switch {
	case r.resources.limit == 0:
		return invalidRequest
	case op == wire.RCFlush && !r.resources.room():
		return verdict{action: drop}
	}
	return proceed
}

// checkFlushKey asks whether the peer may flush this memory. Unlike that of a READ, the key is asked even for a range of
// zero bytes, and for a whole region the range is not.
func (r *responder) checkFlushKey(p *wire.Packet) verdict {
	feth, reth := wire.FindFETH(p.Header), wire.FindRETH(p.Header)
	need, _ := flushRights(feth)
	if ib.FlushLevel(feth.Selectivity()) == ib.FlushRegion {
		return accessVerdict(r.e.cfg.Table.Usable(r.domain, r.e.cfg.QPN, reth.RKey(), need))
	}
	_, v := r.remote(reth.RKey(), reth.VA(), uint64(reth.Length()), need)
	return accessVerdict(v)
}

// executeFlush has nothing to place: memory is written by stores of this goroutine, which are visible to whoever sees
// the answer, and persistence is offered by no region that is not persistent the moment it is written. What it does is to
// keep its place: the answer leaves behind everything before it.
func (r *responder) executeFlush() verdict {
	r.remember(resource{kind: flushing, first: r.epsn, last: r.epsn})
	return proceed
}

// repeatFlush answers once more; executing it again is harmless (IBA 9.7.5.1.5).
func (r *responder) repeatFlush(p *wire.Packet) {
	slot := r.resources.find(p.PSN())
	if slot < 0 || r.resources.ring[slot].kind != flushing || r.answers.has(slot) {
		return
	}
	r.answers.insert(answer{kind: returning, slot: slot, psn: p.PSN(), msn: r.msn})
}

// checkValueKey asks whether the peer may write these eight bytes, which have to lie on a multiple of eight.
func (r *responder) checkValueKey(p *wire.Packet) verdict {
	h := wire.FindRETH(p.Header)
	var v dma.Verdict
	if r.mem, v = r.remote(h.RKey(), h.VA(), 8, ib.AccessRemoteWrite); v != dma.OK {
		return accessVerdict(v)
	}
	if h.VA()&7 != 0 {
		return invalidRequest
	}
	return proceed
}

// executeValue stores eight bytes by one store. A repetition is acknowledged like that of a WRITE and stores nothing, so
// nothing needs to be remembered of it.
func (r *responder) executeValue(p *wire.Packet) verdict {
	err := dma.ReadPieces(r.value[:], p.Payload)
	if err == nil {
		_, err = r.mem.Mem.Atomic(r.mem.Off, dma.Store, binary.NativeEndian.Uint64(r.value[:]), 0)
	}
	if v := r.faultVerdict(p, err); v != proceed {
		return v
	}
	r.e.cfg.Counters.RxWriteRequests++
	return proceed
}
