package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// QPConfig describes a queue pair.
type QPConfig struct {
	PD             *PD
	Type           ib.QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // where receives come from; nil for a receive queue of its own
	SigAll         bool // every send request is signaled
	Flags          ib.QPCreateFlags
	Cap            ib.QPCap // what is wanted at least
	// Block returns the memory for the rings: at least layout.Size() bytes, shared with the application.
	Block  func(layout abi.QPLayout) ([]byte, error)
	Cookie uint64
	Handle uint32
}

// QP is a queue pair.
type QP struct {
	ctx            *Context
	shard          *shard
	part           *part // of the context on the shard
	pd             *PD
	typ            ib.QPType
	xrc            *xrcDomain // of a target, which has neither PD nor CQs
	sendCQ, recvCQ *CQ
	srq            *SRQ // nil for none
	sigAll         bool
	flags          ib.QPCreateFlags
	cap            ib.QPCap
	cookie         uint64
	handle         uint32
	qpn            ib.QPN
	slot           uint32 // of the context's doorbell
	alive          bool   // guarded by ctx.mu
	attached       int    // to multicast groups; guarded by ctx.mu

	// A handle of a target has these and little else.
	of   *QP
	xrcd *XRCD
	at   int

	block  *abi.QPBlock
	engine transport.Engine

	// The shard's own from here on.
	state   ib.QPState
	attr    ib.QPAttr // as of the last Modify
	path    *wire.Path
	local   bool // the peer is on this device, as the path was made
	drained bool // in SQD: nothing is in flight any more
	dead    bool // its context is: the engine is not called again

	sendTaken, recvTaken uint32
	sendSeen, recvSeen   uint32 // posted, when that was looked at last
	pool                 *SRQ   // of a target: the shared receive queue that the last request named, nil if that is gone
	inHand               bool   // of a target: its engine has a receive of pool
	lastWQE              bool   // QP_LAST_WQE_REACHED was raised
	lied                 bool   // a posted index made no sense: nothing more is fetched
	fatal                bool   // the device raises QP_FATAL, or has
	touched              bool   // it is in the shard's list touched
	doomed               bool   // the queue pair has to fail as soon as its engine returns
	eager                eager

	congestion  congestion
	outstanding transport.Outstanding
	waiter      waiter
	counters    transport.Counters

	flow  flow
	timer timer
}

// QPN returns the queue pair number.
func (q *QP) QPN() ib.QPN { return q.qpn }

// Slot returns the queue pair's bit in the context's doorbell page.
func (q *QP) Slot() uint32 { return q.slot }

// Shard returns which of the device's shards the queue pair belongs to: who has rung its bit looks whether that one
// sleeps.
func (q *QP) Shard() int { return q.shard.index }

// Cap returns the real capacities.
func (q *QP) Cap() ib.QPCap { return q.cap }

// CreateQP makes a queue pair in RESET (ibv_create_qp). The error wraps EINVAL for what makes no sense or is over the
// device's limits, EOPNOTSUPP for types that are not built, ENOMEM or EDQUOT when there are too many.
func (c *Context) CreateQP(cfg QPConfig) (*QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.createQP(&cfg)
	if err != nil {
		return nil, fmt.Errorf("create qp: %w", err)
	}
	return q, nil
}

func (c *Context) createQP(cfg *QPConfig) (q *QP, err error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if cfg.Type == ib.QPTypeXRCSend {
		cfg.RecvCQ, cfg.Cap.MaxRecvWR, cfg.Cap.MaxRecvSGE = nil, 0, 0 // an initiator receives nothing
	}
	if cfg.SRQ != nil {
		cfg.Cap.MaxRecvWR, cfg.Cap.MaxRecvSGE = 0, 0 // there is no receive queue of its own
	}
	if err := c.checkQP(cfg); err != nil {
		return nil, err
	}
	capacity := abi.RoundQPCap(cfg.Cap)
	layout := abi.LayoutOf(capacity)
	if err := c.purse.charge(resQPs, 1); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.purse.uncharge(resQPs, 1)
		}
	}()
	mem, err := cfg.Block(layout)
	if err != nil {
		return nil, err
	}
	if uint64(len(mem)) < layout.Size() {
		return nil, fmt.Errorf("block of %d bytes: the rings need %d: %w", len(mem), layout.Size(), syscall.EINVAL)
	}
	block, err := abi.NewQPBlock(mem, layout)
	if err != nil {
		return nil, err
	}
	if err := guarded(block.Reset); err != nil {
		return nil, err
	}
	p, number, err := c.settle()
	if err != nil {
		return nil, err
	}
	q = &QP{
		ctx: c, shard: p.shard, part: p, pd: cfg.PD, typ: cfg.Type,
		sendCQ: cfg.SendCQ, recvCQ: cfg.RecvCQ, srq: cfg.SRQ, sigAll: cfg.SigAll, flags: cfg.Flags,
		cap: capacity, cookie: cfg.Cookie, handle: cfg.Handle,
		qpn: number, alive: true, block: block, timer: timer{slot: -1},
	}
	q.attr.Cap = capacity
	q.flow.qp, q.waiter.qp = q, q
	q.outstanding.Enter(&q.shard.inFlight)
	q.engine = c.dev.newEngine(q)
	q.congestion.engine, _ = q.engine.(paced)
	q.pd.refs++
	q.sendCQ.attach(q.cap.MaxSendWR)
	if q.recvCQ != nil {
		q.recvCQ.attach(q.cap.MaxRecvWR)
	}
	if q.srq != nil {
		q.recvCQ.share(q.srq)
		q.srq.refs++
	}
	// Built; now everybody may find it.
	q.shard.do(q.shard.publish(q))
	return q, nil
}

