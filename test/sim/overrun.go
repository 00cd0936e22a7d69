package sim

import (
	"time"

	"github.com/softnic/softnicd/ib"
)

// Some applications make a completion queue that is too small and do not look into it for a while. When it overruns they
// hear of it (CQ_ERR), every queue pair that completes into it fails (QP_FATAL), everything that fitted can be polled, and
// what did not is lost. Nothing else is.

// overran is the event CQ_ERR.
func (a *application) overran(handle uint32) {
	w := a.w
	if int(handle) >= len(a.queues) {
		w.accuse("%s: an error of completion queue %d, which it does not have", a.name, handle)
		return
	}
	q := a.queues[handle]
	if !q.small || q.over {
		w.accuse("%s: an error of completion queue %d", a.name, handle)
		return
	}
	if n := q.reader.Peek(int(q.reader.Capacity()) + 1); n != int(q.reader.Capacity()) {
		w.accuse("%s: a completion queue overran, and of %d entries only %d can be polled", a.name, q.reader.Capacity(), n)
	}
	w.logf(a.name, "completion queue %d overruns", handle)
	w.census["queues that overran"]++
	q.over, q.unsure = true, true
	for _, e := range a.endpoints {
		if (e.sendQueue == q || e.recvQueue == q) && !e.cut {
			e.cut, e.conn.broken = true, true
			e.untold = true
			e.peer.learns = min(e.peer.learns, w.now.Add(a.dice.upTo(5*time.Millisecond)))
			e.peer.app.wake(w.now + 1)
		}
	}
	a.wake(w.now + 1)
}

// isOverrun reports whether an event tells a queue pair that its completion queue has overrun.
func (a *application) isOverrun(t ib.EventType, handle uint32) bool {
	if t != ib.EventQPFatal {
		return false
	}
	for _, e := range a.endpoints {
		if e.untold && int64(e.conn.index) == int64(handle) {
			e.untold = false
			return true
		}
	}
	return false
}

// checkFatal asks whether every queue pair was told.
func (c *connection) checkFatal(w *world) {
	for _, e := range c.everybody() {
		if e.untold && !c.tainted {
			w.failf("%s: a completion queue overran, and the queue pair did not hear of it", e.name)
		}
	}
}
