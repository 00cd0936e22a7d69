package sim

import (
	"errors"
	"syscall"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// drainage is the stay of a queue pair in SQD (IBA 10.3.1.6). What was begun goes on to its end, nothing else begins, and
// the application, which posts on, may change attributes when the queue pair is drained and not before. Then it goes on.
type drainage struct {
	notify  bool       // SQ_DRAINED was asked for
	heard   bool       // and came
	tried   bool       // attributes were to be changed too early
	changed bool       // and were, later
	limit   ib.PSN     // the number after those of the last request that was begun
	begun   int        // requests before it
	next    clock.Time // when the application looks again
}

const never = clock.Never

// startDrain takes an end to SQD, if it does not stand in the way of others.
func (e *endpoint) startDrain(d *dice) bool {
	if e.role >= target || !e.conn.isLively() || e.state() != ib.StateRTS {
		return false
	}
	w := e.app.w
	s := &drainage{notify: d.chance(700), next: w.now.Add(d.upTo(50 * time.Microsecond))}
	e.sqd = s // the event may come at once
	e.modify(&ib.QPAttr{State: ib.StateSQD, EnSQDAsyncNotify: s.notify}, ib.QPAttrState|ib.QPAttrEnSQDAsyncNotify)
	a, _, _ := e.app.ctx.QueryQP(e.qp)
	for s.limit = e.numberOf(0); s.limit.Before(a.SQPSN); s.limit = e.numberOf(s.begun) {
		s.begun++
	}
	w.logf(e.name, "to SQD; %d of %d requests were begun", s.begun, e.posted)
	e.app.wake(max(s.next, w.now+1))
	return true
}

// isDrained reports whether an event tells that a queue pair is drained, and was asked for.
func (a *application) isDrained(t ib.EventType, handle uint32) bool {
	if t != ib.EventSQDrained || int64(handle) >= int64(len(a.w.conns)) {
		return false
	}
	for _, e := range a.w.conns[handle].ends {
		if s := e.sqd; e.app == a && s != nil && s.notify && !s.heard {
			s.heard = true
			s.next = min(s.next, a.w.now+1)
			a.wake(a.w.now + 1)
			return true
		}
	}
	return false
}

// goOn is the application's next step while the queue pair is in SQD.
func (e *endpoint) goOn() {
	s, w, d := e.sqd, e.app.w, e.app.dice
	if s == nil {
		return
	}
	if e.state() == ib.StateErr || e.closed {
		e.sqd = nil
		return
	}
	resume := func() {
		e.sqd = nil
		if e.cut {
			// Its completion queue has overrun on another shard, perhaps, and it is about to fail.
			if err := e.app.ctx.ModifyQP(e.qp, &ib.QPAttr{State: ib.StateRTS}, ib.QPAttrState); err != nil && e.state() != ib.StateErr {
				w.failf("%s: %v", e.name, err)
			}
			return
		}
		e.modify(&ib.QPAttr{State: ib.StateRTS}, ib.QPAttrState)
	}
	if e.conn.broken || e.failed {
		resume() // its requests have to fail, and would wait for ever
		return
	}
	if w.now.Before(s.next) {
		return
	}
	a, _, _ := e.app.ctx.QueryQP(e.qp)
	// Seldom while nothing moves, as in turn.
	s.next = w.now.Add(time.Microsecond + d.upTo(max(50*time.Microsecond, w.now.Sub(w.net.latest)/8)))
	switch {
	case a.SQDraining && s.heard:
		w.failf("%s: SQ_DRAINED, and it drains still", e.name)
	case a.SQDraining && s.tried:
		return
	case a.SQDraining:
		s.tried = true
		err := e.app.ctx.ModifyQP(e.qp, &ib.QPAttr{State: ib.StateSQD, MaxRDAtomic: 1}, ib.QPAttrState|ib.QPAttrMaxRDAtomic)
		if !errors.Is(err, syscall.EINVAL) {
			w.failf("%s: attributes could be changed while it drained: %v", e.name, err)
		}
		return
	case s.heard != s.notify:
		w.failf("%s: it is drained, SQ_DRAINED was asked for: %v, and came: %v", e.name, s.notify, s.heard)
	case a.SQPSN != s.limit || int(e.block.SendDone()) < s.begun:
		w.failf("%s: drained at psn %v with %d requests done, and should be at %v with %d", e.name, a.SQPSN, e.block.SendDone(), s.limit, s.begun)
	case !s.changed && d.chance(700):
		s.changed = true
		e.changeDrained()
		return
	}
	w.census["queue pairs that were drained"]++
	w.logf(e.name, "goes on")
	resume()
}

// changeDrained changes what may be changed in SQD.
func (e *endpoint) changeDrained() {
	w, d := e.app.w, e.app.dice
	p := e.conn.plan
	a := ib.QPAttr{
		State: ib.StateSQD, MaxRDAtomic: uint8(d.between(1, int(e.side.Reads))), MinRNRTimer: e.side.RNRTimer,
		Timeout: p.Timeout, RetryCnt: p.Retries, RNRRetry: e.side.RNRRetry, AH: e.way(),
	}
	mask := ib.QPAttrState | ib.QPAttrMaxRDAtomic | ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrMinRNRTimer | ib.QPAttrAV
	if e.role == initiator {
		mask &^= ib.QPAttrMinRNRTimer
	}
	e.modify(&a, mask)
	if is, _, _ := e.app.ctx.QueryQP(e.qp); is.MaxRDAtomic != a.MaxRDAtomic || is.AH.GRH != a.AH.GRH || is.State != ib.StateSQD || is.SQDraining {
		w.failf("%s: changed to %+v in SQD, and it is %+v", e.name, a, is)
	}
	w.census["changes in SQD"]++
}
