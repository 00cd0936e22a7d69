package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// SRQAttr are the attributes of a shared receive queue, see SRQ.Modify.
type SRQAttr = ib.SRQAttr

// SRQ is a shared receive queue: receives for whichever of its queue pairs needs one, taken in the order of posting. Each
// completes in the RecvCQ of the queue pair that took it, whose number is in the completion.
type SRQ struct {
	ctx    *Context
	handle uint32
	cookie uint64
	maxSGE uint32
	number uint32 // in an XRC domain
	closed atomic.Bool

	mu     sync.Mutex
	mem    arena.Block
	block  *abi.QPBlock
	posted uint32 // modulo 2^32
}

// CreateSRQ makes a shared receive queue for at least MaxWR receives of at most MaxSGE entries each; SRQLimit is not looked
// at, see SRQ.Modify. Queue pairs use it that are made with it as QPInitAttr.SRQ. They may be in other domains; the keys in
// receives are those of this one. EINVAL for sizes that the device does not offer.
func (p *PD) CreateSRQ(attr SRQAttr) (*SRQ, error) {
	return p.createSRQ(attr, func(q *SRQ, m *ctl.CreateSRQ) error {
		var r ctl.CreateSRQReply
		err := p.ctx.call(ctl.OpCreateSRQ, m, &r)
		q.handle = r.Handle
		return err
	})
}

// createSRQ makes everything but the device's part, which create asks for.
func (p *PD) createSRQ(attr SRQAttr, create func(*SRQ, *ctl.CreateSRQ) error) (*SRQ, error) {
	c := p.ctx
	if err := c.fail(); err != nil {
		return nil, err
	}
	q := &SRQ{ctx: c, cookie: c.newCookie(), maxSGE: attr.MaxSGE}
	var err error
	if q.mem, q.block, err = q.ring(attr.MaxWR); err != nil {
		return nil, fmt.Errorf("create srq: %w", err)
	}
	m := &ctl.CreateSRQ{
		PD: p.handle, MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE, Arena: q.mem.Arena, Offset: q.mem.Offset, Cookie: q.cookie,
	}
	c.mu.Lock()
	c.srqs[q.cookie] = q
	c.mu.Unlock()
	if err := create(q, m); err != nil {
		c.mu.Lock()
		delete(c.srqs, q.cookie)
		c.mu.Unlock()
		c.arenas.Free(q.mem)
		return nil, err
	}
	return q, nil
}

// ring takes memory for a ring. The device judges the size; only what is far from any device's limit is judged here.
func (q *SRQ) ring(maxWR uint32) (arena.Block, *abi.QPBlock, error) {
	if maxWR == 0 || maxWR > 1<<22 || q.maxSGE > abi.MaxSGE {
		return arena.Block{}, nil, fmt.Errorf("max_wr %d, max_sge %d: %w", maxWR, q.maxSGE, syscall.EINVAL)
	}
	layout := abi.SRQLayout(abi.RoundSRQ(maxWR), q.maxSGE)
	mem, err := q.ctx.arenas.Alloc(layout.Size(), abi.CacheLine)
	if err != nil {
		return arena.Block{}, nil, err
	}
	block, err := abi.NewQPBlock(mem.Mem, layout)
	if err != nil {
		q.ctx.arenas.Free(mem)
		return arena.Block{}, nil, err
	}
	block.Reset()
	return mem, block, nil
}

// PostRecv posts receive requests, in order. When one is refused the error is a *PostError that says which and why; those
// before it are posted. ENOMEM when as many are posted as the queue has places, EINVAL for a list longer than it was made
// for, EIO after SRQ_ERR.
//
// A receive's place is free again when a queue pair has taken it, which is before its completion is polled: a completion
// queue that is to bear any burst has room for more than the shared queue.
func (q *SRQ) PostRecv(wrs ...RecvWR) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := 0, q.usable()
	for err == nil && n < len(wrs) {
		if err = q.put(&wrs[n]); err == nil {
			n++
		}
	}
	if n > 0 {
		// The device looks when a packet needs a receive: there is nobody to wake.
		q.block.PublishRecv(q.posted)
	}
	if err != nil && (n < len(wrs) || len(wrs) == 0) {
		return &PostError{n, err}
	}
	return nil
}

