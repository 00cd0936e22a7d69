package nic

import (
	"slices"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Commands that change what a shard knows.

// attach makes a context known: its doorbell is looked at, its queue pairs share the port with those of other tenants.
func (s *shard) attach(c *Context) {
	id := sharer(c)
	t := s.tenants[id]
	if t == nil {
		t = &tenant{id: id}
		s.tenants[id] = t
	}
	t.refs++
	p := c.parts[s.index]
	p.tenant = t
	s.parts = append(s.parts, p)
}

// sharer is who a context's share of the port belongs to: a user of his own, however many contexts he opens. The owner's
// programs share as programs: they have no quotas either, and fairness between them is what one expects of a device.
func sharer(c *Context) uint64 {
	if c.cfg.Owner {
		return 1<<63 | c.Serial()
	}
	return c.cfg.Tenant
}

// detach makes all shards forget a context, and returns the queue pairs that it had.
func (d *Device) detach(c *Context) []*QP {
	gone := make([][]*QP, len(d.shards))
	d.everywhere(func(s *shard, _ clock.Time) { gone[s.index] = s.detach(c) })
	return slices.Concat(gone...)
}

// detach forgets a context and its queue pairs, which it returns.
func (s *shard) detach(c *Context) (gone []*QP) {
	p := c.parts[s.index]
	for _, q := range p.slots {
		if q != nil {
			s.hide(q)
			q.dead = true
			addCounters(&s.counters, &q.counters)
			gone = append(gone, q)
		}
	}
	p.slots, p.free = nil, nil
	for i := len(s.held) - 1; i >= 0; i-- {
		if s.held[i].ctx == c {
			s.dropHeld(s.held[i])
		}
	}
	if i := slices.Index(s.parts, p); i >= 0 {
		s.parts = slices.Delete(s.parts, i, i+1)
	}
	if p.tenant.refs--; p.tenant.refs == 0 {
		delete(s.tenants, p.tenant.id)
	}
	return gone
}

// publish gives a queue pair its slot and makes it findable.
func (s *shard) publish(q *QP) func(clock.Time) {
	return func(clock.Time) {
		q.part.add(q)
		q.flow.tenant = q.part.tenant
		s.table.publish(q)
	}
}

// retire forgets a queue pair.
func (s *shard) retire(q *QP) func(clock.Time) {
	return func(clock.Time) {
		s.hide(q)
		q.dead = true
		addCounters(&s.counters, &q.counters)
		q.part.remove(q)
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
	q.sendSeen, q.recvSeen = 0, 0
	q.pool, q.inHand = nil, false
	q.lied, q.doomed, q.fatal, q.lastWQE = false, false, false, false
	defer s.contain(s.now, q)
	q.block.Reset()
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
func (s *shard) failAll() {
	for _, p := range s.parts {
		for _, q := range p.slots {
			if q != nil && q.state != ib.StateErr {
				s.fail(q, noEvent)
			}
		}
	}
}
