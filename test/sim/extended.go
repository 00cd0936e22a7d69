package sim

import (
	"errors"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// Some connections are extended ones (XRC, IBA A14): their first end is an initiator, which sends all that the plan has, and
// their second end a target. What is sent names a shared receive queue of the target's device. Often another application of
// that device has the target open, too, and a queue of its own that messages go to: it is the target's sibling, an endpoint
// that has no memory that peers touch. Everything else that is asked of connections is asked of these.

// role is what an end of a connection is.
type role uint8

const (
	plain role = iota
	initiator
	target
	sibling // of a target
)

// extend makes extended connections of some. The dice are its own: the others are as they were.
func (p *Plan) extend() {
	d := newDice(p.Seed, streamExtended)
	if p.Overrun > 0 || !d.chance(400) {
		return // receives whose completions are lost would be missing to others
	}
	for i := range p.Connections {
		c := &p.Connections[i]
		if !d.chance(400) {
			continue
		}
		c.Extended, c.Shared = true, d.chance(600)
		for j := range c.Side {
			c.Side[j].Spare, c.Side[j].Windows = 0, 0
		}
		c.Side[1].Script = nil
	}
}

// roleOf returns what an end of a connection is.
func (c *ConnectionPlan) roleOf(side int) role {
	switch {
	case !c.Extended:
		return plain
	case side == 0:
		return initiator
	}
	return target
}

// domain is what applications of a device find their XRC domain by.
var domain = nic.XRCDConfig{Name: nic.XRCDName{Name: "sim"}, Flags: ib.XRCDCreate}

// joinDomain gives an application an XRC domain and a shared receive queue in it.
func (a *application) joinDomain(bytes int) *pool {
	if a.extended == nil {
		d := a.dice
		a.xrcd = must(a.w, func() (*nic.XRCD, error) { return a.ctx.OpenXRCD(domain) })
		a.extended = &pool{
			app: a, depth: oneOf(d, 1, 2, 8, 16), sges: oneOf(d, 1, 2, 8), open: make(map[uint32]*receive),
			xrcd: a.xrcd, queue: oneOf(d, a.queues...),
		}
		a.extended.queue.depth += a.extended.depth
	}
	a.extended.bytes = max(a.extended.bytes, bytes)
	return a.extended
}

// pools returns the shared receive queues of an application.
func (a *application) pools() (list []*pool) {
	for _, p := range []*pool{a.pool, a.extended} {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// joinTarget makes the sibling of a target, in the other application of its device.
func (e *endpoint) joinTarget() {
	a := e.app.node.application(1 - e.conn.plan.App[1])
	s := &endpoint{
		app: a, conn: e.conn, peer: e.peer, side: e.side, role: sibling, name: e.name + "'", learns: never,
		sendQueue: a.queues[0], arena: newArena(canary),
	}
	s.pool = a.joinDomain(e.conn.plan.MaxBytes)
	s.recvQueue = s.pool.queue
	e.sibling, s.sibling = s, e
	a.endpoints = append(a.endpoints, s)
}

// createTarget makes a target, and opens it for its sibling.
func (e *endpoint) createTarget() {
	handle := uint32(e.conn.index)
	e.qp = must(e.app.w, func() (*nic.QP, error) {
		return e.app.ctx.CreateTarget(nic.TargetConfig{XRCD: e.app.xrcd, Handle: handle})
	})
	e.fakeRings()
	if s := e.sibling; s != nil {
		s.qp = must(e.app.w, func() (*nic.QP, error) {
			return s.app.ctx.OpenTarget(nic.TargetConfig{XRCD: s.app.xrcd, Handle: handle}, e.qp.QPN())
		})
		s.fakeRings()
	}
}

// fakeRings are in the place of rings, which a target does not have.
func (e *endpoint) fakeRings() {
	l := abi.LayoutOf(abi.RoundQPCap(ib.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1}))
	e.rings = make([]byte, l.Size())
	e.block, _ = abi.NewQPBlock(e.rings, l)
	e.block.Reset()
}

// state is that of the queue pair.
func (e *endpoint) state() ib.QPState {
	if e.role < target {
		return e.block.State()
	}
	a, _, _ := e.app.ctx.QueryQP(e.qp)
	return a.State
}

// address names the shared receive queue of an extended request: the sibling's, if only receives are concerned, sometimes.
func (e *endpoint) address(r *request, w *abi.SendWQE) (to *endpoint) {
	to = e.peer
	if e.role != initiator {
		return to
	}
	if s := to.sibling; s != nil && r.isSend() && !s.app.gone() && e.app.dice.chance(500) {
		to = s
	}
	if to != e.peer {
		e.app.w.census["messages for a target's sibling"]++
	}
	w.SRQN = to.pool.srq.Number()
	return to
}

// tellOthers has everybody else who has to do with the connection hear at t that e is gone.
func (e *endpoint) tellOthers(t clock.Time) {
	for _, x := range []*endpoint{e.peer, e.peer.sibling, e.sibling} {
		if x != nil && !x.app.gone() {
			x.learns = t
			x.app.wake(e.app.w.now + 1)
		}
	}
}

// isInHand reports whether an error tells that a shared receive queue cannot go, since a target that others have open still
// is in the middle of a message for it.
func (p *pool) isInHand(err error) bool {
	if p.xrcd == nil || !errors.Is(err, syscall.EBUSY) {
		return false
	}
	for _, e := range p.app.endpoints {
		if s := e.sibling; s != nil && !s.app.dead {
			return true
		}
	}
	return false
}

// heardAll reports whether everything that was sent to an end of an extended connection has been received.
func (e *endpoint) heardAll() bool {
	return e.app.gone() || e.taken == len(e.incoming)
}

// isOfExtended reports whether an event concerns a target that an application has open together with others: they all hear
// of everything.
func (a *application) isOfExtended(t ib.EventType, handle uint32) bool {
	if !concernsQP(t) || int64(handle) >= int64(len(a.w.conns)) {
		return false
	}
	c := a.w.conns[handle]
	s := c.ends[1].sibling
	return s != nil && (s.app == a || c.ends[1].app == a && c.broken)
}

// service is the transport service of an end, as opcodes have it.
func (e *endpoint) service() (group uint8) {
	if e.role != plain {
		return extendedGroup
	}
	return 0
}

const extendedGroup = 0xa0