func (c *Context) checkQP(cfg *QPConfig) error {
	if err := c.ownsPD(cfg.PD); err != nil {
		return err
	}
	if err := c.ownsCQ(cfg.SendCQ); err != nil {
		return fmt.Errorf("send queue: %w", err)
	}
	if err := c.ownsCQ(cfg.RecvCQ); err != nil && cfg.Type != ib.QPTypeXRCSend {
		return fmt.Errorf("receive queue: %w", err)
	}
	if cfg.SRQ != nil {
		if err := c.ownsSRQ(cfg.SRQ); err != nil {
			return err
		}
		if cfg.Type == ib.QPTypeXRCSend || cfg.SRQ.xrcd != nil {
			return fmt.Errorf("type %s: it cannot have this shared receive queue: %w", cfg.Type, syscall.EINVAL)
		}
	}
	switch cfg.Type {
	case ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeXRCSend:
	case ib.QPTypeXRCRecv:
		return fmt.Errorf("type %s: a target belongs to an XRC domain, not to a protection domain: %w", cfg.Type, syscall.EINVAL)
	case ib.QPTypeRawPacket:
		return fmt.Errorf("type %s is not built in this version, only RC, UC, UD and XRC: %w", cfg.Type, syscall.EOPNOTSUPP)
	default:
		return fmt.Errorf("type %s: applications cannot have such: %w", cfg.Type, syscall.EINVAL)
	}
	if unknown := cfg.Flags &^ ib.QPCreateBlockSelfMcastLB; unknown != 0 {
		return fmt.Errorf("creation flags %s: %s is not built: %w", cfg.Flags, unknown, syscall.EOPNOTSUPP)
	}
	if cfg.Flags&ib.QPCreateBlockSelfMcastLB != 0 && cfg.Type != ib.QPTypeUD {
		return fmt.Errorf("type %s: %s is about groups, which are for UD: %w", cfg.Type, cfg.Flags, syscall.EINVAL)
	}
	if cfg.Block == nil {
		return fmt.Errorf("no memory for the rings: %w", syscall.EINVAL)
	}
	l, want := &c.dev.limits, &cfg.Cap
	for _, v := range []struct {
		name        string
		want, limit uint32
	}{
		{"max_send_wr", want.MaxSendWR, l.MaxQPWR},
		{"max_recv_wr", want.MaxRecvWR, l.MaxQPWR},
		{"max_send_sge", want.MaxSendSGE, l.MaxSGE},
		{"max_recv_sge", want.MaxRecvSGE, l.MaxSGE},
		{"max_inline_data", want.MaxInlineData, l.MaxInlineData},
	} {
		if v.want > v.limit {
			return fmt.Errorf("%s %d: the device's limit is %d: %w", v.name, v.want, v.limit, syscall.EINVAL)
		}
	}
	return nil
}

// QueryQP returns the attributes of a queue pair, its real capacities and whether every send is signaled.
func (c *Context) QueryQP(q *QP) (attr ib.QPAttr, capacity ib.QPCap, sigAll bool) {
	if q == nil || q.ctx != c {
		return ib.QPAttr{State: ib.StateUnknown, CurState: ib.StateUnknown}, ib.QPCap{}, false
	}
	q.shard.do(q.shard.query(q.real(), &attr))
	return attr, q.cap, q.sigAll
}

// DestroyQP destroys a queue pair, or gives up one handle of an XRC target. Outstanding requests vanish; when it returns
// the device does not touch the rings any more.
func (c *Context) DestroyQP(q *QP) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsQP(q); err != nil {
		return fmt.Errorf("destroy qp: %w", err)
	}
	if q.of != nil {
		c.closeTarget(q)
		return nil
	}
	if q.attached > 0 {
		return fmt.Errorf("destroy qp %#x: it is attached to %d multicast groups: %w", uint32(q.qpn), q.attached, syscall.EBUSY)
	}
	q.shard.do(q.shard.retire(q))
	c.releaseWindows(q)
	q.release()
	return nil
}

// release gives back what a queue pair had, after the shard has forgotten it.
func (q *QP) release() {
	q.alive = false
	q.shard.table.put(q.qpn)
	q.part.taken--
	q.pd.refs--
	q.sendCQ.detach(q.cap.MaxSendWR)
	if q.recvCQ != nil {
		q.recvCQ.detach(q.cap.MaxRecvWR)
	}
	if q.srq != nil {
		q.recvCQ.unshare(q.srq)
		q.srq.refs--
	}
	q.ctx.purse.uncharge(resQPs, 1)
}

func (c *Context) ownsQP(q *QP) error {
	if q == nil || q.ctx != c || !q.alive {
		return fmt.Errorf("no such queue pair in this context: %w", syscall.EINVAL)
	}
	return nil
}
