package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Runs of packets (wire.Frame.SetRun): full packets from the middle of a message that go as one frame along a path that
// takes them. Whoever sends them keeps to every bound that single packets keep to. Whoever receives one takes it only if
// each packet of it would be taken; otherwise nothing has happened, but that memory may have been written that is written
// again, and the packets come one by one.

var _ transport.RunReceiver = (*Engine)(nil)

// ReceiveRun implements transport.RunReceiver.
func (e *Engine) ReceiveRun(now clock.Time, p *wire.Packet) (active, taken bool) {
	switch response := p.Opcode.IsResponse(); {
	case p.Opcode.Service() != e.cfg.Service || !p.Opcode.IsMiddle():
		return false, false
	case response && e.initiates():
		return e.req.receiveRun(now, p)
	case !response && e.targets():
		return e.resp.receiveRun(now, p)
	}
	return false, false
}

// runOf returns how many packets may go from the cursor on, the first of which may.
func (r *requester) runOf(w *work, budget int) int {
	i := r.cursor.packet
	// The first and the last packet are of other kinds, and so is who keeps to a pace, or asks with a probe.
	if r.e.path.MaxRun < 2 || i == 0 || i+2 >= w.packets || w.answered() || w.inline || r.e.pace.Rate() != 0 || r.probe.active {
		return 1
	}
	n := min(int(w.packets-1-i), r.e.path.MaxRun)
	n = min(n, r.window.size-r.inFlight(w), r.ackEvery()-r.unasked, r.e.fitting(budget))
	if psn := w.first.Add(i); psn != r.nxt {
		n = min(n, int(distance(psn, r.nxt))) // those sent before
	}
	return max(r.e.cfg.Outstanding.Fits(n, packetOverhead+r.e.mtu), 1)
}

// runOf returns how many responses of a READ may go next, the first of which may.
func (r *responder) runOf(a *answer, budget int) int {
	mtu := uint64(r.e.mtu)
	if r.e.path.MaxRun < 2 || !a.begun || a.left <= 2*mtu || r.e.pace.Rate() != 0 {
		return 1
	}
	return min(int(min((a.left-1)/mtu, uint64(r.e.path.MaxRun))), r.e.fitting(budget))
}

// fitting returns how many full packets a budget is used up by, which the last may exceed.
func (e *Engine) fitting(budget int) int {
	size := e.mtu + wire.BTHSize + wire.ICRCSize
	return max((budget+size-1)/size, 1)
}

// receiveRun takes a run of requests, by the questions that are asked of a single one.
func (r *responder) receiveRun(now clock.Time, p *wire.Packet) (active, taken bool) {
	if !r.serves() {
		return false, false
	}
	faults := r.sourceFaults
	v := r.judge(p)
	if v.action != accept {
		r.sourceFaults = faults
		return false, false
	}
	r.establish()
	r.traceReceived(now, p, v)
	r.accept(now, p)
	return r.pending() || r.e.state == ib.StateErr, true
}

// receiveRun takes a run of READ responses that the oldest request waits for.
func (r *requester) receiveRun(now clock.Time, p *wire.Packet) (active, taken bool) {
	psn, n := p.PSN(), uint32(p.Packets())
	if r.e.state != ib.StateRTS && r.e.state != ib.StateSQD || r.q.empty() || psn != r.una {
		return false, false
	}
	w := r.q.at(r.q.head)
	if w.opcode != ib.WRRDMARead || w.status != ib.WCSuccess || !w.owns(psn) || !p.Opcode.IsReadResponse() {
		return false, false
	}
	off := uint64(distance(w.first, psn)) * uint64(r.e.mtu)
	left := uint64(w.length) - off
	if off == 0 || uint64(p.Len) != uint64(n)*uint64(r.e.mtu) || uint64(p.Len) >= left {
		return false, false
	}
	if v, err := r.e.cfg.Table.Scatter(r.e.cfg.Domain, r.q.list(r.q.head), off, p.Payload); v != dma.OK || err != nil {
		return false, false
	}
	r.traceRun(now, p)
	r.advance(now, psn, n, false)
	r.settle(now)
	return true, true
}
