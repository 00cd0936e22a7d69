package sim

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// madden is the end of an application's reason: from now on it writes what it likes into the memory that it shares with the
// device, and posts what it likes. It harms itself and the connections that it has. Of those nothing is known any more but
// what no application can change: nothing outside of regions is touched, frames go where they should, and who is at the
// other end is told of every request and receive once. Everybody else must not notice.
func (a *application) madden() {
	w := a.w
	w.logf(a.name, "goes mad")
	w.census["mad applications"]++
	a.mad = true
	a.raves = a.dice.between(1, 40)
	for _, e := range a.endpoints {
		e.conn.broken, e.conn.tainted = true, true
		e.peer.app.shared.tainted = true
		e.tellOthers(w.now.Add(a.dice.upTo(5 * time.Millisecond)))
	}
	a.wake(w.now + 1)
}

// rave is the turn of a mad application.
func (a *application) rave() {
	if a.raves == 0 {
		return
	}
	a.raves--
	for range a.dice.between(1, 5) {
		a.raveOnce()
	}
	a.node.wake(a.w.now.Add(a.dice.upTo(a.w.plan.Lag)))
	a.wake(a.w.now.Add(a.dice.upTo(50 * time.Microsecond)))
}

func (a *application) raveOnce() {
	d := a.dice
	e, q := oneOf(d, a.endpoints...), oneOf(d, a.queues...)
	if e.role >= target {
		return // it has no rings
	}
	switch d.below(8) {
	case 0: // anything, anywhere in a ring
		a.smear(e.rings)
	case 1: // entries, doorbell and counts near sense
		a.smear(e.rings[abi.QPHeaderSize:])
	case 2:
		e.posted += d.between(0, 40)
		e.block.PublishSend(uint32(e.posted - d.below(3)))
	case 3:
		e.block.PublishRecv(uint32(e.ready + d.between(-3, 40)))
	case 4:
		a.smear(a.page)
		for _, p := range a.pools() {
			a.smear(p.rings)
		}
	case 5: // arm word, consumer index, entries
		a.smear(q.block)
	case 6:
		binary.LittleEndian.PutUint32(q.block[64*d.below(4):], uint32(d.below(200)))
	default: // a request of parts that make sense each
		w := abi.SendWQE{
			Opcode: uint8(oneOf(d, operations...).op), Flags: uint8(d.below(16)), Imm: d.r.Uint32(),
			RemoteAddr: e.peer.target.base + uint64(d.below(len(e.peer.target.mem))), RKey: uint32(e.peer.target.mr.RKey()),
			Operand: d.r.Uint64() >> d.below(64), Compare: d.r.Uint64(),
		}
		if len(e.windows) > 0 && d.chance(300) {
			w.Imm = e.windows[0].handle
		}
		list := []ib.SGE{{Addr: e.source.base, Length: uint32(d.below(2 * len(e.source.mem))), LKey: e.source.mr.LKey()}}
		e.block.PutSend(uint32(e.posted), &w, list)
		e.posted++
		e.block.PublishSend(uint32(e.posted))
	}
	a.bell.Ring(e.qp.Slot())
}

// smear writes some bytes somewhere.
func (a *application) smear(b []byte) {
	d := a.dice
	at := d.below(len(b))
	d.fill(b[at:min(len(b), at+d.between(1, 24))])
}

// isMadness reports whether a device may say so because of a mad application.
func (n *node) isMadness(text string) bool {
	for _, a := range n.apps {
		if a.mad && (strings.HasPrefix(text, "a context has failed") || strings.HasPrefix(text, "a shared receive queue has failed")) {
			return true
		}
	}
	return false
}

// gone says that an application does no work any more that could be judged.
func (a *application) gone() bool { return a.dead || a.mad }

// concernsQP reports whether an event tells of a queue pair.
func concernsQP(t ib.EventType) bool {
	return t >= ib.EventQPFatal && t <= ib.EventPathMigErr || t == ib.EventQPLastWQEReached
}
