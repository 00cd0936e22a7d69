package sim

import (
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// crash is the end of a device without a word, and its return with nothing of what it knew: other queue pair numbers, other
// keys. Its applications are gone with it. Their peers run out of retries; those who ask for nothing hear of it later. What
// is still on its way to the old device, or is sent to it again, must miss the new one.
func (n *node) crash() {
	w := n.w
	w.logf(n.name, "crashes")
	w.census["device crashes"]++
	for _, a := range n.apps {
		a.dead = true
		scribble(a.page)
		for _, q := range a.queues {
			q.abandon()
		}
		for _, e := range a.endpoints {
			scribble(e.rings)
		}
		for _, p := range a.pools() {
			scribble(p.rings)
		}
		a.abandon()
		for _, e := range a.endpoints {
			p := e.peer
			for _, x := range []*endpoint{p, p.sibling} {
				if x != nil && x.pool != nil {
					x.pool.lost++ // it may have one in hand until it is told, and others wait for it
				}
			}
			e.tellOthers(w.now.Add(w.plan.silence(e.conn.plan)))
			p.orphaned = p.posted
		}
	}
	for _, t := range n.talkers {
		t.crash()
	}
	for _, p := range n.ports {
		w.net.free = append(w.net.free, p.inbox...)
		p.inbox = p.inbox[:0]
	}
	n.paused, n.port.failed = 0, false
	n.boot()
	n.bystand()
}

// silence is how long a requester may believe in a peer that does not answer any more, and its application not look.
func (p *Plan) silence(c *ConnectionPlan) time.Duration {
	return 20*ib.AckTimeout(c.Timeout) + 10*p.roundTrip() + 3*(p.Faults.Cut+p.Faults.Still) + 20*time.Millisecond
}

// checkOrphan asks, when an end hears of its peer's crash, whether it was told by then, if it had asked for something.
func (e *endpoint) checkOrphan() {
	if !e.closed && !e.failed && !e.cut && e.ended < e.orphaned {
		e.app.w.failf("%s: its peer crashed long ago, and request #%d has not ended", e.name, e.ended)
	}
}

// bystanders are an application of a device that has come back, with queue pairs for the same peers. Nobody has told those
// yet, so nothing must arrive.
type bystanders struct {
	ctx    *nic.Context
	memory *arena
	reader *cq.Reader
}

func (n *node) bystand() {
	w := n.w
	ctx, err := n.dev.OpenContext(nic.ContextConfig{Owner: true, Async: func(t ib.EventType, _ uint32, _ uint64) {
		if !n.isPortEvent(t) {
			w.accuse("%s: event %v for who has no peer", n.name, t)
		}
	}})
	if err != nil {
		w.failf("%v", err)
	}
	b := &bystanders{ctx: ctx, memory: newArena(canary + areaSize(1, 0, 0))}
	area := b.memory.carve(n.dice, 1, 0, 0)
	pd := must(w, ctx.AllocPD)
	if err := b.memory.register(ctx, pd, area, ib.AccessLocalWrite|ib.AccessRemoteWrite|ib.AccessRemoteAtomic); err != nil {
		w.failf("%v", err)
	}
	block := make([]byte, abi.CQBlockSize(abi.CQCapacity(64)))
	queue := must(w, func() (*nic.CQ, error) { return ctx.CreateCQ(nic.CQConfig{Block: block, Entries: 64}) })
	b.reader = must(w, func() (*cq.Reader, error) { return cq.NewReader(block, queue.Capacity()) })
	for _, a := range n.apps {
		for _, e := range a.endpoints {
			if e.role != plain {
				continue
			}
			qp := must(w, func() (*nic.QP, error) {
				return ctx.CreateQP(nic.QPConfig{
					PD: pd, Type: ib.QPTypeRC, SendCQ: queue, RecvCQ: queue, Cap: ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxRecvSGE: 1},
					Block: func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil },
				})
			})
			if err := e.connectAs(ctx, qp); err != nil {
				w.failf("%v", err)
			}
		}
	}
	n.bystanders = b
}

// disperse looks whether the bystanders have been left alone, and takes them away.
func (n *node) disperse() {
	b := n.bystanders
	if b == nil {
		return
	}
	if b.reader.Peek(1) != 0 || b.memory.areas[0].differs(0, 8) >= 0 || b.memory.broken() >= 0 {
		n.w.failf("%s: something arrived for who has no peer", n.name)
	}
	if err := b.ctx.Close(); err != nil {
		n.w.failf("%v", err)
	}
}
