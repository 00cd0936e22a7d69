package nic

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// served is a queue pair as its engine sees it: posted work comes out of the rings, copied once and judged, and
// completions go into the CQs. What this finds wrong with the application takes effect when the engine's call is over,
// so that an engine is never called from within itself.
type served QP

var _ transport.QueuePair = (*served)(nil)

// maxGather is the most bytes that one request may name (IBA 9.7.7: a message has at most 2^31).
const maxGather = 1 << 31

// knownOpcodes are the operations that there are. Whether an engine has them is its own affair.
const knownOpcodes = 1<<ib.WRRDMAWrite | 1<<ib.WRRDMAWriteWithImm | 1<<ib.WRSend | 1<<ib.WRSendWithImm | 1<<ib.WRRDMARead |
	1<<ib.WRAtomicCmpAndSwp | 1<<ib.WRAtomicFetchAdd | 1<<ib.WRLocalInv | 1<<ib.WRBindMW | 1<<ib.WRSendWithInv |
	1<<ib.WRFlush | 1<<ib.WRAtomicWrite

const (
	knownFlags = ib.SendFence | ib.SendSignaled | ib.SendSolicited | ib.SendInline
	// inlineOpcodes are those whose data can stand in the request: those that send any.
	inlineOpcodes = 1<<ib.WRRDMAWrite | 1<<ib.WRRDMAWriteWithImm | 1<<ib.WRSend | 1<<ib.WRSendWithImm | 1<<ib.WRSendWithInv |
		1<<ib.WRAtomicWrite
)

// FetchSend implements transport.QueuePair.
func (q *served) FetchSend(r *transport.Request) transport.Fetched {
	if q.sendTaken == q.sendSeen && !q.look(&q.sendSeen, q.block.SendPosted(), q.cap.MaxSendWR) {
		return transport.Empty
	}
	w := &q.shard.sendWQE
	list := r.SGE[:min(cap(r.SGE), int(q.cap.MaxSendSGE))]
	data := r.Inline.B[:min(cap(r.Inline.B), int(q.cap.MaxInlineData))]
	n := q.block.CopySend(q.sendTaken, w, list, data)
	r.Index = q.sendTaken
	if q.sendTaken++; q.sendTaken != q.sendSeen {
		q.block.ExpectSend(q.sendTaken)
	}

	r.Opcode, r.Flags, r.WRID = ib.WROpcode(w.Opcode), ib.SendFlags(w.Flags), w.WRID
	r.Imm, r.RKey, r.Remote = w.Imm, ib.RKey(w.RKey), w.RemoteAddr
	r.Swap, r.Compare, r.SRQN = w.Operand, w.Compare, w.SRQN
	r.SGE, r.Inline.B, r.IsInline = list[:0], data[:0], false
	r.Length = 0
	if q.typ == ib.QPTypeUD {
		r.Datagram = q.datagram(uint32(w.Operand))
		r.Datagram.QPN, r.Datagram.QKey = ib.QPN(w.Operand>>32)&ib.QPNMask, ib.QKey(w.Compare)
	}
	if q.sigAll {
		r.Flags |= ib.SendSignaled
	}
	switch {
	case w.Opcode >= 32 || knownOpcodes>>w.Opcode&1 == 0,
		ib.SendFlags(w.Flags)&^knownFlags != 0,
		n != int(w.Count):
		return transport.Malformed
	}
	if r.Flags&ib.SendInline != 0 {
		if inlineOpcodes>>w.Opcode&1 == 0 {
			return transport.Malformed
		}
		r.IsInline, r.Inline.B, r.Length = true, data[:n], uint64(n)
		return transport.Ready
	}
	r.SGE = list[:n]
	if r.Length = gathered(r.SGE); r.Length > maxGather {
		return transport.Malformed
	}
	switch r.Opcode {
	case ib.WRBindMW:
		r.Length = w.Operand
		r.Bind = transport.Bind{Window: w.Imm, LKey: ib.LKey(w.Compare >> 32), Access: ib.AccessFlags(uint32(w.Compare))}
	case ib.WRFlush:
		r.Length = w.Operand
		r.Flush = transport.Flush{Placement: ib.FlushPlacement(w.Compare), Level: ib.FlushLevel(w.Compare >> 32)}
		if uint64(r.Flush.Placement)|uint64(r.Flush.Level)<<32 != w.Compare {
			return transport.Malformed
		}
	}
	return transport.Ready
}

