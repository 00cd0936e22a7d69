package nic

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Commands that change what the shard knows, for do.

// attach makes a context known: its doorbell is looked at, its queue pairs share the port with those of other tenants.
func (s *shard) attach(c *Context) func(clock.Time) {
	return func(clock.Time) {
		id := sharer(c)
		t := s.tenants[id]
		if t == nil {
			t = &tenant{id: id}
			s.tenants[id] = t
		}
		t.refs++
		c.tenant = t
		s.contexts = append(s.contexts, c)
	}
}

// sharer is who a context's share of the port belongs to: a user of his own, however many contexts he opens. The owner's
// programs share as programs: they have no quotas either, and fairness between them is what one expects of a device.
func sharer(c *Context) uint64 {
	if c.cfg.Owner {
		return 1<<63 | c.Serial()
	}
	return c.cfg.Tenant
}

// detach forgets a context and its queue pairs, which it puts into qps.
func (s *shard) detach(c *Context, qps *[]*QP) func(clock.Time) {
	return func(clock.Time) {
		for _, q := range c.slots {
			if q != nil {
				s.hide(q)
				addCounters(&s.counters, &q.counters)
				*qps = append(*qps, q)
			}
		}
		c.slots, c.free, c.routes = nil, nil, routes{}
		for i := len(s.held) - 1; i >= 0; i-- {
			if s.held[i].ctx == c {
				s.dropHeld(s.held[i])
			}
		}
		for i := range s.contexts {
			if s.contexts[i] == c {
				s.contexts = append(s.contexts[:i], s.contexts[i+1:]...)
				break
			}
		}
		if c.tenant.refs--; c.tenant.refs == 0 {
			delete(s.tenants, c.tenant.id)
		}
	}
}

// publish gives a queue pair its slot and makes it findable.
func (s *shard) publish(q *QP) func(clock.Time) {
	return func(clock.Time) {
		c := q.ctx
		if n := len(c.free); n > 0 {
			q.slot = c.free[n-1]
			c.free = c.free[:n-1]
			c.slots[q.slot] = q
		} else {
			q.slot = uint32(len(c.slots))
			c.slots = append(c.slots, q)
		}
		q.flow.tenant = c.tenant
		s.table.publish(q)
	}
}

// retire forgets a queue pair.
func (s *shard) retire(q *QP) func(clock.Time) {
	return func(clock.Time) {
		s.hide(q)
		q.dead = true
		addCounters(&s.counters, &q.counters)
		c := q.ctx
		c.slots[q.slot] = nil
		c.free = append(c.free, q.slot)
	}
}

// hide takes a queue pair out of everything that leads to its engine.
func (s *shard) hide(q *QP) {
	s.table.hide(q)
	s.ground(q)
	s.sched.remove(&q.flow)
	s.timers.remove(q)
}

// forgetWork empties the rings of a queue pair that went to RESET: both sides count from 0 again.
func (s *shard) forgetWork(q *QP) {
	s.sched.remove(&q.flow)
	s.timers.remove(q)
	q.sendTaken, q.recvTaken = 0, 0
	q.pool, q.inHand = nil, false
	q.lied, q.doomed, q.lastWQE = false, false, false
	defer s.contain(s.now, q)
	q.block.Reset()
}

func (s *shard) forgetHeld(q *CQ) func(clock.Time) {
	return func(clock.Time) { s.dropHeld(q) }
}

func (s *shard) query(q *QP, attr *ib.QPAttr) func(clock.Time) {
	return func(now clock.Time) {
		*attr = q.attr
		if !q.dead {
			s.engineQuery(now, q, attr)
		}
		attr.Cap, attr.State, attr.CurState = q.cap, q.state, q.state
		if q.state == ib.StateSQD {
			attr.SQDraining = !q.drained
		}
	}
}

// failAll takes every queue pair to the error state: the device is going away.
func (s *shard) failAll(clock.Time) {
	for _, c := range s.contexts {
		for _, q := range c.slots {
			if q != nil && q.state != ib.StateErr {
				s.fail(q, noEvent)
			}
		}
	}
}
