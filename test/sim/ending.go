package sim

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// end asks what is left when everything is over, and takes it away: there must be nothing.
func (w *world) end() {
	for _, n := range w.nodes {
		for _, a := range n.apps {
			if a.mad && !a.dead {
				a.die() // or it would go on for ever
			}
		}
	}
	w.settle()
	w.inspect()
	w.each((*endpoint).checkNumbers)
	for _, c := range w.conns {
		c.checkFatal(w)
	}
	w.checkClean()
	if w.plan.Offend {
		for _, c := range w.conns {
			c.offend()
		}
	}
	if w.plan.Flush && !w.plan.Offend {
		w.each((*endpoint).close)
	}
	if w.plan.Flush || w.plan.Offend {
		for deadline := w.now.Add(w.plan.bound()); !w.finished(); w.turn() {
			if len(w.events.heap) == 0 || w.now.After(deadline) {
				w.failf("not everything was flushed: %s", w.missing())
			}
		}
		w.settle()
		for _, c := range w.conns {
			c.checkOffence()
		}
	}
	w.endTalks()
	for _, n := range w.nodes {
		for _, a := range n.apps {
			if !a.dead {
				a.close()
			}
		}
	}
	w.settle()
	for _, n := range w.nodes {
		for _, a := range n.apps {
			a.expectEmpty()
		}
		for _, t := range n.talkers {
			t.expectUntouched()
		}
		n.disperse()
		if len(n.groups.joined) > 0 {
			w.failf("%s has not left its groups: %v", n.name, n.groups.joined)
		}
		n.reopen()
		if err := n.dev.Close(); err != nil {
			w.failf("%v", err)
		}
		w.verdict()
	}
	w.inspect()
}

// inspect compares all memory with the model. What belongs to requests of broken connections that did not end well may be
// either way.
func (w *world) inspect() {
	w.each(func(e *endpoint) {
		if e.app.dead {
			return
		}
		if at := e.arena.broken(); at >= 0 {
			w.failf("%s: byte %d of its memory, which is no region's, was changed", e.name, at)
		}
		if e.conn.tainted {
			return
		}
		for _, a := range e.arena.areas {
			for i := range a.slots {
				s := &a.slots[i]
				if s.owner != nil {
					continue
				}
				if at := s.wrong(); at >= 0 {
					w.failf("%s: byte %d of a slot that nobody uses was changed", e.name, at)
				}
			}
			if !e.conn.broken && a.words > 0 {
				if at := a.differs(0, 8*a.words); at >= 0 {
					w.failf("%s: word %d for atomics is wrong", e.name, at/8)
				}
			}
		}
	})
	for _, n := range w.nodes {
		for _, a := range n.apps {
			if !a.gone() && !a.shared.tainted {
				a.shared.check(a)
			}
			for _, p := range a.pools() {
				if !a.gone() {
					p.inspect()
				}
			}
		}
	}
}

// checkNumbers asks whether both sides have counted the same packets: one for each of a message, and for a READ one for
// each of its responses (IBA 9.7.3.1).
func (e *endpoint) checkNumbers() {
	if e.conn.broken {
		return
	}
	psn := e.numberOf(e.posted)
	mine, _, _ := e.app.ctx.QueryQP(e.qp)
	theirs, _, _ := e.peer.app.ctx.QueryQP(e.peer.qp)
	if mine.SQPSN != psn || theirs.RQPSN != psn {
		e.app.w.failf("%s: after %d requests from psn %v the next is %v, its peer expects %v and it should be %v",
			e.name, e.posted, e.start, mine.SQPSN, theirs.RQPSN, psn)
	}
}

// numberOf is the packet sequence number with which request #n begins.
func (e *endpoint) numberOf(n int) ib.PSN {
	mtu, psn := e.conn.plan.MTU.Bytes(), e.start
	for i := range n {
		psn = psn.Add(e.script[i].packets(mtu))
	}
	return psn
}

// close destroys what the application made: in order of dependency, or with its context.
func (a *application) close() {
	if a.w.plan.Piecemeal && !a.mad {
		a.dismantle()
	}
	if err := a.ctx.Close(); err != nil {
		a.w.failf("%s: %v", a.name, err)
	}
	a.w.verdict()
	// The memory is the application's alone now.
	scribble(a.page)
	for _, q := range a.queues {
		q.checkLeft()
		q.abandon()
	}
	for _, p := range a.pools() {
		scribble(p.rings)
	}
	for _, e := range a.endpoints {
		scribble(e.rings)
	}
}

func scribble(b []byte) {
	for i := range b {
		b[i] = canaryByte
	}
}

// notCanary returns the first byte that is not what scribble has left, -1 if there is none.
func notCanary(b []byte) int {
	for i := range b {
		if b[i] != canaryByte {
			return i
		}
	}
	return -1
}