// usable says why nothing can be posted at all.
func (q *SRQ) usable() error {
	switch {
	case q.closed.Load():
		return ErrClosed
	case q.ctx.lost():
		return ErrDeviceFatal
	case q.block.State() == ib.StateErr:
		return errSRQFailed
	}
	return nil
}

func (q *SRQ) put(wr *RecvWR) error {
	if q.posted-q.block.RecvTaken() >= q.block.Layout().RecvDepth {
		return errQueueFull
	}
	w := abi.RecvWQE{WRID: wr.WRID}
	if uint64(len(wr.SGList)) > uint64(q.maxSGE) || !q.block.PutRecv(q.posted, &w, wr.SGList) {
		return errListLong
	}
	q.posted++
	return nil
}

// Modify changes the attributes that mask names (ibv_modify_srq).
//
// ib.SRQAttrLimit arms an event: SRQ_LIMIT_REACHED comes once when fewer receives than SRQLimit are posted, at once if that
// is so already; 0 takes that back. ib.SRQAttrMaxWR resizes the queue, under traffic. EINVAL for a limit above the size and
// for a size below the limit or below what is posted; nothing changes then.
func (q *SRQ) Modify(attr SRQAttr, mask ib.SRQAttrMask) error {
	m := &ctl.ModifySRQ{SRQ: q.handle, Mask: uint32(mask), MaxWR: attr.MaxWR, Limit: attr.SRQLimit}
	if mask&ib.SRQAttrMaxWR == 0 {
		return q.ctx.call(ctl.OpModifySRQ, m, &ctl.Empty{})
	}
	if err := q.ctx.fail(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return ErrClosed
	}
	mem, block, err := q.ring(attr.MaxWR)
	if err != nil {
		return fmt.Errorf("modify srq: %w", err)
	}
	if err = q.move(block, attr.MaxWR); err == nil {
		m.Arena, m.Offset = mem.Arena, mem.Offset
		err = q.ctx.call(ctl.OpModifySRQ, m, &ctl.Empty{})
	}
	if err != nil {
		q.ctx.arenas.Free(mem)
		return err
	}
	old := q.mem
	q.mem, q.block = mem, block
	return q.ctx.arenas.Free(old)
}

// move puts what is posted into another ring. The device takes from the old one meanwhile; what it takes is not looked at
// in the new one.
func (q *SRQ) move(to *abi.QPBlock, size uint32) error {
	taken := q.block.RecvTaken()
	if n := q.posted - taken; n > size {
		return fmt.Errorf("modify srq: max_wr %d: %d receives are posted: %w", size, n, syscall.EINVAL)
	}
	for i := taken; i != q.posted; i++ {
		to.MoveRecv(i, q.block)
	}
	to.PublishRecv(q.posted)
	return nil
}

// Query returns the attributes: the real capacities, and the limit as it is now, 0 when it is not armed (ibv_query_srq).
func (q *SRQ) Query() (SRQAttr, error) {
	var r ctl.QuerySRQReply
	if err := q.ctx.call(ctl.OpQuerySRQ, &ctl.Handle{Handle: q.handle}, &r); err != nil {
		return SRQAttr{}, err
	}
	return SRQAttr{MaxWR: r.MaxWR, MaxSGE: r.MaxSGE, SRQLimit: r.Limit}, nil
}

// Close destroys the queue and what is posted in it. EBUSY while queue pairs use it.
func (q *SRQ) Close() error {
	if err := q.ctx.call(ctl.OpDestroySRQ, &ctl.Handle{Handle: q.handle}, &ctl.Empty{}); err != nil {
		return err
	}
	q.ctx.mu.Lock()
	delete(q.ctx.srqs, q.cookie)
	q.ctx.mu.Unlock()
	q.shut()
	return q.ctx.arenas.Free(q.mem)
}

// shut keeps everybody from touching the block from now on.
func (q *SRQ) shut() {
	q.mu.Lock()
	q.closed.Store(true)
	q.mu.Unlock()
}
