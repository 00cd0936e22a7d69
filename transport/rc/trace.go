package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// What the requester leaves in the flight recorder: every request packet, every response with what was made of it, every
// timer, and the end of every request.

// enters records a state of the queue pair.
func (e *Engine) enters(now clock.Time, s ib.QPState) {
	if e.cfg.Trace != nil {
		e.cfg.Trace.Add(trace.Event{Time: now, QPN: e.cfg.QPN, Kind: trace.Entered, Opcode: uint8(s)})
	}
}

// traceEach records the n packets of a run, of which event is about all.
func (e *Engine) traceEach(n int, event trace.Event) {
	event.Length /= uint32(n)
	for range n {
		e.cfg.Trace.Add(event)
		event.PSN = event.PSN.Next()
	}
}

func (r *requester) trace(now clock.Time, k trace.Kind, psn ib.PSN) {
	if r.e.cfg.Trace != nil {
		r.e.cfg.Trace.Add(trace.Event{Time: now, QPN: r.e.cfg.QPN, PSN: psn, Kind: k})
	}
}

func (r *requester) traceSent(now clock.Time, f *wire.Frame, again bool) {
	if r.e.cfg.Trace == nil {
		return
	}
	k := trace.Sent
	if again {
		k = trace.Retransmitted
	}
	r.e.traceEach(f.Packets(), trace.Event{
		Time: now, QPN: r.e.cfg.QPN, PSN: f.BTH().PSN(), Length: uint32(f.PayloadLen()),
		Kind: k, Opcode: uint8(f.BTH().Opcode()),
	})
}

// traceResponse records a response before it takes effect, so that the recorder tells cause before consequence.
func (r *requester) traceResponse(now clock.Time, p *wire.Packet) {
	if r.e.cfg.Trace == nil {
		return
	}
	e := trace.Event{
		Time: now, QPN: r.e.cfg.QPN, PSN: p.PSN(), Length: uint32(p.Len),
		Kind: trace.Received, Opcode: uint8(p.Opcode), Verdict: r.foresee(p),
	}
	if a := wire.FindAETH(p.Header); a != nil {
		e.Syndrome = uint8(a.Syndrome())
	}
	r.e.cfg.Trace.Add(e)
}

// traceRun records a run of responses that were taken.
func (r *requester) traceRun(now clock.Time, p *wire.Packet) {
	if r.e.cfg.Trace != nil {
		r.e.traceEach(p.Packets(), trace.Event{
			Time: now, QPN: r.e.cfg.QPN, PSN: p.PSN(), Length: uint32(p.Len),
			Kind: trace.Received, Opcode: uint8(p.Opcode), Verdict: trace.Accepted,
		})
	}
}

// foresee says what will be made of a response.
func (r *requester) foresee(p *wire.Packet) trace.Verdict {
	psn := p.PSN()
	if !r.outstanding(psn) {
		return trace.Duplicate
	}
	s := wire.AckSyndrome
	if a := wire.FindAETH(p.Header); a != nil {
		s = a.Syndrome()
	}
	position, ok := r.owner(psn)
	switch {
	case !ok || s.IsReserved() || !acknowledges(p.Opcode) && !s.IsAck():
		return trace.Dropped
	case r.unanswered(position, psn, acknowledges(p.Opcode) && s.IsAck()), s == wire.NakSequence:
		return trace.OutOfOrder
	case s.IsRNR():
		return trace.NotReady
	case s.IsNak():
		return trace.NAKed
	}
	return trace.Accepted
}

// unanswered reports whether a response is missing before psn, which the request at position owns: that of an earlier
// READ or atomic, earlier ones of its own, or, if the response is a plain ACK, its own.
func (r *requester) unanswered(position uint32, psn ib.PSN, plain bool) bool {
	for i := r.q.head; i != position; i++ {
		if r.q.at(i).answered() {
			return true
		}
	}
	w := r.q.at(position)
	return w.answered() && (plain || psn != w.first && psn != r.una)
}

func (r *requester) traceCompleted(now clock.Time, s ib.WCStatus, length uint32) {
	if r.e.cfg.Trace != nil {
		r.e.cfg.Trace.Add(trace.Event{
			Time: now, QPN: r.e.cfg.QPN, Length: length, Kind: trace.Completed, Opcode: uint8(s),
		})
	}
}
