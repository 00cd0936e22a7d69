package verbs

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// QPCap are capacities; here, since programs write it often.
type QPCap = ib.QPCap

// QPAttr are attributes; here, since programs write it often.
type QPAttr = ib.QPAttr

// QPInitAttr is what a queue pair is made of. SendCQ and RecvCQ may be the same; the capacities are minimums.
type QPInitAttr struct {
	Type   ib.QPType // XRCD.CreateQP makes targets, XRC_RECV
	SendCQ *CQ
	RecvCQ *CQ  // not for XRC_SEND, which receives nothing
	SRQ    *SRQ // where receives come from, in place of a receive queue of its own; nil for none
	Cap    QPCap
	SigAll bool // every send request completes in SendCQ, signaled or not
	// Flags are creation flags (ibv_qp_create_flags). With ib.QPCreateBlockSelfMcastLB a UD queue pair never hears what it
	// sends to groups, McastLoopback or not. EINVAL for another type, EOPNOTSUPP for other flags.
	Flags ib.QPCreateFlags
}

// QP is a queue pair.
type QP struct {
	ctx    *Context
	pd     *PD
	init   QPInitAttr // with the real capacities
	handle uint32
	cookie uint64
	qpn    ib.QPN
	slot   uint32
	shard  int
	mem    arena.Block
	block  *abi.QPBlock
	target bool // of XRC: mem, slot and queues are not there
	closed atomic.Bool

	send, recv workQueue
}

// workQueue is the application's side of a send or receive queue.
type workQueue struct {
	mu     sync.Mutex
	posted uint32        // requests posted, modulo 2^32
	done   atomic.Uint32 // requests whose slots are free again

	// After a reset the completions of before are not the application's any more: those in the queue's CQ at an index
	// before stale.
	reset atomic.Bool
	stale atomic.Uint64

	marker atomic.Pointer[marker] // of a Drain
}

// CreateQP makes a queue pair in state RESET.
func (p *PD) CreateQP(init QPInitAttr) (*QP, error) {
	c := p.ctx
	if err := c.fail(); err != nil {
		return nil, err
	}
	initiator := init.Type == ib.QPTypeXRCSend
	if initiator {
		init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = nil, 0, 0
	}
	if !ofContext(c, init.SendCQ) || !initiator && !ofContext(c, init.RecvCQ) {
		return nil, fmt.Errorf("create qp: it needs completion queues of the same context: %w", syscall.EINVAL)
	}
	if init.SRQ != nil {
		if init.SRQ.ctx != c {
			return nil, fmt.Errorf("create qp: the shared receive queue is of another context: %w", syscall.EINVAL)
		}
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 0, 0
	}
	asked := abi.RoundQPCap(init.Cap)
	// The device judges the capacities. Only what is far from any device's limit is judged here, before memory is taken.
	if asked.MaxSendWR > 1<<22 || asked.MaxRecvWR > 1<<22 || asked.MaxSendSGE > abi.MaxSGE || asked.MaxRecvSGE > abi.MaxSGE ||
		asked.MaxInlineData > abi.MaxInlineLimit {
		return nil, fmt.Errorf("create qp: capacities %+v are beyond any device's: %w", init.Cap, syscall.EINVAL)
	}
	block, err := c.arenas.Alloc(abi.LayoutOf(asked).Size(), abi.CacheLine)
	if err != nil {
		return nil, fmt.Errorf("create qp: %w", err)
	}
	q := &QP{ctx: c, pd: p, init: init, cookie: c.newCookie(), mem: block}
	m := &ctl.CreateQP{
		PD: p.handle, Type: uint32(init.Type), SendCQ: init.SendCQ.handle,
		Arena: block.Arena, Offset: block.Offset, Cookie: q.cookie, Flags: uint32(init.Flags),
	}
	if !initiator {
		m.RecvCQ = init.RecvCQ.handle
	}
	m.SetCap(init.Cap)
	if init.SigAll {
		m.SigAll = 1
	}
	if init.SRQ != nil {
		m.SRQ = init.SRQ.handle
	}
	c.mu.Lock()
	c.qps[q.cookie] = q
	c.mu.Unlock()
	if err := q.create(m); err != nil {
		c.mu.Lock()
		delete(c.qps, q.cookie)
		c.mu.Unlock()
		c.arenas.Free(block)
		return nil, err
	}
	return q, nil
}

