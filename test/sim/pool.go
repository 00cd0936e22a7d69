package sim

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// pool is a shared receive queue of an application. Which of its members a receive is for shows when it completes; each
// receive completes once, and to each member the messages of its peer come whole and in order.
type pool struct {
	app    *application
	depth  int
	sges   int
	bytes  int // of the longest message that a member may get
	srq    *nic.SRQ
	xrcd   *nic.XRCD // of one that extended requests name; nil for another
	queue  *queue    // where its receives complete then
	block  *abi.QPBlock
	rings  []byte
	arena  *arena
	open   map[uint32]*receive // posted and not completed, by index; looked up, never walked
	posted int
	lost   int    // by queue pairs that were reset, or whose peer crashed, at most
	armed  uint32 // limit below which there will be an event; 0 for none
}

// newPool plans a shared receive queue, sometimes. In runs with queues that are too small there are none: receives whose
// completions are lost would be missing to others.
func newPool(a *application) *pool {
	if a.w.plan.Overrun > 0 || !a.dice.chance(250) {
		return nil
	}
	return &pool{app: a, depth: oneOf(a.dice, 1, 2, 8, 16), sges: oneOf(a.dice, 1, 2, 8), open: make(map[uint32]*receive)}
}

func (p *pool) create() {
	a := p.app
	var to *nic.CQ
	if p.queue != nil {
		to = p.queue.cq
	}
	p.srq = must(a.w, func() (*nic.SRQ, error) {
		return a.ctx.CreateSRQ(nic.SRQConfig{
			PD: a.pd, MaxWR: uint32(p.depth), MaxSGE: uint32(p.sges), XRCD: p.xrcd, CQ: to,
			Block: func(l abi.QPLayout) (b []byte, err error) {
				p.rings = make([]byte, l.Size())
				p.block, err = abi.NewQPBlock(p.rings, l)
				return p.rings, err
			},
		})
	})
	slots := p.depth + 1 + 3*a.w.plan.Changes.Rebirths
	if a.w.plan.Crash > 0 {
		slots += len(a.w.plan.Connections)
	}
	p.arena = newArena(canary + areaSize(0, slots, p.bytes))
	if err := p.arena.register(a.ctx, a.pd, p.arena.carve(a.dice, 0, slots, p.bytes), ib.AccessLocalWrite); err != nil {
		a.w.failf("%v", err)
	}
}

// work posts receives, mostly as many as there is room for, and arms the limit.
func (p *pool) work() {
	d, sink := p.app.dice, p.arena.areas[0]
	// When all that is open may have been lost, nothing might ever come that makes it look again.
	for p.hasRoom() && (len(p.open) <= p.lost || !d.chance(100)) {
		v := &receive{length: p.bytes}
		v.slot = sink.claim(d, v)
		v.list = v.slot.list(d, v.length, p.sges)
		p.open[uint32(p.posted)] = v
		p.block.PutRecv(uint32(p.posted), &abi.RecvWQE{WRID: uint64(p.posted) * 3}, v.list)
		p.posted++
		p.block.PublishRecv(uint32(p.posted))
	}
	if p.xrcd == nil && p.armed == 0 && d.chance(50) {
		limit := uint32(d.between(1, p.depth))
		p.armed = limit // the event may come at once
		a := ib.SRQAttr{SRQLimit: limit}
		if err := p.app.ctx.ModifySRQ(p.srq, &a, ib.SRQAttrLimit, nil); err != nil {
			p.app.w.failf("%s: %v", p.app.name, err)
		}
	}
}

// hasRoom reports whether another receive may be posted. What a queue pair had in hand that was reset is no one's any more,
// and what one has in hand whose peer has crashed is nobody's for long.
func (p *pool) hasRoom() bool {
	return len(p.open) < p.depth+p.lost && uint32(p.posted)-p.block.RecvTaken() < uint32(p.depth)
}

// isLimit reports whether an event tells that few receives are left, and was asked for.
func (p *pool) isLimit(t ib.EventType) bool {
	if p == nil || t != ib.EventSRQLimitReached || p.armed == 0 || uint32(p.posted)-p.block.RecvTaken() >= p.armed {
		return false
	}
	p.armed = 0
	p.app.w.census["limits of shared receive queues"]++
	return true
}

// isLast reports whether an event tells an end that it will get no completion of the pool any more.
func (a *application) isLast(t ib.EventType, handle uint32) bool {
	if t != ib.EventQPLastWQEReached || int64(handle) >= int64(len(a.w.conns)) {
		return false
	}
	for _, e := range a.w.conns[handle].ends {
		if e.app == a && e.pool != nil && !e.last {
			e.last = true
			a.wake(a.w.now + 1)
			return true
		}
	}
	return false
}

// take finds the receive that has completed.
func (p *pool) take(e *endpoint, c *abi.CQE) *receive {
	w := p.app.w
	v := p.open[c.WQEIndex]
	if v == nil || c.WRID != uint64(c.WQEIndex)*3 {
		w.failf("%s: completion of shared receive #%d with wr_id %#x; %d are posted", e.name, c.WQEIndex, c.WRID, p.posted)
	}
	if p.block.RecvTaken()-c.WQEIndex-1 > uint32(p.posted) {
		w.failf("%s: shared receive #%d completed, %d are said to be taken", e.name, c.WQEIndex, p.block.RecvTaken())
	}
	delete(p.open, c.WQEIndex)
	w.census["shared receives"]++
	e.ready++
	return v
}

// giveUp is the end of a receive of which nobody knows what is in it.
func (v *receive) giveUp() {
	s := v.slot
	copy(s.area.model[s.off:s.off+s.size], s.area.mem[s.off:])
	s.free(v)
}

// inspect compares the memory of the pool with the model.
func (p *pool) inspect() {
	if at := p.arena.broken(); at >= 0 {
		p.app.w.failf("%s: byte %d beside its shared receives was changed", p.app.name, at)
	}
	for i := range p.arena.areas[0].slots {
		if s := &p.arena.areas[0].slots[i]; s.owner == nil && s.wrong() >= 0 {
			p.app.w.failf("%s: byte %d of a shared receive that is not posted was changed", p.app.name, s.wrong())
		}
	}
}
