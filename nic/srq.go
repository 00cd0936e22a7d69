package nic

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// SRQConfig describes a shared receive queue.
type SRQConfig struct {
	PD            *PD // whose keys the receives name; that of the queue pairs may be another
	MaxWR, MaxSGE uint32
	// XRCD makes it a queue that XRC requests name: receives complete in CQ then, whoever takes them.
	XRCD *XRCD
	CQ   *CQ
	// Block returns the memory for the ring: at least layout.Size() bytes, shared with the application.
	Block  func(layout abi.QPLayout) ([]byte, error)
	Cookie uint64
	Handle uint32
}

// SRQ is a shared receive queue: receives that whichever of its queue pairs needs one takes, in the order of posting
// (IBA 10.2.9). Its queue pairs may be turned by several shards, so that its data path has a lock, held for the copy of one
// receive.
type SRQ struct {
	ctx    *Context
	pd     *PD
	maxSGE uint32
	cookie uint64
	handle uint32
	at     int
	refs   int   // queue pairs; guarded by ctx.mu
	xrcd   *XRCD // nil for none; guarded by ctx.mu
	cq     *CQ   // with xrcd
	number uint32

	mu     sync.Mutex
	block  *abi.QPBlock
	depth  uint32
	taken  uint32
	limit  uint32      // 0 when the event is not armed
	broken bool        // SRQ_ERR was raised: no receive is taken any more
	wqe    abi.RecvWQE // private copy, here so that it need not be allocated
}

func (q *SRQ) place() *int { return &q.at }

// CreateSRQ makes a shared receive queue (ibv_create_srq). The error wraps EINVAL for sizes that are not offered, ENOMEM
// or EDQUOT when there are too many.
func (c *Context) CreateSRQ(cfg SRQConfig) (*SRQ, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.createSRQ(&cfg)
	if err != nil {
		return nil, fmt.Errorf("create srq: %w", err)
	}
	return q, nil
}

func (c *Context) createSRQ(cfg *SRQConfig) (*SRQ, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.ownsPD(cfg.PD); err != nil {
		return nil, err
	}
	l := &c.dev.limits
	if err := checkSRQSize(l, cfg.MaxWR); err != nil {
		return nil, err
	}
	if cfg.MaxSGE == 0 || cfg.MaxSGE > l.MaxSRQSGE {
		return nil, fmt.Errorf("max_sge %d: not within 1 to %d: %w", cfg.MaxSGE, l.MaxSRQSGE, syscall.EINVAL)
	}
	if err := c.checkXRC(cfg); err != nil {
		return nil, err
	}
	if cfg.Block == nil {
		return nil, fmt.Errorf("no memory for the ring: %w", syscall.EINVAL)
	}
	q := &SRQ{ctx: c, pd: cfg.PD, maxSGE: cfg.MaxSGE, cookie: cfg.Cookie, handle: cfg.Handle, depth: abi.RoundSRQ(cfg.MaxWR)}
	var err error
	if q.block, err = q.view(q.depth, cfg.Block); err != nil {
		return nil, err
	}
	if err := guarded(q.block.Reset); err != nil {
		return nil, err
	}
	if err := c.purse.charge(resSRQs, 1); err != nil {
		return nil, err
	}
	if cfg.XRCD != nil {
		if err := q.join(cfg.XRCD, cfg.CQ); err != nil {
			c.purse.uncharge(resSRQs, 1)
			return nil, err
		}
	}
	q.pd.refs++
	c.srqs.add(q)
	return q, nil
}

func checkSRQSize(l *Limits, maxWR uint32) error {
	if maxWR == 0 || maxWR > l.MaxSRQWR {
		return fmt.Errorf("max_wr %d: not within 1 to %d: %w", maxWR, l.MaxSRQWR, syscall.EINVAL)
	}
	return nil
}

