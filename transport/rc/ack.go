package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// answer is something to be said to the peer about requests that were executed.
type answer struct {
	kind answerKind
	// begun says that the first response of a READ has left.
	begun bool
	slot  int    // of the resource, if not an ACK
	psn   ib.PSN // of the next packet of the answer
	msn   uint32
	va    uint64 // of a READ: what is still to be read
	left  uint64
}

type answerKind uint8

const (
	acknowledging answerKind = iota // ACKNOWLEDGE
	returning                       // READ responses; of a FLUSH one without data
	replying                        // ATOMIC ACKNOWLEDGE
)

// answers are in the order of their PSNs, in which they leave. There is at most one for each resource, and one ACK before,
// between and behind those, so that grow can say how many there will ever be.
type answers struct {
	queue []answer
	first int
}

// grow makes room for the answers of n resources.
func (q *answers) grow(n int) {
	queue := make([]answer, len(q.waiting()), 2*n+1)
	copy(queue, q.waiting())
	q.queue, q.first = queue, 0
}

func (q *answers) waiting() []answer { return q.queue[q.first:] }

func (q *answers) empty() bool { return q.first == len(q.queue) }

func (q *answers) clear() { q.queue, q.first = q.queue[:0], 0 }

// acknowledge says that everything up to psn was executed. One ACK speaks for all requests since the last READ or atomic,
// but never past one of those: its response is its acknowledgement (IBA 9.7.5.1.2).
func (q *answers) acknowledge(psn ib.PSN, msn uint32) {
	if !q.extend(psn, msn) {
		q.insertAt(len(q.queue), answer{kind: acknowledging, psn: psn, msn: msn})
	}
}

// extend moves the ACK that waits last on to psn, if there is one.
func (q *answers) extend(psn ib.PSN, msn uint32) bool {
	if q.empty() {
		return false
	}
	last := &q.queue[len(q.queue)-1]
	if last.kind != acknowledging {
		return false
	}
	last.psn, last.msn = psn, msn
	return true
}

// insert puts a in its place by PSN.
func (q *answers) insert(a answer) {
	i := len(q.queue)
	for i > q.first && q.queue[i-1].psn.After(a.psn) {
		i--
	}
	q.insertAt(i, a)
}

func (q *answers) insertAt(i int, a answer) {
	if len(q.queue) == cap(q.queue) {
		n := copy(q.queue[:cap(q.queue)], q.waiting())
		i -= q.first
		q.queue, q.first = q.queue[:n], 0
	}
	q.queue = append(q.queue, a)
	copy(q.queue[i+1:], q.queue[i:])
	q.queue[i] = a
}

func (q *answers) pop() {
	q.first++
	if q.empty() {
		q.clear()
	}
}

func (q *answers) index(slot int) int {
	for i := q.first; i < len(q.queue); i++ {
		if a := &q.queue[i]; a.kind != acknowledging && a.slot == slot {
			return i
		}
	}
	return -1
}

func (q *answers) has(slot int) bool { return q.index(slot) >= 0 }

// remove cancels the answer of a resource if it waits, or what is left of it. Of two ACKs that become neighbours the
// later one says everything.
func (q *answers) remove(slot int) {
	i := q.index(slot)
	if i < 0 {
		return
	}
	n := 1
	if i > q.first && i+1 < len(q.queue) &&
		q.queue[i-1].kind == acknowledging && q.queue[i+1].kind == acknowledging {
		i, n = i-1, 2
	}
	q.queue = q.queue[:i+copy(q.queue[i:], q.queue[i+n:])]
	if q.empty() {
		q.clear()
	}
}

// refusal is the NAK to be sent behind all answers; there is one at most.
type refusal struct {
	syndrome wire.Syndrome
	pending  bool
	fatal    bool // the queue pair is in error because of it
	psn      ib.PSN
	msn      uint32
	beyond   ib.PSN // of a sequence NAK: the newest packet that was dropped
}

// acknowledge queues the answer to a request that was executed.
func (r *responder) acknowledge(p *wire.Packet) {
	newest := r.epsn.Sub(1)
	switch op := operation(p.Opcode); {
	case op.IsRead():
		h := wire.FindRETH(p.Header)
		r.answers.insert(answer{
			kind: returning, slot: r.resources.slot(1), psn: p.PSN(), msn: r.msn, va: h.VA(), left: uint64(h.Length()),
		})
	case op.IsAtomic():
		r.answers.insert(answer{kind: replying, slot: r.resources.slot(1), psn: newest, msn: r.msn})
	case op == wire.RCFlush:
		r.answers.insert(answer{kind: returning, slot: r.resources.slot(1), psn: newest, msn: r.msn})
	case p.BTH().AckReq(), op == wire.RCAtomicWrite:
		r.answers.acknowledge(newest, r.msn)
	default:
		// Nobody asked, but an ACK that leaves anyhow may say it.
		r.answers.extend(newest, r.msn)
	}
}

// pending reports whether something is to be sent.
func (r *responder) pending() bool { return !r.answers.empty() || r.nak.pending }

// reads reports whether the next packet is a READ response, which keeps to the pace as requests do.
func (r *responder) reads() bool {
	return !r.answers.empty() && r.answers.queue[r.answers.first].kind == returning
}

// answer sends the next packet, for which the burst has room, or run of them, and returns the bytes. It may turn out that
// there is nothing to send.
func (r *responder) answer(now clock.Time, out *wire.Burst, budget int) int {
	if r.answers.empty() {
		return r.sendNak(now, out)
	}
	a := &r.answers.queue[r.answers.first]
	switch a.kind {
	case returning:
		return r.sendRead(now, out, a, budget)
	case replying:
		return r.sendAtomic(now, out, a)
	}
	r.e.cfg.Counters.AcksSent++
	bytes := r.sendAck(now, out, a.psn, wire.AckSyndrome, a.msn)
	r.answers.pop()
	return bytes
}

