package nic

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
)

// CQConfig describes a completion queue.
type CQConfig struct {
	Block    []byte      // shared with the application, abi.CQBlockSize of the capacity for Entries
	Entries  uint32      // wanted; the capacity is abi.CQCapacity of it
	Vector   uint32      // completion vector
	Notifier cq.Notifier // nil: no completion channel
	Cookie   uint64
	Handle   uint32
}

// CQ is a completion queue.
type CQ struct {
	ctx    *Context
	queue  *cq.Queue
	cfg    CQConfig
	at     int
	refs   int    // queues of queue pairs
	demand uint64 // sum of their depths
	// shared are the shared receive queues whose receives may complete here, and for how many queue pairs.
	shared map[*SRQ]int

	poster  atomic.Pointer[shard] // the only one that has ever completed into it, or several
	overrun atomic.Bool           // died, and a shard has noticed
	held    atomic.Pointer[shard] // whose list of queues that hold an event back it is in; nil for none
}

func (q *CQ) place() *int { return &q.at }

// Capacity returns how many entries the queue holds.
func (q *CQ) Capacity() uint32 { return q.queue.Capacity() }

// Queue returns the queue itself, for its occupancy and high-water mark.
func (q *CQ) Queue() *cq.Queue { return q.queue }

// CreateCQ makes a completion queue (ibv_create_cq). The error wraps EINVAL for sizes and vectors that are not offered,
// EFAULT for a block that is not there, ENOMEM or EDQUOT when there are too many.
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.createCQ(cfg)
	if err != nil {
		return nil, fmt.Errorf("create cq: %w", err)
	}
	return q, nil
}

func (c *Context) createCQ(cfg CQConfig) (*CQ, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	l := &c.dev.limits
	if cfg.Entries == 0 || cfg.Entries > l.MaxCQE {
		return nil, fmt.Errorf("%d entries: not within 1 to %d: %w", cfg.Entries, l.MaxCQE, syscall.EINVAL)
	}
	if cfg.Vector >= l.NumCompVectors {
		return nil, fmt.Errorf("completion vector %d: there are %d: %w", cfg.Vector, l.NumCompVectors, syscall.EINVAL)
	}
	capacity := abi.CQCapacity(cfg.Entries)
	if size := abi.CQBlockSize(capacity); uint64(len(cfg.Block)) < size {
		return nil, fmt.Errorf("block of %d bytes: %d entries need %d: %w", len(cfg.Block), capacity, size, syscall.EINVAL)
	}
	if err := c.purse.charge(resCQs, 1); err != nil {
		return nil, err
	}
	if err := c.purse.charge(resCQEs, uint64(capacity)); err != nil {
		c.purse.uncharge(resCQs, 1)
		return nil, err
	}
	q := &CQ{ctx: c, cfg: cfg}
	var err error
	if fault := guarded(func() {
		q.queue, err = cq.New(cq.Config{
			Block:    cfg.Block,
			Capacity: capacity,
			Notifier: cfg.Notifier,
			Cookie:   cfg.Cookie,
			Handle:   cfg.Handle,
		})
	}); fault != nil {
		err = fault
	}
	if err != nil {
		c.purse.uncharge(resCQEs, uint64(capacity))
		c.purse.uncharge(resCQs, 1)
		return nil, err
	}
	c.cqs.add(q)
	return q, nil
}

// ModerateCQ holds events back until count entries were posted or period microseconds have passed (ibv_modify_cq).
func (c *Context) ModerateCQ(q *CQ, count, period uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsCQ(q); err != nil {
		return fmt.Errorf("modify cq: %w", err)
	}
	if count > maxModeration || period > maxModeration {
		return fmt.Errorf("modify cq: count %d, period %d us: at most %d: %w", count, period, maxModeration, syscall.EINVAL)
	}
	if q.cfg.Notifier == nil {
		return nil // no events to hold back
	}
	if err := guarded(func() { q.queue.SetModeration(count, period) }); err != nil {
		return fmt.Errorf("modify cq: %w", err)
	}
	return nil
}

// maxModeration is the largest count and period of moderation.
const maxModeration = 65535