func (q *QP) create(m *ctl.CreateQP) error {
	var r ctl.CreateQPReply
	if err := q.ctx.call(ctl.OpCreateQP, m, &r); err != nil {
		return err
	}
	q.handle, q.qpn, q.slot, q.shard, q.init.Cap = r.Handle, ib.QPN(r.QPN), r.Slot, int(r.Shard), r.Cap()
	var err error
	if q.block, err = abi.NewQPBlock(q.mem.Mem, abi.LayoutOf(q.init.Cap)); err == nil {
		err = q.ctx.slots.put(q.slot, q)
	}
	if err != nil {
		q.ctx.call(ctl.OpDestroyQP, &ctl.Handle{Handle: r.Handle}, &ctl.Empty{})
		return fmt.Errorf("create qp: %w", err)
	}
	return nil
}

// QPN returns the queue pair's number.
func (q *QP) QPN() ib.QPN { return q.qpn }

// Cap returns the real capacities.
func (q *QP) Cap() QPCap { return q.init.Cap }

// State returns the state as the device last published it, without a request unless it is an XRC target.
func (q *QP) State() ib.QPState {
	if q.target {
		return q.targetState()
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if q.closed.Load() {
		return ib.StateUnknown
	}
	return q.block.State()
}

// Modify changes the attributes that mask names (ibv_modify_qp). A transition that is not allowed, an attribute that is
// missing, not allowed or out of range is EINVAL and changes nothing.
func (q *QP) Modify(attr *QPAttr, mask ib.QPAttrMask) error {
	m := &ctl.ModifyQP{QP: q.handle, Mask: uint32(mask), Attr: ctl.FromQPAttr(attr)}
	if mask&ib.QPAttrState != 0 && attr.State == ib.StateReset && !q.target {
		return q.resetQueues(m)
	}
	return q.ctx.call(ctl.OpModifyQP, m, &ctl.Empty{})
}

// resetQueues takes the queue pair to RESET: both queues are empty afterwards, and completions of before that nobody has
// polled yet are dropped (as the specification allows and hardware does).
func (q *QP) resetQueues(m *ctl.ModifyQP) error {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	if q.closed.Load() {
		return ErrClosed
	}
	if err := q.ctx.call(ctl.OpModifyQP, m, &ctl.Empty{}); err != nil {
		return err
	}
	q.send.forget(q.init.SendCQ)
	if q.init.RecvCQ != nil {
		q.recv.forget(q.init.RecvCQ)
	}
	return nil
}

// forget empties a work queue. Everything that the device wrote for it is in the CQ already.
func (w *workQueue) forget(q *CQ) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return
	}
	w.posted = 0
	w.done.Store(0)
	w.stale.Store(q.taken + uint64(q.reader.Peek(math.MaxInt32)))
	w.reset.Store(true)
}

// Query returns the attributes as they are now, and what the queue pair was made of (ibv_query_qp).
func (q *QP) Query() (QPAttr, QPInitAttr, error) {
	var r ctl.QueryQPReply
	if err := q.ctx.call(ctl.OpQueryQP, &ctl.Handle{Handle: q.handle}, &r); err != nil {
		return QPAttr{}, QPInitAttr{}, err
	}
	attr, err := ctl.ToQPAttr(&r.Attr)
	init := q.init
	init.Cap, init.SigAll = r.Cap(), r.SigAll != 0
	attr.Cap = init.Cap
	return attr, init, err
}

// Close destroys the queue pair; of an XRC target it lets go, and the last one destroys it. Requests that have not completed
// vanish, and so may completions that were not polled.
func (q *QP) Close() error {
	if err := q.ctx.call(ctl.OpDestroyQP, &ctl.Handle{Handle: q.handle}, &ctl.Empty{}); err != nil {
		return err
	}
	q.ctx.mu.Lock()
	delete(q.ctx.qps, q.cookie)
	q.ctx.mu.Unlock()
	q.ctx.slots.remove(q.slot, q)
	q.shut()
	if q.target {
		return nil
	}
	return q.ctx.arenas.Free(q.mem)
}

// ofContext tells whether there is such a completion queue in c.
func ofContext(c *Context, q *CQ) bool { return q != nil && q.ctx == c }

// shut keeps everybody from touching the block from now on.
func (q *QP) shut() {
	q.send.mu.Lock()
	q.recv.mu.Lock()
	q.closed.Store(true)
	q.recv.mu.Unlock()
	q.send.mu.Unlock()
}
