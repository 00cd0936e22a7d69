package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// What the responder leaves in the flight recorder: every request with its verdict, every answer, and the end of every
// receive.

var traceVerdicts = [...]trace.Verdict{
	accept:   trace.Accepted,
	drop:     trace.Dropped,
	repeat:   trace.Duplicate,
	gap:      trace.OutOfOrder,
	notReady: trace.NotReady,
	refuse:   trace.NAKed,
}

func (r *responder) traceReceived(now clock.Time, p *wire.Packet, v verdict) {
	if r.e.cfg.Trace == nil {
		return
	}
	r.e.traceEach(p.Packets(), trace.Event{
		Time: now, QPN: r.e.cfg.QPN, PSN: p.PSN(), Length: uint32(p.Len),
		Kind: trace.Received, Opcode: uint8(p.Opcode), Verdict: traceVerdicts[v.action],
	})
}

// sent records an answer that is complete, and returns its bytes.
func (r *responder) sent(now clock.Time, f *wire.Frame) int {
	if r.e.cfg.Trace != nil {
		r.traceSent(now, f)
	}
	return f.Len()
}

func (r *responder) traceSent(now clock.Time, f *wire.Frame) {
	e := trace.Event{
		Time: now, QPN: r.e.cfg.QPN, PSN: f.BTH().PSN(), Length: uint32(f.PayloadLen()),
		Kind: trace.Sent, Opcode: uint8(f.BTH().Opcode()),
	}
	if h := wire.FindAETH(f.Header()); h != nil {
		e.Syndrome = uint8(h.Syndrome())
	}
	r.e.traceEach(f.Packets(), e)
}

func (r *responder) traceCompleted(now clock.Time) {
	if r.e.cfg.Trace == nil {
		return
	}
	r.e.cfg.Trace.Add(trace.Event{
		Time: now, QPN: r.e.cfg.QPN, Length: r.wc.ByteLen, Kind: trace.Completed, Opcode: uint8(r.wc.Status),
	})
}

func (r *responder) traceFault(now clock.Time, psn ib.PSN) {
	r.e.cfg.Trace.Add(trace.Event{Time: now, QPN: r.e.cfg.QPN, PSN: psn, Kind: trace.Faulted})
}