// view returns the block of a ring of the given depth.
func (q *SRQ) view(depth uint32, memory func(abi.QPLayout) ([]byte, error)) (*abi.QPBlock, error) {
	layout := abi.SRQLayout(depth, q.maxSGE)
	mem, err := memory(layout)
	if err != nil {
		return nil, err
	}
	if uint64(len(mem)) < layout.Size() {
		return nil, fmt.Errorf("block of %d bytes: the ring needs %d: %w", len(mem), layout.Size(), syscall.EINVAL)
	}
	return abi.NewQPBlock(mem, layout)
}

// MaxWR returns the real capacity.
func (q *SRQ) MaxWR() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depth
}

// ModifySRQ changes the attributes of a shared receive queue that mask names (ibv_modify_srq). A new size needs a block
// for the new ring, into which the application has put what is posted and not taken; when the call returns the device does
// not touch the old one any more. The error wraps EINVAL for a size below what is posted or below the limit, and for a
// limit above the size; nothing changes then.
func (c *Context) ModifySRQ(q *SRQ, a *ib.SRQAttr, mask ib.SRQAttrMask, block func(abi.QPLayout) ([]byte, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.usable()
	if err == nil {
		err = c.ownsSRQ(q)
	}
	if err == nil {
		err = c.modifySRQ(q, a, mask, block)
	}
	if err != nil {
		return fmt.Errorf("modify srq: %w", err)
	}
	return nil
}

func (c *Context) modifySRQ(q *SRQ, a *ib.SRQAttr, mask ib.SRQAttrMask, block func(abi.QPLayout) ([]byte, error)) error {
	if unknown := mask &^ (ib.SRQAttrMaxWR | ib.SRQAttrLimit); unknown != 0 {
		return fmt.Errorf("attributes %s cannot be given: %w", unknown, syscall.EINVAL)
	}
	var next *abi.QPBlock
	if mask&ib.SRQAttrMaxWR != 0 {
		if err := checkSRQSize(&c.dev.limits, a.MaxWR); err != nil {
			return err
		}
		if block == nil {
			return fmt.Errorf("no memory for the new ring: %w", syscall.EINVAL)
		}
		var err error
		if next, err = q.view(abi.RoundSRQ(a.MaxWR), block); err != nil {
			return err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken {
		return fmt.Errorf("the queue is in error: %w", syscall.EIO)
	}
	var err error
	if fault := guarded(func() { err = q.change(a, mask, next) }); fault != nil {
		q.fail("its memory is gone")
		return fault
	}
	return err
}

// change applies a modification. q.mu is held.
func (q *SRQ) change(a *ib.SRQAttr, mask ib.SRQAttrMask, next *abi.QPBlock) error {
	size, limit := q.depth, q.limit
	if next != nil {
		size = a.MaxWR
	}
	if mask&ib.SRQAttrLimit != 0 {
		limit = a.SRQLimit
	}
	if limit > size {
		return fmt.Errorf("limit %d: the size is %d: %w", limit, size, syscall.EINVAL)
	}
	if next != nil {
		if n := q.block.RecvPosted() - q.taken; n > size {
			return fmt.Errorf("max_wr %d: %d receives are posted: %w", size, n, syscall.EINVAL)
		}
		// What the application says in the new block counts from now on, so it is judged there.
		if n := next.RecvPosted() - q.taken; n > size {
			return fmt.Errorf("max_wr %d: the new ring says that %d are posted: %w", size, n, syscall.EINVAL)
		}
		next.SetRecvTaken(q.taken)
		next.SetState(ib.StateReset)
		q.block, q.depth = next, next.Layout().RecvDepth
	}
	q.limit = limit
	if n := q.block.RecvPosted() - q.taken; n <= q.depth {
		q.warn(n)
	}
	return nil
}

// QuerySRQ returns the attributes of a shared receive queue, and how many receives are posted and not taken.
func (c *Context) QuerySRQ(q *SRQ) (a ib.SRQAttr, posted uint32, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsSRQ(q); err != nil {
		return a, 0, fmt.Errorf("query srq: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.broken {
		if err := guarded(func() { posted = q.block.RecvPosted() - q.taken }); err != nil {
			return a, 0, fmt.Errorf("query srq: %w", err)
		}
	}
	return ib.SRQAttr{MaxWR: q.depth, MaxSGE: q.maxSGE, SRQLimit: q.limit}, min(posted, q.depth), nil
}

// DestroySRQ destroys a shared receive queue and what is posted in it. The error wraps EBUSY while queue pairs use it, or an
// XRC target is in the middle of a message for it.
func (c *Context) DestroySRQ(q *SRQ) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsSRQ(q); err != nil {
		return fmt.Errorf("destroy srq: %w", err)
	}
	if q.refs > 0 {
		return fmt.Errorf("destroy srq: %d queue pairs use it: %w", q.refs, syscall.EBUSY)
	}
	if q.xrcd != nil && !q.leave(false) {
		return fmt.Errorf("destroy srq: a target has a receive of it in hand: %w", syscall.EBUSY)
	}
	c.forgetSRQ(q)
	return nil
}

func (c *Context) forgetSRQ(q *SRQ) {
	c.srqs.remove(q)
	q.pd.refs--
	c.purse.uncharge(resSRQs, 1)
}

func (c *Context) ownsSRQ(q *SRQ) error {
	if q == nil || q.ctx != c || q.at < 0 {
		return fmt.Errorf("no such shared receive queue in this context: %w", syscall.EINVAL)
	}
	return nil
}

// take copies the next receive into r, for a queue pair that needs one. The ring is the application's: an index that makes
// no sense, or memory that is gone, is the end of the queue, and each of its queue pairs hears of it when it needs a
// receive.
func (q *SRQ) take(r *transport.Receive) (f transport.Fetched) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.broken {
		return transport.Broken
	}
	defer q.contain(&f)
	posted := q.block.RecvPosted() - q.taken
	if posted == 0 {
		return transport.Empty
	}
	if posted > q.depth {
		q.fail("more is posted than the ring holds")
		return transport.Broken
	}
	list := r.SGE[:min(cap(r.SGE), int(q.maxSGE))]
	n := q.block.CopyRecv(q.taken, &q.wqe, list)
	r.Index, r.WRID, r.SGE, r.Length = q.taken, q.wqe.WRID, list[:0], 0
	q.taken++
	q.block.SetRecvTaken(q.taken)
	q.warn(posted - 1)
	if uint64(n) != uint64(q.wqe.Count) {
		return transport.Malformed
	}
	r.SGE = list[:n]
	if r.Length = gathered(r.SGE); r.Length > maxGather {
		return transport.Malformed
	}
	return transport.Ready
}

// warn raises SRQ_LIMIT_REACHED, once for each time that it was armed, when fewer receives are posted than the limit.
func (q *SRQ) warn(posted uint32) {
	if posted < q.limit {
		q.limit = 0
		q.ctx.event(ib.EventSRQLimitReached, q.handle, q.cookie)
	}
}

// contain is deferred around what touches the ring on the data path.
func (q *SRQ) contain(f *transport.Fetched) {
	if r := recover(); r != nil {
		if _, ok := faultAddress(r); !ok {
			panic(r)
		}
		q.fail("its memory is gone")
		*f = transport.Broken
	}
}

// fail ends the queue. q.mu is held.
func (q *SRQ) fail(why string) {
	q.broken = true
	_ = guarded(func() { q.block.SetState(ib.StateErr) })
	q.ctx.dev.log.Error("a shared receive queue has failed: "+why, "tenant", q.ctx.cfg.Tenant)
	q.ctx.event(ib.EventSRQErr, q.handle, q.cookie)
}

// lastWQE raises QP_LAST_WQE_REACHED when a queue pair of a shared receive queue is in the error state and every receive
// that it had taken has completed: only now the application may count what is left (IBA 10.2.9). An XRC target takes from the
// queues of several processes; each that has it open is told.
func (s *shard) lastWQE(q *QP) {
	if q.state != ib.StateErr || q.dead || q.lastWQE {
		return
	}
	q.lastWQE = true
	q.ctx.event(ib.EventQPLastWQEReached, q.handle, q.cookie)
}
