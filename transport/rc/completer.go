package rc

import (
	"encoding/binary"
	"errors"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// receive takes a response. The questions are those of IBA 9.7.6.1: is its number outstanding, what kind is it, and does
// it fit the request that owns the number?
func (r *requester) receive(now clock.Time, p *wire.Packet) bool {
	if r.e.state != ib.StateRTS && r.e.state != ib.StateSQD {
		return false
	}
	psn := p.PSN()
	r.traceResponse(now, p)
	if !r.outstanding(psn) {
		// Late, duplicate or forged: it says nothing about what we wait for.
		r.e.cfg.Counters.GhostAcks++
		return false
	}
	switch {
	case acknowledges(p.Opcode):
		r.acknowledgement(now, psn, wire.FindAETH(p.Header).Syndrome())
	case p.Opcode.IsReadResponse():
		r.readResponse(now, psn, p)
	default:
		r.atomicResponse(now, psn, p)
	}
	r.settle(now)
	return true
}

// acknowledges tells acknowledgements, which come in every kind, from the responses of READs and atomics.
func acknowledges(o wire.Opcode) bool {
	return !o.IsReadResponse() && !o.Headers().Has(wire.HasAtomicAckETH)
}

// outstanding reports whether a number was used and not acknowledged: una <= psn < nxt.
func (r *requester) outstanding(psn ib.PSN) bool {
	return distance(r.una, psn) < distance(r.una, r.nxt)
}

// owner returns the position of the request that has an outstanding number.
func (r *requester) owner(psn ib.PSN) (position uint32, ok bool) {
	for position = r.q.head; position != r.q.tail; position++ {
		if r.q.at(position).owns(psn) {
			return position, true
		}
	}
	return 0, false
}

// acknowledge takes everything before p as received by the peer, as far as that can be: the end of a READ or atomic is
// its own response, so it stops there (IBA 9.7.5.1.1). Afterwards una is p if nothing stood in the way.
func (r *requester) acknowledge(now clock.Time, p ib.PSN) {
	before := r.una
	for r.una != p && !r.q.empty() && r.e.state != ib.StateErr {
		w := r.q.at(r.q.head)
		if w.done {
			r.complete(now, ib.WCSuccess, transport.VendorNone)
			continue
		}
		if !w.started || w.answered() || w.status != ib.WCSuccess {
			break
		}
		if distance(w.first, p) < w.packets {
			r.arrive(w, distance(w.first, p))
			r.una = p
			break
		}
		r.arrive(w, w.packets)
		r.una = w.first.Add(w.packets)
		r.complete(now, ib.WCSuccess, transport.VendorNone)
	}
	r.progress(now, before)
}

// progress is what follows when una has moved: retries are reloaded, the window grows, the timer starts anew, and what
// the peer has is not sent again.
func (r *requester) progress(now clock.Time, before ib.PSN) {
	if r.una == before || r.e.state == ib.StateErr {
		return
	}
	r.reloadRetries()
	r.window.grow(int(distance(before, r.una)))
	r.probe.arrives(now, r.una)
	// An RNR NAK before this was about a packet that has been received since.
	r.retry.recovering, r.retry.rnrDeadline, r.retry.heard = false, clock.Never, 0
	if r.una == r.nxt {
		r.e.cfg.Outstanding.Clear()
		r.retry.ackDeadline = clock.Never
	} else if r.retry.ackDeadline != clock.Never {
		r.restartAckTimer(now)
	}
	if r.cursor.position == r.q.head && r.q.head != r.q.tail {
		w := r.q.at(r.q.head)
		if done := distance(w.first, r.una); w.started && r.cursor.packet < done {
			r.cursor.packet = done
			w.resumed = w.resumed || w.answered()
		}
	}
	if r.probe.active {
		r.probed(distance(before, r.una))
	}
	r.armProbe(now)
}

// acknowledgement is an ACK, RNR NAK or NAK for the packet psn.
func (r *requester) acknowledgement(now clock.Time, psn ib.PSN, s wire.Syndrome) {
	if s.IsReserved() {
		r.e.cfg.Counters.BadResponses++
		return
	}
	next := psn
	if s.IsAck() {
		next = psn.Next()
	}
	if s == wire.NakSequence {
		r.e.cfg.Counters.PacketSeqErr++
	}
	// A NAK acknowledges everything before it (IBA 9.7.5.1.1).
	r.acknowledge(now, next)
	if r.settle(now) {
		return
	}
	switch {
	case s.IsNak() && s != wire.NakSequence && r.q.at(r.q.head).owns(psn):
		r.refused(now, s)
	case r.una != next:
		r.missingResponse(now)
	case s.IsRNR():
		r.notReady(now, s.RNRCode())
	case s == wire.NakSequence:
		r.lost(now, transport.VendorSequence)
	}
}

// refused is a NAK that ends the oldest request (IBA 9.7.5.2).
func (r *requester) refused(now clock.Time, s wire.Syndrome) {
	c := r.e.cfg.Counters
	status := ib.WCRemOpErr
	switch s {
	case wire.NakInvalidRequest:
		c.ReqRemoteInvalidRequest++
		status = ib.WCRemInvReqErr
	case wire.NakRemoteAccess:
		c.ReqRemoteAccessErrors++
		status = ib.WCRemAccessErr
	default:
		c.ReqRemoteOperationErrors++
	}
	r.fail(now, status, transport.VendorNAK+transport.VendorErr(s))
}

// answeredBy finds the request that a READ response or atomic acknowledgement belongs to, and takes what is before it as
// acknowledged. It returns nil if the response is of no use: a hole before it, or an owner of another kind.
func (r *requester) answeredBy(now clock.Time, psn ib.PSN, p *wire.Packet, fits func(ib.WROpcode) bool) *work {
	// Refusals come in acknowledgements only; a syndrome of another kind here means nothing.
	if a := wire.FindAETH(p.Header); a != nil && !a.Syndrome().IsAck() {
		r.e.cfg.Counters.BadResponses++
		return nil
	}
	position, ok := r.owner(psn)
	if !ok {
		return nil
	}
	w := r.q.at(position)
	r.acknowledge(now, w.first)
	switch {
	case r.settle(now):
		return nil
	case r.q.head != position:
		r.missingResponse(now)
		r.busy(now, psn)
		return nil
	case !fits(w.opcode):
		r.badResponse(now)
		return nil
	case r.una != psn:
		r.missingResponse(now)
		r.busy(now, psn)
		return nil
	}
	return w
}

// badResponse ends the oldest request: its response is not one that it can have.
func (r *requester) badResponse(now clock.Time) {
	r.e.cfg.Counters.BadResponses++
	r.fail(now, ib.WCBadRespErr, transport.VendorBadResponse)
}

// readResponse is a part of what a READ asked for, or the end of a FLUSH, which has no data. Where it belongs follows from
// its number alone; what it may hold, from what is left there. A response can therefore never write past the request
// (CVE-2026-64268).
func (r *requester) readResponse(now clock.Time, psn ib.PSN, p *wire.Packet) {
	w := r.answeredBy(now, psn, p, returns)
	if w == nil {
		return
	}
	off := uint64(distance(w.first, psn)) * uint64(r.e.mtu)
	left := uint64(w.length) - off
	want := min(left, uint64(r.e.mtu))
	if uint64(p.Len) != want || !w.expects(p.Opcode, off == 0, left == want) {
		r.badResponse(now)
		return
	}
	if want > 0 && !r.scatter(now, off, p.Payload) {
		return
	}
	r.advance(now, psn, 1, left == want)
}

// expects reports whether a READ response with opcode o fits its place. A READ that was resumed is a new request, whose
// responses begin with FIRST; Linux rxe replays with MIDDLE and LAST instead. There only the end is distinguished.
func (w *work) expects(o wire.Opcode, begins, ends bool) bool {
	if w.resumed {
		return o.Ends() == ends
	}
	return o.Ends() == ends && (o.IsFirst() || o.IsOnly()) == begins
}

// atomicResponse is the result of an atomic: what the peer's memory held before, written in host order.
func (r *requester) atomicResponse(now clock.Time, psn ib.PSN, p *wire.Packet) {
	w := r.answeredBy(now, psn, p, isAtomic)
	if w == nil {
		return
	}
	binary.NativeEndian.PutUint64(r.original.B, wire.FindAtomicAckETH(p.Header).Original())
	if r.scatter(now, 0, r.piece[:]) {
		r.advance(now, psn, 1, true)
	}
}

// advance counts n responses of the oldest request, psn the first, and completes the request if its last is among them.
func (r *requester) advance(now clock.Time, psn ib.PSN, n uint32, ends bool) {
	w := r.q.at(r.q.head)
	r.arrive(w, distance(w.first, psn)+n)
	r.una = psn.Add(n)
	if ends {
		r.complete(now, ib.WCSuccess, transport.VendorNone)
	}
	r.progress(now, psn)
}

// scatter writes a response into the memory of the oldest request. It returns false if it could not.
func (r *requester) scatter(now clock.Time, off uint64, payload []wire.Piece) bool {
	v, err := r.e.cfg.Table.Scatter(r.e.cfg.Domain, r.q.list(r.q.head), off, payload)
	switch {
	case v != dma.OK:
		r.fail(now, ib.WCLocProtErr, vendorOf(v))
		return false
	case err != nil && isSource(err, payload):
		// The memory of a peer on this device is gone. It will hear of that; here the packet is as good as lost.
		r.e.cfg.Counters.BadResponses++
		return false
	case err != nil:
		r.fail(now, ib.WCLocProtErr, transport.VendorMemoryFault)
		return false
	}
	return true
}

// isSource reports whether a fault was in the memory that a payload came from.
func isSource(err error, payload []wire.Piece) bool {
	var f *dma.Fault
	if !errors.As(err, &f) {
		return false
	}
	for i := range payload {
		if payload[i].Mem == f.Mem {
			return true
		}
	}
	return false
}
