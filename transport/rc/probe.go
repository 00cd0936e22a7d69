package rc

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
)

// A probe is the oldest packet sent once more, alone, when the peer has been silent for several round trips. The local ACK
// timeout is the application's, at least T and often 67 ms (IBA 9.7.6.1.3), and three losses end in such a wait, since the
// responder says what it misses only once for each hole: of the packet that was to fill the hole, of the NAK, and of the
// last packet of a window, which alone asks. At a loss of one in a hundred, connections stood still for nine tenths of
// their time.
//
// A probe is no retry: it uses up no retry_cnt and leaves the ACK timer alone, which decides when the peer is gone. What
// the answer says about the packets behind it decides what happens to them. If it covers more than the probe, they had
// arrived, and only the answer was lost; if it covers the probe alone, they had not, and go out again.
type probe struct {
	deadline clock.Time // Never while nothing is missed, or nothing is known about the round trip
	active   bool       // the cursor is at the probe
	sent     bool       // which is on its way
	resume   cursor     // where the cursor was
	tries    uint       // probes since the last progress; each waits twice as long
	// The round trip: of one packet at a time that asked and was not sent again (Karn's rule).
	timing   bool
	psn      ib.PSN
	begun    clock.Time
	smoothed time.Duration
}

// probeTrips is how many round trips of silence are too many.
const probeTrips = 4

func (p *probe) reset() { *p = probe{deadline: clock.Never} }

// cancel forgets a probe under way, and a round trip that cannot be told from another any more.
func (p *probe) cancel() { p.active, p.timing, p.deadline = false, false, clock.Never }

// departs watches a packet that asks for an answer.
func (p *probe) departs(now clock.Time, psn ib.PSN, again bool) {
	if !p.timing && !again {
		p.timing, p.psn, p.begun = true, psn, now
	}
}

// arrives learns from everything before una having been answered.
func (p *probe) arrives(now clock.Time, una ib.PSN) {
	p.tries = 0
	if !p.timing || !p.psn.Before(una) {
		return
	}
	p.timing = false
	trip := max(now.Sub(p.begun), 1)
	if p.smoothed == 0 {
		p.smoothed = trip
	}
	p.smoothed += (trip - p.smoothed) / 8
}

// armProbe starts the silence, unless the ACK timer ends it sooner.
func (r *requester) armProbe(now clock.Time) {
	p := &r.probe
	p.deadline = clock.Never
	least := r.e.cfg.Limits.Probe
	if least <= 0 || p.smoothed == 0 || p.tries > 8 || r.retry.ackDeadline == clock.Never {
		return
	}
	if t := now.Add(max(probeTrips*p.smoothed, least) << p.tries); t < r.retry.ackDeadline {
		p.deadline = t
	}
}

// ask sends the probe.
func (r *requester) ask(now clock.Time) {
	p := &r.probe
	p.deadline = clock.Never
	if r.q.empty() || !r.q.at(r.q.head).started {
		return
	}
	w := r.q.at(r.q.head)
	if !p.active {
		p.resume = r.cursor
	}
	p.active, p.sent, p.timing = true, false, false
	p.tries++
	// What was sent since the last hole may be lost as well, so the next word about it counts again.
	r.retry.recovering = false
	r.cursor = cursor{position: r.q.head, packet: distance(w.first, r.una)}
	w.resumed = w.resumed || w.answered() && r.cursor.packet > 0
	r.trace(now, trace.Timeout, r.una)
}

// probed is the first progress after a probe: n numbers were acknowledged.
func (r *requester) probed(n uint32) {
	p := &r.probe
	p.active = false
	if n == 1 && r.una != r.nxt && !r.q.empty() && r.cursor.before(p.resume) {
		w := r.q.at(r.q.head)
		if w.started && !w.answered() {
			r.window.shrink()
			r.e.cfg.Outstanding.Clear()
			return // the cursor stands behind the probe
		}
	}
	if r.cursor.before(p.resume) {
		r.cursor = p.resume
	}
}
