package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
)

// TargetConfig says where a target belongs and how events name it.
type TargetConfig struct {
	XRCD   *XRCD
	Cookie uint64
	Handle uint32
}

// CreateTarget makes an XRC target, a queue pair of type XRC_RECV in RESET, and opens it. It has no queues: what it
// receives goes to the shared receive queues that requests name. What is done to a target by ModifyQP is done for
// everybody who has it open; DestroyQP closes it, and the last one ends it.
func (c *Context) CreateTarget(cfg TargetConfig) (*QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.openTarget(&cfg, c.makeTarget)
	if err != nil {
		return nil, fmt.Errorf("create qp: %w", err)
	}
	return q, nil
}

// OpenTarget opens a target that somebody made in the same XRC domain (ibv_open_qp). The error wraps EINVAL if there is none
// of this number.
func (c *Context) OpenTarget(cfg TargetConfig, n ib.QPN) (*QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.openTarget(&cfg, func(d *xrcDomain) (*QP, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if opens := d.opens[n]; len(opens) > 0 {
			return opens[0].of, nil
		}
		return nil, fmt.Errorf("queue pair %#x: there is no such target in this XRC domain: %w", uint32(n), syscall.EINVAL)
	})
	if err != nil {
		return nil, fmt.Errorf("open qp: %w", err)
	}
	return q, nil
}

// openTarget makes a handle of the target that find returns. Every handle counts as a queue pair.
func (c *Context) openTarget(cfg *TargetConfig, find func(*xrcDomain) (*QP, error)) (*QP, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.ownsXRCD(cfg.XRCD); err != nil {
		return nil, err
	}
	if err := c.purse.charge(resQPs, 1); err != nil {
		return nil, err
	}
	c.dev.xrc.mu.Lock()
	defer c.dev.xrc.mu.Unlock()
	d := cfg.XRCD.domain
	t, err := find(d)
	if err != nil {
		c.purse.uncharge(resQPs, 1)
		return nil, err
	}
	q := &QP{
		ctx: c, shard: t.shard, typ: t.typ, cookie: cfg.Cookie, handle: cfg.Handle, qpn: t.qpn, alive: true,
		of: t, xrcd: cfg.XRCD,
	}
	q.xrcd.refs++
	c.targets.add(q)
	d.remember(q)
	return q, nil
}

// makeTarget makes a target, which lives in the domain's own context. Its rings have no place for anything; they are
// there because of the state word.
func (c *Context) makeTarget(d *xrcDomain) (*QP, error) {
	capacity := abi.RoundQPCap(ib.QPCap{})
	layout := abi.LayoutOf(capacity)
	block, err := abi.NewQPBlock(make([]byte, layout.Size()), layout)
	if err != nil {
		return nil, err
	}
	block.Reset()
	p := d.home.parts[d.shard.index]
	number, err := p.take()
	if err != nil {
		return nil, err
	}
	q := &QP{
		ctx: d.home, shard: p.shard, part: p, typ: ib.QPTypeXRCRecv, xrc: d, cap: capacity, handle: uint32(number), qpn: number,
		alive: true, block: block, timer: timer{slot: -1},
	}
	q.attr.Cap = capacity
	q.flow.qp, q.waiter.qp = q, q
	q.outstanding.Enter(&q.shard.inFlight)
	q.engine = c.dev.newEngine(q)
	q.congestion.engine, _ = q.engine.(paced)
	q.shard.do(q.shard.publish(q))
	return q, nil
}

// closeTarget gives up a handle; the last one takes the target with it.
func (c *Context) closeTarget(q *QP) {
	c.dev.xrc.mu.Lock()
	defer c.dev.xrc.mu.Unlock()
	q.alive = false
	c.targets.remove(q)
	q.xrcd.refs--
	c.purse.uncharge(resQPs, 1)
	if q.xrcd.domain.forget(q) {
		q.shard.do(q.shard.retire(q.of))
		q.of.alive = false
		q.shard.table.put(q.qpn)
		q.of.part.taken--
	}
}

// real returns the queue pair that a handle is about: itself, unless it is a handle of a target.
func (q *QP) real() *QP {
	if q.of != nil {
		return q.of
	}
	return q
}

func (q *QP) place() *int { return &q.at }

var _ rc.Target = (*served)(nil)

// Select implements rc.Target. A queue whose context failed is as good as gone.
func (q *served) Select(srqn uint32) *dma.Domain {
	p := q.xrc.srqs[srqn]
	if p == nil || p.ctx.dead.Load() {
		return nil
	}
	q.pool = p
	return &p.pd.domain
}

// takeSelected is FetchRecv of a target.
func (q *served) takeSelected(r *transport.Receive) transport.Fetched {
	if q.state == ib.StateErr || q.pool == nil {
		return transport.Empty
	}
	f := q.pool.take(r)
	q.inHand = f == transport.Ready || f == transport.Malformed
	return f
}

// completeSelected is CompleteRecv of a target: into the queue of the shared receive queue that was selected (IBA A14). If
// that is gone meanwhile, nobody waits for it.
func (q *served) completeSelected(r *transport.Receive, c *transport.Completion) {
	q.inHand = false
	p := q.pool
	if p == nil || p.ctx.dead.Load() {
		return
	}
	defer q.containPool(p)
	q.complete(p.cq, abi.QueueXRCRecv, r.WRID, r.Index, c)
}

// containPool is deferred around what touches the memory of a process that has the shared receive queue, and not the
// target: if the memory is gone, so is that process, and not those that share the target.
func (q *served) containPool(p *SRQ) {
	if r := recover(); r != nil {
		addr, ok := faultAddress(r)
		if !ok {
			panic(r)
		}
		q.doomed = true
		q.shard.kill(p.ctx, fmt.Sprintf("the memory it shares is gone at %#x", addr))
	}
}

// closeXRC ends what a context has in XRC domains, before its memory goes.
func (c *Context) closeXRC() {
	for len(c.targets.list) > 0 {
		c.closeTarget(c.targets.list[0])
	}
	for _, q := range c.srqs.list {
		if q.xrcd != nil {
			q.leave(true)
		}
	}
	for len(c.xrcds.list) > 0 {
		c.forgetXRCD(c.xrcds.list[0])
	}
}
