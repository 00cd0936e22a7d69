package sim

import (
	"time"

	"github.com/softnic/softnicd/ib"
)

// A queue pair that goes to RESET forgets everything, with requests outstanding and packets on their way, or after an error.
// Then it is connected again, with other packet sequence numbers, and begins another life. What is left of the one before
// arrives still, and the attacker sends it again later: none of it may be believed. From the reset on memory stays as it is
// but for the requests of the new life, and no completion of an old one comes any more.

// rebirth resets both ends of a connection and plans their new life, if nothing stands against it.
func (c *connection) rebirth(d *dice) bool {
	ends := c.everybody()
	revived := c.isOver()
	if !c.isLively() && !revived {
		return false
	}
	for _, e := range ends {
		e.sendQueue.empty()
		e.recvQueue.empty()
	}
	if !revived && !c.isLively() { // what was polled last told of its end
		return false
	}
	w := c.ends[0].app.w
	for _, e := range c.ends {
		e.modify(&ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
		if s := e.state(); s != ib.StateReset {
			w.failf("%s: it was reset, and is in %v", e.name, s)
		}
	}
	w.census["connections that were reset"]++
	if revived {
		w.census["connections that were revived"]++
	}
	for _, e := range ends {
		if e.sendQueue.reader.Peek(1)+e.recvQueue.reader.Peek(1) > 0 {
			w.failf("%s: the way to RESET has completed something", e.name)
		}
	}
	for _, e := range ends {
		w.census["requests that a reset has taken"] += e.posted - e.ended
		e.renew(d)
		e.app.wake(w.now + 1)
	}
	for _, e := range c.ends {
		e.untold = false
		e.prepare()
		e.createWindows()
		e.sleeps = w.now.Add(1 + d.upTo(oneOf(d, 0, 20*time.Microsecond, 200*time.Microsecond)))
		e.app.wake(e.sleeps)
	}
	c.broken = false
	c.losses += 1000 // a packet of an old life may make a new one believe in losses
	return true
}

// everybody returns all who have to do with a connection.
func (c *connection) everybody() []*endpoint {
	list := append([]*endpoint(nil), c.ends[:]...)
	if s := c.ends[1].sibling; s != nil {
		list = append(list, s)
	}
	return list
}

// isOver reports whether a connection has failed, and all that was outstanding has ended.
func (c *connection) isOver() bool {
	for _, e := range c.everybody() {
		if e.app.gone() || e.cut || e.learns != never || !e.closed || !e.finished() {
			return false
		}
	}
	return c.broken && !c.tainted && c.offence == nil
}

// empty takes all that a queue holds.
func (q *queue) empty() {
	for q.reader.Peek(1) > 0 {
		q.drain()
	}
}

// renew forgets what a reset has taken.
func (e *endpoint) renew(d *dice) {
	w := e.app.w
	w.logf(e.name, "is reset, with %d requests and %d receives outstanding; %d are still to come", e.posted-e.ended, e.ready-e.taken, e.planned-e.posted)
	if e.away != nil {
		e.away.back = w.now
		e.comeBack()
	}
	if e.role != sibling {
		w.total -= min(e.posted, e.planned) - min(e.ended, e.planned)
		rest := e.script[min(e.posted, e.planned):e.planned]
		e.script = append(make([]request, 0, len(rest)+2), rest...)[:len(rest)+2]
		e.planned = len(rest)
		e.start = e.fresh.Add(oneOf(d, uint32(d.between(1<<20, 1<<22)), -uint32(d.between(1<<20, 1<<22))))
		e.fresh = e.start
		for _, a := range e.arena.areas {
			copy(a.model, a.mem)
			for i := range a.slots {
				a.slots[i].owner = nil
			}
		}
	}
	if e.pool != nil {
		e.pool.lost++ // it may have had one in hand
	}
	e.posted, e.ended, e.ready, e.taken = 0, 0, 0, 0
	e.incoming, e.receives = nil, nil
	e.failed, e.flushes, e.closed, e.drained, e.faulty, e.last = false, false, false, false, false, false
	e.rnrEnds, e.orphaned, e.lost = 0, 0, 0
	e.life++
	e.reborn = w.now
	e.dropWindows()
	if e.role != sibling && d.chance(500) {
		e.renewKeys()
	}
}

// renewKeys registers the memory of an end anew: under other keys, and perhaps in the places of the old ones.
func (e *endpoint) renewKeys() {
	e.former = e.target.mr.RKey()
	for _, a := range e.arena.areas {
		if err := e.app.ctx.DeregMR(a.mr); err != nil {
			e.app.w.failf("%s: %v", e.name, err)
		}
		if err := e.arena.register(e.app.ctx, e.app.pd, a, e.rights(a)); err != nil {
			e.app.w.failf("%s: %v", e.name, err)
		}
	}
	e.app.node.wake(e.app.w.now + 1)
	e.app.w.census["renewed keys"]++
}

// dropWindows gives all windows of an end back, bound or not.
func (e *endpoint) dropWindows() {
	a := e.app
	kept := a.windows[:0]
	for _, v := range a.windows {
		mine := false
		for _, x := range e.windows {
			mine = mine || x == v
		}
		if !mine {
			kept = append(kept, v)
		} else if err := a.ctx.DeallocMW(v.mw); err != nil {
			a.w.failf("%s: a window after the reset: %v", e.name, err)
		}
	}
	a.windows, e.windows = kept, nil
}

// isOld reports whether a request that leaves is of a former life, which the device must have forgotten.
func (e *endpoint) isOld(psn ib.PSN) bool {
	if d := psn.Diff(e.start); e.life == 0 || -1<<19 < d && d < 1<<19 {
		return false
	}
	e.app.w.accuse("%s sent psn %v, of a life that ended at %.3f us", e.name, psn, float64(e.reborn)/1e3)
	return true
}

// wakeUp connects an end that was reset, when its time has come.
func (e *endpoint) wakeUp() {
	if e.sleeps == 0 || e.app.w.now.Before(e.sleeps) {
		return
	}
	e.sleeps = 0
	e.app.w.logf(e.name, "begins life %d at psn %v", e.life, e.start)
	e.connect()
}