func (a *application) dismantle() {
	destroy := func(what string, f func() error) {
		if err := f(); err != nil {
			a.w.failf("%s: destroying %s: %v", a.name, what, err)
		}
	}
	busy := func(what string, err error) {
		if !errors.Is(err, syscall.EBUSY) {
			a.w.failf("%s: %s in use could be destroyed: %v", a.name, what, err)
		}
	}
	busy("pd", a.ctx.DeallocPD(a.pd))
	for _, e := range a.endpoints {
		if e.role < target {
			busy("cq", a.ctx.DestroyCQ(e.sendQueue.cq))
		}
		destroy("qp", func() error { return a.ctx.DestroyQP(e.qp) })
	}
	if a.xrcd != nil {
		busy("xrcd", a.ctx.CloseXRCD(a.xrcd))
	}
	for _, p := range a.pools() {
		err := a.ctx.DestroySRQ(p.srq)
		if p.isInHand(err) {
			return // it goes with the context
		}
		destroy("srq", func() error { return err })
		destroy("mr", func() error { return a.ctx.DeregMR(p.arena.areas[0].mr) })
	}
	if a.xrcd != nil {
		destroy("xrcd", func() error { return a.ctx.CloseXRCD(a.xrcd) })
	}
	for _, v := range a.windows {
		destroy("mw", func() error { return a.ctx.DeallocMW(v.mw) })
	}
	for _, e := range a.endpoints {
		for _, r := range e.arena.areas {
			destroy("mr", func() error { return a.ctx.DeregMR(r.mr) })
		}
	}
	for _, q := range a.queues {
		destroy("cq", func() error { return a.ctx.DestroyCQ(q.cq) })
	}
	destroy("mr", func() error { return a.ctx.DeregMR(a.shared.mr) })
	destroy("pd", func() error { return a.ctx.DeallocPD(a.pd) })
	if a.pd2 != nil {
		destroy("pd", func() error { return a.ctx.DeallocPD(a.pd2) })
	}
}

// expectEmpty looks for completions after the end, and for words that the device wrote into memory it had given back.
func (a *application) expectEmpty() {
	check := func(what string, b []byte) {
		if at := notCanary(b); at >= 0 {
			a.w.failf("%s: byte %d of a %s was written after its end", a.name, at, what)
		}
	}
	check("doorbell page", a.page)
	for _, q := range a.queues {
		for _, r := range q.rings {
			check("completion queue", r)
		}
	}
	for _, p := range a.pools() {
		check("shared receive queue", p.rings)
		if a.dead {
			check("region", p.arena.mem)
		}
	}
	for _, e := range a.endpoints {
		check("queue pair", e.rings)
		if a.dead {
			check("region", e.arena.mem)
		}
	}
}

// reopen takes everything that the device has to give. It gives no more than it did at first: whatever was not given back
// is missed.
func (n *node) reopen() {
	w := n.w
	fresh := func() *application {
		a := &application{w: w, node: n, dice: n.dice, name: fmt.Sprintf("late app of %s", n.name)}
		a.open()
		return a
	}
	a := fresh()
	more := make([]*application, maxContexts-1)
	for i := range more {
		more[i] = fresh()
	}
	if _, err := n.dev.OpenContext(nic.ContextConfig{Owner: true}); !errors.Is(err, syscall.ENOMEM) {
		w.failf("%s has room for more than %d contexts: %v", n.name, maxContexts, err)
	}
	pd := must(w, a.ctx.AllocPD)
	for range maxPDs - 1 {
		must(w, a.ctx.AllocPD)
	}
	for range maxAHs {
		must(w, func() (*nic.AH, error) {
			return a.ctx.CreateAH(pd, &ib.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: n.gid}})
		})
	}
	var queue *nic.CQ
	for range 16 {
		queue = must(w, func() (*nic.CQ, error) {
			return a.ctx.CreateCQ(nic.CQConfig{Block: make([]byte, abi.CQBlockSize(64)), Entries: 1})
		})
	}
	memory := newArena(canary + areaSize(1, 0, 0))
	memory.carve(n.dice, 1, 0, 0)
	for range 128 {
		if err := memory.register(a.ctx, pd, memory.areas[0], ib.AccessLocalWrite); err != nil {
			w.failf("%v", err)
		}
	}
	for range 4 {
		must(w, func() (*nic.SRQ, error) {
			return a.ctx.CreateSRQ(nic.SRQConfig{PD: pd, MaxWR: 1, MaxSGE: 1, Block: func(l abi.QPLayout) ([]byte, error) {
				return make([]byte, l.Size()), nil
			}})
		})
	}
	for range 128 {
		must(w, func() (*nic.MW, error) { return a.ctx.AllocMW(pd, ib.MWType2, 1) })
	}
	for range maxQPs {
		must(w, func() (*nic.QP, error) {
			return a.ctx.CreateQP(nic.QPConfig{
				PD: pd, Type: ib.QPTypeRC, SendCQ: queue, RecvCQ: queue,
				Block: func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil },
			})
		})
	}
	for _, x := range append(more, a) {
		if err := x.ctx.Close(); err != nil {
			w.failf("%v", err)
		}
	}
}