// sendNak sends the NAK that waited behind the answers. All NAKs are ACKNOWLEDGE packets, whatever they refuse
// (IBA 9.7.5.2).
func (r *responder) sendNak(now clock.Time, out *wire.Burst) int {
	n := r.nak
	// A NAK that has left needs no memory; the latch alone remembers it.
	r.nak = refusal{}
	r.e.cfg.Counters.NaksSent++
	return r.sendAck(now, out, n.psn, n.syndrome, n.msn)
}

func (r *responder) sendAck(now clock.Time, out *wire.Burst, psn ib.PSN, s wire.Syndrome, msn uint32) int {
	return r.sent(now, r.frame(out, wire.RCAcknowledge, psn, s, msn))
}

// frame starts a response. The credits of an ACK are always "none given": receives are not promised to anyone, and a
// requester that is not limited may send at once (IBA 9.7.7.2).
func (r *responder) frame(out *wire.Burst, op wire.Opcode, psn ib.PSN, s wire.Syndrome, msn uint32) *wire.Frame {
	f := out.Next()
	h := r.e.header(f, op, psn)
	if aeth := wire.FindAETH(h); aeth != nil {
		aeth.SetSyndrome(s)
		aeth.SetMSN(msn)
	}
	f.Cookie = responseCookie | uint64(psn)
	return f
}

// sendAtomic sends the value that was there before.
func (r *responder) sendAtomic(now clock.Time, out *wire.Burst, a *answer) int {
	x := &r.resources.ring[a.slot]
	f := r.frame(out, wire.RCAtomicAcknowledge, a.psn, wire.AckSyndrome, a.msn)
	wire.FindAtomicAckETH(f.Header()).SetOriginal(x.original)
	x.answered = true
	r.answers.pop()
	return r.sent(now, f)
}

// sendRead sends the next response of a READ, or run of responses. Its memory is named by reference and not stable, since its
// owner may write it at any time; the key is looked up each time, since it may be gone.
func (r *responder) sendRead(now clock.Time, out *wire.Burst, a *answer, budget int) int {
	x := &r.resources.ring[a.slot]
	packets := r.runOf(a, budget)
	n := min(a.left, uint64(packets)*uint64(r.e.mtu))
	var mem dma.Span
	if n > 0 {
		var v dma.Verdict
		mem, v = r.e.cfg.Table.Remote(x.domain, r.e.cfg.QPN, x.key, a.va, n, ib.AccessRemoteRead)
		if v != dma.OK && packets > 1 {
			// Its first packets may be good.
			packets, n = 1, uint64(r.e.mtu)
			mem, v = r.e.cfg.Table.Remote(x.domain, r.e.cfg.QPN, x.key, a.va, n, ib.AccessRemoteRead)
		}
		if v != dma.OK {
			return r.lostRead(now, out, a)
		}
	}
	f := r.frame(out, readResponse(a.begun, n == a.left), a.psn, wire.AckSyndrome, a.msn)
	if n > 0 {
		f.Add(mem.Mem, mem.Off, int(n))
	}
	f.SetRun(packets)
	r.e.pace.Sent(now, f.Len())
	a.begun = true
	a.psn = a.psn.Add(uint32(packets))
	a.va += n
	a.left -= n
	if a.left == 0 {
		x.answered = true
		r.answers.pop()
	}
	return r.sent(now, f)
}

// readResponse names the place of a response in its answer. A READ that was resumed is a new request with an answer of
// its own, FIRST to LAST.
func readResponse(begun, ends bool) wire.Opcode {
	switch {
	case begun && ends:
		return wire.RCReadResponseLast
	case begun:
		return wire.RCReadResponseMiddle
	case ends:
		return wire.RCReadResponseOnly
	}
	return wire.RCReadResponseFirst
}

// lostRead deals with a READ whose region was deregistered since the request was judged. For a READ that nobody has seen
// the end of, that is a remote access error. For one that was answered before, it usually is nothing: the peer has its data,
// both sides have moved on, and a copy of the request came late. The NAK then goes out for a peer who really waits, and is
// stale for any other; the connection lives.
func (r *responder) lostRead(now clock.Time, out *wire.Burst, a *answer) int {
	psn, msn := a.psn, a.msn
	if !r.resources.ring[a.slot].answered {
		r.refuseRead(now, psn)
		return 0
	}
	r.answers.pop()
	r.e.cfg.Counters.RespRemoteAccessErrors++
	r.e.cfg.Counters.NaksSent++
	return r.sendAck(now, out, psn, wire.NakRemoteAccess, msn)
}

// refuseRead ends the connection for a READ whose response psn cannot be made. What waits behind it is not answered any
// more (IBA 9.7.5.2.4). The first such response counts: those behind it, in the same burst, fail as well.
func (r *responder) refuseRead(now clock.Time, psn ib.PSN) {
	r.answers.clear()
	if r.nak.fatal && !psn.Before(r.nak.psn) {
		return
	}
	r.nak = refusal{syndrome: wire.NakRemoteAccess, psn: psn, msn: r.msn, pending: true, fatal: true}
	r.e.cfg.Counters.RespRemoteAccessErrors++
	r.msg = message{}
	if r.e.state != ib.StateErr {
		r.fail(now)
		r.e.cfg.QP.Event(ib.EventQPAccessErr)
	}
}
