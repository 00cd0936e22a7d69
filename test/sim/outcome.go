package sim

import (
	"encoding/binary"
	"fmt"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// sent judges the completion of a send request.
func (e *endpoint) sent(c *abi.CQE) {
	w := e.app.w
	status := ib.WCStatus(c.Status)
	i := e.ended + int(c.WQEIndex-uint32(e.ended))
	if w.logs != nil {
		w.logf(e.name, "request #%d ended: %v", c.WQEIndex, status)
	}
	if i < e.ended || i >= e.posted {
		w.failf("%s: completion of request #%d; %d are posted and %d have ended", e.name, c.WQEIndex, e.posted, e.ended)
	}
	if want := e.id(abi.QueueSend, i); c.WRID != want {
		w.failf("%s: completion of request #%d has wr_id %#x, not %#x", e.name, i, c.WRID, want)
	}
	if done := e.block.SendDone(); done < c.WQEIndex+1 || done > uint32(e.posted) {
		w.failf("%s: request #%d completed, %d are said to be done with", e.name, i, done)
	}
	// Those before it without a completion of their own have ended well.
	for e.ended < i {
		r := &e.script[e.ended]
		if r.signaled || e.side.SigAll || e.flushes {
			w.failf("%s: %v got no completion, #%d did", e.name, r, i)
		}
		e.succeed(r)
	}
	r := &e.script[i]
	if status == ib.WCSuccess && e.conn.tainted {
		e.succeed(r)
		return
	}
	if status != ib.WCSuccess {
		if !e.isOffence(c) {
			e.fail(fmt.Sprint(r), status)
		}
		e.failed, e.flushes = true, true
		e.ended++
		return
	}
	if !r.signaled && !e.side.SigAll {
		w.failf("%s: %v has a completion that nobody asked for", e.name, r)
	}
	if e.flushes {
		w.failf("%s: %v succeeded after an error", e.name, r)
	}
	if ib.WCOpcode(c.Opcode) != r.ends || c.ByteLen != uint32(r.length) {
		w.failf("%s: %v completed as %v of %d bytes", e.name, r, ib.WCOpcode(c.Opcode), c.ByteLen)
	}
	e.succeed(r)
}

// succeed is the good end of the oldest request: what it had to do is done, to the byte.
func (e *endpoint) succeed(r *request) {
	w := e.app.w
	if e.conn.tainted {
		r.local.free(r)
		r.remote.free(r)
		e.ended++
		w.done++
		return
	}
	if r.isShared() {
		r.returned = w.moment()
	}
	if r.isAtomic() || r.isShared() && r.op == ib.WRRDMARead {
		var b [8]byte
		n := 0
		r.local.scatter(r.list, b[:], func(at int, p []byte) {
			n += copy(b[n:], r.local.area.mem[r.local.off+at:][:len(p)])
		})
		r.got = binary.NativeEndian.Uint64(b[:])
		if r.isShared() {
			r.local.scatter(r.list, b[:], r.local.expect)
		} else if r.got != r.want {
			w.failf("%s: %v on word %d returned %#x, it held %#x", e.name, r, r.word, r.got, r.want)
		}
	}
	if r.local != nil && r.local.owner == r {
		if at := r.local.wrong(); at >= 0 {
			w.failf("%s: %v has ended, and byte %d of its own memory is wrong", e.name, r, at)
		}
	}
	if r.remote != nil && r.remote.owner == r {
		if at := r.remote.wrong(); at >= 0 {
			w.failf("%s: %v at +%d has ended, and byte %d of the peer's memory is wrong", e.name, r, r.at, at)
		}
	}
	r.local.free(r)
	r.remote.free(r)
	r.settle()
	w.census[r.op.String()]++
	if e.role == initiator {
		w.census["XRC "+r.op.String()]++
	}
	e.ended++
	w.done++
}

// received judges the completion of a receive and reports whether its sender asked for a solicited event.
func (e *endpoint) received(c *abi.CQE) (solicited bool) {
	w := e.app.w
	status := ib.WCStatus(c.Status)
	if w.logs != nil {
		w.logf(e.name, "receive #%d ended: %v, %d B", c.WQEIndex, status, c.ByteLen)
	}
	var v *receive
	if e.pool != nil {
		v = e.pool.take(e, c)
	} else {
		v = e.ownReceive(c)
	}
	if status != ib.WCSuccess {
		if !e.isOffence(c) {
			e.fail(fmt.Sprintf("receive #%d", e.taken), status)
		}
		e.failed = true
		e.taken++
		if e.pool != nil {
			if e.lost++; e.lost > 1 && !e.conn.tainted {
				w.failf("%s: it took shared receives in the error state", e.name)
			}
			v.giveUp()
		}
		return false
	}
	if e.conn.tainted {
		e.taken++
		v.giveUp()
		q := e.recvQueue
		q.unsure = true // who knows what it was sent with
		return false
	}
	// An error of the send queue may have been seen before: the order between queues is nobody's promise.
	if e.taken >= len(e.incoming) {
		w.failf("%s: receive #%d completed, and the peer has posted %d messages", e.name, e.taken, len(e.incoming))
	}
	r := e.incoming[e.taken]
	e.taken++
	e.checkMessage(v, r, c)
	v.slot.free(v)
	return r.solicited
}

// ownReceive finds the receive that has completed: the oldest.
func (e *endpoint) ownReceive(c *abi.CQE) *receive {
	w := e.app.w
	if c.WQEIndex != uint32(e.taken) || e.taken >= e.ready {
		w.failf("%s: completion of receive #%d; %d are posted and %d have ended", e.name, c.WQEIndex, e.ready, e.taken)
	}
	if want := e.id(abi.QueueRecv, e.taken); c.WRID != want {
		w.failf("%s: completion of receive #%d has wr_id %#x, not %#x", e.name, e.taken, c.WRID, want)
	}
	if n := e.block.RecvTaken(); n < c.WQEIndex+1 || n > uint32(e.ready) {
		w.failf("%s: receive #%d completed, %d are said to be taken", e.name, e.taken, n)
	}
	return &e.receives[e.taken]
}

// checkMessage compares what was received with what was sent.
func (e *endpoint) checkMessage(v *receive, r *request, c *abi.CQE) {
	w := e.app.w
	op, flags, imm := ib.WCRecv, ib.WCFlags(0), uint32(0)
	if r.isWrite() {
		op = ib.WCRecvRDMAWithImm
	}
	if r.hasImm() {
		flags, imm = ib.WCWithImm, r.imm
	}
	if v := r.ended; v != nil {
		flags, imm = ib.WCWithInv, uint32(v.key)
		v.state = free
	}
	if ib.WCOpcode(c.Opcode) != op || c.ByteLen != uint32(r.length) || ib.WCFlags(c.Flags) != flags || c.Imm != imm {
		w.failf("%s: %v was received as %v, %d bytes, flags %v, immediate %#x instead of %#x",
			e.name, r, ib.WCOpcode(c.Opcode), c.ByteLen, ib.WCFlags(c.Flags), c.Imm, imm)
	}
	if r.isSend() {
		v.slot.scatter(v.list, r.data, v.slot.expect)
	} else if r.remote.owner == r {
		// The immediate says that the bytes before it are there.
		if at := r.remote.wrong(); at >= 0 {
			w.failf("%s: %v was announced, and byte %d of it is wrong", e.name, r, at-r.at)
		}
	}
	if at := v.slot.wrong(); at >= 0 {
		w.failf("%s: %v was received into %d bytes, and byte %d of the memory is wrong", e.name, r, v.length, at)
	}
}

// fail judges the bad end of a request or receive: the first of an end is the reason, what follows it is flushed.
func (e *endpoint) fail(what string, status ib.WCStatus) {
	w := e.app.w
	first := !e.failed && !e.closed
	e.failed = true
	if e.conn.tainted {
		e.close()
		return
	}
	switch {
	case !first || e.conn.broken:
		// When the connection broke here, it is another queue of this end whose flushes are seen first, perhaps.
		if e.isFaulty(status) || status == ib.WCWRFlushErr || e.conn.broken && isExhausted(status) || e.isForsaken(status) {
			if !e.closed {
				e.breaks()
			}
			return
		}
	case e.isFaulty(status):
		e.breaks()
		return
	case !w.plan.Fragile:
	case isExhausted(status):
		e.checkExhaustion(what, status)
		e.breaks()
		return
	case status == ib.WCWRFlushErr && e.state() == ib.StateErr:
		// A receive that was flushed, seen before the send that failed.
		e.breaks()
		return
	}
	w.failf("%s: %s ended with %v", e.name, what, status)
}

// checkExhaustion asks whether there was a reason to give up: as many losses as retries, and one more. A network that
// reorders needs none, for what comes too late counts as lost; nor does a timer that is shorter than the way.
func (e *endpoint) checkExhaustion(what string, status ib.WCStatus) {
	n, p := &e.app.w.plan.Network, e.conn.plan
	honest := e.app.w.plan.Faults.none() && n.Mark == 0 && n.Jitter == 0 && (n.Reorder == 0 || n.Late == 0) && ib.AckTimeout(p.Timeout) >= e.app.w.plan.roundTrip()
	if status == ib.WCRetryExcErr && honest && e.conn.losses <= int(p.Retries) {
		e.app.w.failf("%s: %s: %v after %d retries, and the network lost %d packets", e.name, what, status, p.Retries, e.conn.losses)
	}
}

// isForsaken reports whether a status tells of an application that is gone, while another one has its target open still.
func (e *endpoint) isForsaken(s ib.WCStatus) bool {
	return e.role == initiator && s == ib.WCRemAccessErr && (e.peer.app.gone() || e.peer.sibling != nil && e.peer.sibling.app.gone())
}

func isExhausted(s ib.WCStatus) bool { return s == ib.WCRetryExcErr || s == ib.WCRNRRetryExcErr }

// breaks is what applications do about a connection that failed: both ends are taken to the error state, and what is
// outstanding has to be flushed.
func (e *endpoint) breaks() {
	w := e.app.w
	if !e.conn.broken {
		e.conn.broken = true
		w.census["connections that broke"]++
		w.logf(e.name, "connection is broken")
	}
	e.conn.close()
}

func (c *connection) close() {
	c.ends[0].close()
	c.ends[1].close()
}

// close takes an end to the error state.
func (e *endpoint) close() {
	if e.closed || e.app.gone() {
		return
	}
	if e.role == sibling && e.sibling.sleeps != 0 {
		e.closed = true // there is nothing to be flushed
		return
	}
	if e.sleeps != 0 {
		e.sleeps = e.app.w.now
		e.wakeUp() // there is no way from RESET
	}
	e.closed = true
	if e.sibling != nil {
		e.sibling.closed = true
		e.sibling.app.wake(e.app.w.now + 1)
	}
	e.app.w.logf(e.name, "to the error state")
	e.modify(&ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	e.app.wake(e.app.w.now + 1)
}
