package sim

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// offence is a last request that asks for what it must not have. It has to end with the right status, at the peer with the
// right event or receive, and it must not change a byte.
type offence struct {
	by     *endpoint
	index  int
	status ib.WCStatus  // of the request
	event  ib.EventType // at the peer; noEvent if it hears of nothing, or by a receive
	recv   ib.WCStatus  // of the peer's receive; WCSuccess if that is not concerned

	ended, heard, reported bool
}

const noEvent = ^ib.EventType(0)

// offend posts an offence on a connection that is at rest.
func (c *connection) offend() {
	e := oneOf(c.ends[0].app.dice, c.ends[:]...)
	if e.role == target {
		e = e.peer // only initiators ask for anything
	}
	if c.broken || c.offence != nil {
		return
	}
	d, t := e.app.dice, e.peer.target
	o := &offence{by: e, index: e.posted, status: ib.WCRemAccessErr, event: ib.EventQPAccessErr}
	c.offence = o
	r := &e.script[e.posted]
	*r = request{operation: operationOf(ib.WRRDMAWrite), length: d.between(2, 100), signaled: d.chance(500), index: uint32(e.posted)}
	r.length = min(r.length, c.plan.MaxBytes)
	w := abi.SendWQE{WRID: e.id(abi.QueueSend, e.posted), RemoteAddr: t.base, RKey: uint32(t.mr.RKey())}
	lkey := e.source.mr.LKey()
	switch d.below(7) {
	case 0: // a key that nobody has; the low byte is the variant of windows
		w.RKey ^= 1 << d.below(32)
		if f := e.peer.former; f != 0 && d.chance(500) {
			w.RKey = uint32(f) // or that it had once
		}
	case 1: // over the end, which may be that of the address space
		w.RemoteAddr += uint64(len(t.mem) - 1)
	case 2: // before the beginning
		w.RemoteAddr--
	case 3: // memory that peers may not touch
		r.operation = operationOf(oneOf(d, ib.WRRDMARead, ib.WRRDMAWrite, ib.WRAtomicFetchAdd))
		if r.isAtomic() {
			r.length = 8
		}
		w.RemoteAddr, w.RKey = e.peer.sink.base, uint32(e.peer.sink.mr.RKey())
	case 4: // atomics want 8 bytes in one place
		r.operation, r.length = operationOf(ib.WRAtomicFetchAdd), 8
		w.RemoteAddr += uint64(d.between(1, 7))
		o.status, o.event = ib.WCRemInvReqErr, ib.EventQPReqErr
	case 5: // a key of our own that is none
		lkey ^= 1 << d.below(32)
		o.status, o.event = ib.WCLocProtErr, noEvent
	default: // more than the receive has room for
		if e.peer.ready == e.peer.taken {
			w.RKey ^= 0x100
			break
		}
		r.operation, r.length = operationOf(ib.WRSend), e.peer.receives[e.peer.taken].length+1
		o.status, o.event, o.recv = ib.WCRemInvReqErr, noEvent, ib.WCLocLenErr
	}
	r.local = e.source.claim(d, r)
	r.list = r.local.list(d, r.length, int(e.side.Cap.MaxSendSGE))
	for i := range r.list {
		if r.list[i].Length > 0 {
			r.list[i].LKey = lkey
		}
	}
	e.address(r, &w)
	if e.role == initiator && o.status == ib.WCRemAccessErr && d.chance(200) {
		w.SRQN ^= 1 << d.between(8, 23) // a shared receive queue that is none
	}
	w.Opcode, w.Flags = uint8(r.op), uint8(r.flags())
	e.block.PutSend(r.index, &w, r.list)
	e.posted++
	e.block.PublishSend(uint32(e.posted))
	e.app.bell.Ring(e.qp.Slot())
	e.app.node.wake(e.app.w.now + 1)
	e.app.wake(e.app.w.now + 1)
	e.peer.app.wake(e.app.w.now + 1)
	e.app.w.logf(e.name, "posts an offence: %v, to end as %v", r, o.status)
}

// isOffence takes the completion of the offence, of the request or of the peer's receive, and ends what is left of the
// connection. The NAK is still on its way when the peer's application hears of it, so that one closes its own end only.
func (e *endpoint) isOffence(c *abi.CQE) bool {
	o := e.conn.offence
	switch {
	case o == nil:
		return false
	case e == o.by && c.Queue == abi.QueueSend && int(c.WQEIndex) == o.index && ib.WCStatus(c.Status) == o.status:
		o.ended = true
		e.conn.close()
		return true
	case e == o.by.peer && c.Queue == abi.QueueRecv && o.recv != ib.WCSuccess && !o.reported && ib.WCStatus(c.Status) == o.recv:
		o.reported = true
	case c.Queue != abi.QueueSend && ib.WCStatus(c.Status) == ib.WCWRFlushErr:
		// Flushed before the application has heard why.
	default:
		return false
	}
	e.close()
	return true
}

// isOffence reports whether an event tells of the offence on a connection.
func (a *application) isOffence(t ib.EventType, handle uint32) bool {
	if int64(handle) >= int64(len(a.w.conns)) {
		return false
	}
	o := a.w.conns[handle].offence
	if o == nil || o.by.peer.app != a || o.event != t || o.heard {
		return false
	}
	o.heard = true
	return true
}

// checkOffence asks whether everybody was told.
func (c *connection) checkOffence() {
	o := c.offence
	if o == nil {
		return
	}
	if w := o.by.app.w; !o.ended || o.heard != (o.event != noEvent) || o.reported != (o.recv != ib.WCSuccess) {
		w.failf("%s: an offence (%v) that was to end as %v, with event %v and receive %v at the peer: ended %v, heard %v, reported %v",
			o.by.name, &o.by.script[o.index], o.status, o.event, o.recv, o.ended, o.heard, o.reported)
	}
}
