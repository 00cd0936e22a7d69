package nic

import (
	"cmp"
	"slices"

	"github.com/softnic/softnicd/abi"
)

// CQStatus is a completion queue at one moment: who has it, how full it is, how full it has been.
type CQStatus struct {
	Context   uint64 // serial number on the device, see CQCursor
	Tenant    uint64 // user id
	Process   int    // that opened the context; 0 if it is not known
	Handle    uint32 // the session's name of the queue
	Capacity  uint32
	Occupancy uint32 // entries that wait
	HighWater uint32 // the most entries that ever waited at once
	Overruns  uint64 // entries that were lost
	Events    uint64 // completion events sent
	// Moderation: an event after so many completions, or microseconds.
	ModerationCount, ModerationPeriod uint32
	Armed                             abi.ArmKind
	Channel                           bool // completion events have somewhere to go
	Dead                              bool // it overran, or its application lied
	Queues                            int  // send and receive queues that complete into it
	// Demand is the sum of their depths, a shared receive queue's once: what can be posted at once, each request with a
	// completion.
	Demand uint64
}

// Serial returns which of the device's contexts this is, counted from 1 in order of opening.
func (c *Context) Serial() uint64 { return c.serial }

// CQCursor is a place in the list of a device's completion queues, which are in order of context, and then of handle. The
// zero value stands before the first.
type CQCursor struct {
	Context uint64
	Handle  uint32
}

// Cursor returns the place of a status.
func (s *CQStatus) Cursor() CQCursor { return CQCursor{s.Context, s.Handle} }

// CQs fills list with the completion queues that come after a place, of the tenants that visible admits, and returns how
// many. A queue that exists all the while is in the pages exactly once. The device's shards do not notice: what is read
// is under the locks of contexts, which only control calls take, and of each queue for a moment.
func (d *Device) CQs(after CQCursor, visible func(tenant uint64) bool, list []CQStatus) (n int) {
	// Contexts are in the order of their serial numbers.
	for _, c := range d.snapshot() {
		if n == len(list) {
			break
		}
		if c.serial < after.Context || !visible(c.cfg.Tenant) {
			continue
		}
		first := uint32(0) // handles begin at 1
		if c.serial == after.Context {
			first = after.Handle
		}
		n += c.listCQs(first, list[n:])
	}
	return n
}

// listCQs fills list with the queues whose handles are above one.
func (c *Context) listCQs(above uint32, list []CQStatus) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var queues []*CQ
	for _, q := range c.cqs.list {
		if q.cfg.Handle > above {
			queues = append(queues, q)
		}
	}
	slices.SortFunc(queues, func(a, b *CQ) int { return cmp.Compare(a.cfg.Handle, b.cfg.Handle) })
	for _, q := range queues[:min(len(queues), len(list))] {
		list[n] = q.status()
		n++
	}
	return n
}

// status looks at a queue. Its context's lock is held. Traffic goes on meanwhile, so the order matters: what waits is read
// before the mark that it cannot be above.
func (q *CQ) status() CQStatus {
	c := q.ctx
	s := CQStatus{
		Context: c.serial, Tenant: c.cfg.Tenant, Process: c.cfg.Process, Handle: q.cfg.Handle,
		Channel: q.cfg.Notifier != nil, Queues: q.refs, Demand: q.demand,
	}
	for srq := range q.shared {
		s.Demand += uint64(srq.MaxWR())
	}
	if !c.dead.Load() {
		// The application's memory: without it, nothing waits.
		_ = guarded(func() {
			s.Armed = q.queue.Armed()
			s.Occupancy = q.queue.Occupancy()
		})
	}
	s.Capacity, s.HighWater = q.queue.Capacity(), q.queue.HighWater()
	s.Overruns, s.Dead, s.Events = q.queue.Overruns(), q.queue.Dead(), q.queue.Events()
	s.ModerationCount, s.ModerationPeriod = q.queue.Moderation()
	return s
}

// attach counts a work queue that completes into the queue; detach takes it out again. The context's lock is held.
func (q *CQ) attach(depth uint32) {
	q.refs++
	q.demand += uint64(depth)
}

func (q *CQ) detach(depth uint32) {
	q.refs--
	q.demand -= uint64(depth)
}

// share counts a queue pair whose receives come out of a shared queue and complete into q; unshare takes it out again. All
// that is posted there may complete here. The context's lock is held.
func (q *CQ) share(srq *SRQ) {
	if q.shared == nil {
		q.shared = make(map[*SRQ]int)
	}
	q.shared[srq]++
}

func (q *CQ) unshare(srq *SRQ) {
	if q.shared[srq]--; q.shared[srq] == 0 {
		delete(q.shared, srq)
	}
}