// FetchRecv implements transport.QueuePair.
func (q *served) FetchRecv(r *transport.Receive) transport.Fetched {
	if q.xrc != nil {
		return q.takeSelected(r)
	}
	if q.srq != nil {
		// In the error state nothing is taken any more: what is posted is for the other queue pairs (IBA 10.2.9).
		if q.state == ib.StateErr {
			return transport.Empty
		}
		return q.srq.take(r)
	}
	if q.recvTaken == q.recvSeen && !q.look(&q.recvSeen, q.block.RecvPosted(), q.cap.MaxRecvWR) {
		return transport.Empty
	}
	w := &q.shard.recvWQE
	list := r.SGE[:min(cap(r.SGE), int(q.cap.MaxRecvSGE))]
	n := q.block.CopyRecv(q.recvTaken, w, list)
	r.Index = q.recvTaken
	if q.recvTaken++; q.recvTaken != q.recvSeen {
		q.block.ExpectRecv(q.recvTaken)
	}
	q.block.SetRecvTaken(q.recvTaken)

	r.WRID, r.SGE, r.Length = w.WRID, list[:0], 0
	if uint64(n) != uint64(w.Count) {
		return transport.Malformed
	}
	r.SGE = list[:n]
	if r.Length = gathered(r.SGE); r.Length > maxGather {
		return transport.Malformed
	}
	return transport.Ready
}

// look judges the application's claim of what it has posted, when everything was taken that it had claimed before, and reports
// whether there is something to take. The claim's cache line is the application's: it is looked at once for all that it
// covers.
func (q *served) look(seen *uint32, claim, depth uint32) bool {
	n := claim - *seen
	if n == 0 || q.lied {
		return false
	}
	if n > depth {
		// More than the ring holds: nothing in the rings can be believed.
		q.lied, q.doomed = true, true
		q.sendSeen, q.recvSeen = q.sendTaken, q.recvTaken
		return false
	}
	*seen = claim
	return true
}

// gathered returns the bytes that a list names. There are few entries, so the sum does not wrap.
func gathered(list []ib.SGE) (n uint64) {
	for i := range list {
		n += uint64(list[i].Length)
	}
	return n
}

// CompleteSend implements transport.QueuePair.
func (q *served) CompleteSend(r *transport.Request, c *transport.Completion) {
	q.block.SetSendDone(r.Index + 1)
	if r.Flags&ib.SendSignaled != 0 || c.Status != ib.WCSuccess {
		q.complete(q.sendCQ, abi.QueueSend, r.WRID, r.Index, c)
	}
}

// CompleteRecv implements transport.QueuePair.
func (q *served) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if q.xrc != nil {
		q.completeSelected(r, c)
		return
	}
	q.shard.told = (*QP)(q)
	if q.path != nil && !q.local {
		q.shard.delivered++
	}
	queue := uint8(abi.QueueRecv)
	if q.srq != nil {
		queue = abi.QueueSharedRecv
	}
	q.complete(q.recvCQ, queue, r.WRID, r.Index, c)
}

// complete makes an entry in a CQ. What cannot be delivered must not be acknowledged: a queue pair whose CQ is dead fails
// as soon as its engine's call is over, before anything leaves, whoever noticed first that the CQ is dead.
func (q *served) complete(to *CQ, queue uint8, id uint64, index uint32, c *transport.Completion) {
	s := q.shard
	e := &s.cqe
	*e = abi.CQE{}
	e.WRID, e.QPN, e.Status, e.VendorErr = id, uint32(q.qpn), uint8(c.Status), uint32(c.VendorErr)
	e.Queue, e.QPSlot, e.WQEIndex = queue, q.slot, index
	// Of an error nothing else is valid (ibv_poll_cq); zeros keep anybody from relying on it.
	if c.Status == ib.WCSuccess {
		e.Opcode, e.Flags, e.ByteLen, e.Imm = uint8(c.Opcode), uint16(c.Flags), c.ByteLen, c.Imm
		e.SrcQP, e.SL, e.NetworkType = uint32(c.SrcQP), c.SL, uint8(c.Network)
		e.Timestamp = uint64(s.stamp)
	}
	if !s.postCQE(to, e, c.Solicited) {
		s.noteOverrun(to)
		if q.state != ib.StateErr {
			q.doomed = true
		}
	}
	if to.queue.Deadline() != never {
		s.noteHeld(to)
	}
}

// SetState implements transport.QueuePair.
func (q *served) SetState(state ib.QPState) {
	if state == ib.StateSQD {
		q.drained = true
		return
	}
	q.state = state
	q.block.SetState(state)
}

// Event implements transport.QueuePair.
func (q *served) Event(e ib.EventType) { q.ctx.event(e, q.handle, q.cookie) }