// DestroyCQ destroys a completion queue. The error wraps EBUSY while queue pairs use it.
func (c *Context) DestroyCQ(q *CQ) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsCQ(q); err != nil {
		return fmt.Errorf("destroy cq: %w", err)
	}
	if q.refs > 0 {
		return fmt.Errorf("destroy cq: %d queues complete into it: %w", q.refs, syscall.EBUSY)
	}
	c.dev.everywhere(func(s *shard, _ clock.Time) { s.dropHeld(q) })
	c.forgetCQ(q)
	return nil
}

func (c *Context) forgetCQ(q *CQ) {
	c.cqs.remove(q)
	c.purse.uncharge(resCQEs, uint64(q.Capacity()))
	c.purse.uncharge(resCQs, 1)
}

func (c *Context) ownsCQ(q *CQ) error {
	if q == nil || q.ctx != c || q.at < 0 {
		return fmt.Errorf("no such completion queue in this context: %w", syscall.EINVAL)
	}
	return nil
}

// several stands for more than one shard in CQ.poster.
var several = new(shard)

// postCQE makes an entry, and reports whether the queue took it. In a batch, the packets that arrived together, the queue that
// was completed into last stays locked (see cq.Queue.Lock), unless it has events or is completed into by other shards as well.
func (s *shard) postCQE(to *CQ, e *abi.CQE, solicited bool) bool {
	if s.locked == to {
		return to.queue.Append(e)
	}
	s.unlockCQ()
	if !s.inBatch || !to.queue.Silent() || !s.soleIn(to) {
		return to.queue.Post(s.now, e, solicited)
	}
	to.queue.Lock()
	s.locked = to
	return to.queue.Append(e)
}

// soleIn reports whether no other shard has ever completed into the queue.
func (s *shard) soleIn(q *CQ) bool {
	switch p := q.poster.Load(); {
	case p == s:
		return true
	case p == nil && q.poster.CompareAndSwap(nil, s):
		return true
	case p != several:
		q.poster.Store(several)
	}
	return false
}

// endBatch unlocks the queue that is locked, and sets the deadlines of the queue pairs that the batch was for.
func (s *shard) endBatch() {
	s.inBatch = false
	s.unlockCQ()
	for i, q := range s.touched {
		q.touched, s.touched[i] = false, nil
		if !q.dead {
			s.setTimer(q)
		}
	}
	s.touched = s.touched[:0]
}

// unlockCQ unlocks the queue that is locked, if any.
func (s *shard) unlockCQ() {
	if q := s.locked; q != nil {
		s.locked = nil
		q.queue.Unlock()
	}
}

// noteOverrun remembers a queue that died. It is called in the middle of an engine's call, so the queue pairs hear of it
// when that call is over.
func (s *shard) noteOverrun(q *CQ) {
	if !q.overrun.Swap(true) {
		s.overruns = append(s.overruns, q)
	}
}

// settleOverruns raises CQ_ERR for queues that died, and takes every queue pair that completes into one to the error
// state.
func (s *shard) settleOverruns() {
	for len(s.overruns) > 0 {
		q := s.overruns[0]
		s.overruns = s.overruns[:copy(s.overruns, s.overruns[1:])]
		q.ctx.event(ib.EventCQErr, q.cfg.Handle, q.cfg.Cookie)
		s.failUsers(q)
		s.others(func(o *shard, _ clock.Time) { o.failUsers(q) })
	}
}

// failUsers takes the queue pairs of the shard that complete into a dead queue to the error state, and tells those that have
// not found out by themselves.
func (s *shard) failUsers(q *CQ) {
	for _, qp := range q.ctx.parts[s.index].slots {
		if qp != nil && (qp.sendCQ == q || qp.recvCQ == q) && !qp.fatal {
			s.fail(qp, ib.EventQPFatal)
		}
	}
}

// noteHeld enters a queue that holds an event back, unless a shard has done that.
func (s *shard) noteHeld(q *CQ) {
	if q.held.Load() == nil && q.held.CompareAndSwap(nil, s) {
		s.held = append(s.held, q)
	}
}

// dropHeld takes a queue out of the list. Another shard may hold an event back again meanwhile, and believe that the queue
// is in the list: who drops it looks once more.
func (s *shard) dropHeld(q *CQ) {
	if q.held.Load() != s {
		return
	}
	q.held.Store(nil)
	for i := range s.held {
		if s.held[i] == q {
			s.held = append(s.held[:i], s.held[i+1:]...)
			return
		}
	}
}
