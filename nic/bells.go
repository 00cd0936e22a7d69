package nic

import (
	"fmt"
	"time"
)

// Contexts that rang last stand first among the parts of a shard, and those are asked in each round. The others are asked when
// there is nothing else to do, so that who goes to sleep has asked all of them, and otherwise now and then: a hundred doorbell
// pages are as many cache lines, which fall on the same few sets of a cache since pages are aligned. To ask all of them in each
// round made a message of 64 bytes take a quarter longer.
const (
	nearBells  = 8
	bellsEvery = 50 * time.Microsecond
)

// doorbells schedules the queue pairs that were rung, of all contexts or of those that it is the turn of. A bit is a hint: what was
// posted stands in the rings.
func (s *shard) doorbells(all bool) (busy bool) {
	n := len(s.parts)
	if all || n <= nearBells || s.now.Sub(s.asked) >= bellsEvery {
		s.asked = s.now
	} else {
		n = nearBells
	}
	for i := s.pending(0, n); i < n; i = s.pending(i+1, n) {
		p := s.parts[i]
		if p.ctx.dead.Load() {
			continue
		}
		busy = true
		for _, slot := range s.rung(p) {
			if q := p.at(slot); q != nil {
				s.sched.add(&q.flow)
			}
		}
		if i >= nearBells {
			near := &s.parts[s.near%nearBells]
			s.parts[i], *near = *near, p
			s.near++
		}
	}
	return busy
}

// pending returns the first part from i to n that was rung, or whose context has just failed, n if there is none. It and rung touch
// doorbell pages; a context whose page is gone is finished.
func (s *shard) pending(i, n int) (at int) {
	at = i
	defer func() {
		if r := recover(); r != nil {
			s.bellGone(s.parts[at].ctx, r)
		}
	}()
	for ; at < n; at++ {
		if p := s.parts[at]; p.bell != nil && !p.ctx.dead.Load() && p.bell.Pending() {
			break
		}
	}
	return at
}

func (s *shard) rung(p *part) []uint32 {
	defer func() {
		if r := recover(); r != nil {
			s.bellGone(p.ctx, r)
		}
	}()
	return p.bell.Take(s.slots[:0])
}

// bellGone ends a context because of what was recovered.
func (s *shard) bellGone(c *Context, recovered any) {
	addr, ok := faultAddress(recovered)
	if !ok {
		panic(recovered)
	}
	s.kill(c, fmt.Sprintf("its doorbell page is gone at %#x", addr))
}
