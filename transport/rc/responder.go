package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// responder is the half of a connection that executes the peer's requests and answers them (IBA 9.7.4, 9.7.5).
//
// A request is judged and executed when it arrives, by the questions in judge.go, one after another. What is to be
// said about it waits in answers (ack.go) until the engine may transmit: READ responses are made there, packet by
// packet, and everything behind them waits its turn, since answers leave in the order of their PSNs.
type responder struct {
	e *Engine

	epsn ib.PSN // the PSN expected next
	msn  uint32 // messages completed, modulo 2^24
	// latched says that a NAK was given for epsn. What follows epsn is dropped without a word until epsn itself has
	// been accepted, so that one hole gives one NAK (IBA 9.7.5.1.2).
	latched     bool
	established bool // COMM_EST was raised

	msg message  // the message of several packets that is under way
	cur message  // what becomes of msg if the packet in hand is accepted
	mem dma.Span // memory that the packet in hand may touch

	// Whose keys requests name, and receives. Of an XRC target both are the domain of the shared receive queue that the
	// packet in hand named.
	domain, recvDomain *dma.Domain
	srqn               uint32

	recv transport.Receive
	held bool // recv was fetched and has not been completed
	wc   transport.Completion

	resources resources
	answers   answers
	nak       refusal

	value [8]byte // of an ATOMIC WRITE

	sourceFaults uint64
}

// message is a SEND or WRITE of which some packets were accepted.
type message struct {
	kind kind
	key  ib.RKey
	va   uint64
	size uint64 // RETH length of a WRITE
	done uint64 // bytes that were executed
}

// kind is the class of the request before, which decides which opcodes may follow (IBA 9.7.4.1.2).
type kind uint8

const (
	idle kind = iota // the last message is complete
	sending
	writing
)

// init allocates what the responder needs for ever. What depends on max_dest_rd_atomic is allocated by modify.
func (r *responder) init(e *Engine) {
	r.e = e
	r.domain, r.recvDomain = e.cfg.Domain, e.cfg.RecvDomain
	r.recv.SGE = make([]ib.SGE, 0, e.cfg.Cap.MaxRecvSGE)
	r.answers.grow(0)
}

// serves reports whether requests are processed in this state. The device asks the same, but the state may have
// changed since it did: by an earlier packet of the same burst, say.
func (r *responder) serves() bool {
	s := r.e.state
	return s == ib.StateRTR || s == ib.StateRTS || s == ib.StateSQD
}

// receive takes a request and reports whether there is something to transmit.
func (r *responder) receive(now clock.Time, p *wire.Packet) bool {
	if !r.serves() {
		return false
	}
	r.establish()
	v := r.judge(p)
	r.traceReceived(now, p, v)
	switch v.action {
	case accept:
		r.accept(now, p)
	case repeat:
		r.repeat(p)
	case gap:
		r.missed(p)
	case notReady:
		r.e.cfg.Counters.OutOfBuffer++
		r.latched = true
		r.nak = refusal{syndrome: wire.RNRNak(r.e.attr.MinRNRTimer), psn: r.epsn, msn: r.msn, pending: true}
	case refuse:
		r.refuse(now, v)
	}
	return r.pending() || r.e.state == ib.StateErr
}

// accept is what follows a request, or run of them, that was executed.
func (r *responder) accept(now clock.Time, p *wire.Packet) {
	// Should the CQ overrun in complete, nothing was delivered, and an ACK would be a lie. But none leaves: the device takes
	// the queue pair to the error state when this call is over, and that drops the answers that wait.
	r.complete(now, p)
	r.acknowledge(p)
}

// establish tells, once, that the peer has begun to talk before the application moved on to RTS: the passive side of a
// connection learns by it that its reply arrived, should the RTU be lost.
func (r *responder) establish() {
	if r.e.state == ib.StateRTR && !r.established {
		r.established = true
		r.e.cfg.QP.Event(ib.EventCommEst)
	}
}

// missed answers a packet beyond epsn.
func (r *responder) missed(p *wire.Packet) {
	r.e.cfg.Counters.OutOfSequence++
	if psn := p.PSN(); !r.latched {
		r.latched = true
		r.nak = refusal{syndrome: wire.NakSequence, psn: r.epsn, msn: r.msn, pending: true, beyond: psn}
	} else if psn.After(r.nak.beyond) {
		r.nak.beyond = psn
	}
}

// refuse queues the NAK, ends the receive in use if it is the one to report the error, and takes the queue pair to the
// error state. Exactly one of receive and event tells of it.
func (r *responder) refuse(now clock.Time, v verdict) {
	c := r.e.cfg.Counters
	switch v.syndrome {
	case wire.NakInvalidRequest:
		c.RespInvalidRequest++
	case wire.NakRemoteAccess:
		c.RespRemoteAccessErrors++
	}
	r.nak = refusal{syndrome: v.syndrome, psn: r.epsn, msn: r.msn, pending: true, fatal: true}
	r.msg = message{}
	if v.status != ib.WCSuccess && r.held {
		if v.status == ib.WCLocLenErr {
			c.RespLocalLengthError++
		}
		c.RespCQEError++
		r.wc = transport.Completion{Status: v.status, VendorErr: v.vendor}
		r.end(now)
		r.fail(now)
		return
	}
	r.fail(now)
	if v.vendor == transport.VendorQueueBroken {
		r.e.cfg.QP.Event(ib.EventQPFatal)
		return
	}
	r.e.cfg.QP.Event(eventOf(v.syndrome))
}

// fail enters the error state unless the queue pair is in it already.
func (r *responder) fail(now clock.Time) {
	if r.e.state != ib.StateErr {
		r.e.fatal(now)
	}
}

func eventOf(s wire.Syndrome) ib.EventType {
	if s == wire.NakInvalidRequest {
		return ib.EventQPReqErr
	}
	return ib.EventQPAccessErr
}

// end completes the receive in hand with wc.
func (r *responder) end(now clock.Time) {
	r.held = false
	r.traceCompleted(now)
	r.e.cfg.QP.CompleteRecv(&r.recv, &r.wc)
}

// transmit appends answers in the order of their PSNs; in the error state it then flushes receives.
func (r *responder) transmit(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	// The error state stops all answers (IBA 10.3.1.7), unless the responder itself caused it: the peer is to see the
	// NAK, and what was done before it.
	if r.e.state == ib.StateErr && !r.nak.fatal {
		r.stop()
	}
	for r.pending() {
		if bytes >= budget || out.Full() {
			return bytes, true
		}
		if r.reads() && r.e.state != ib.StateErr && !r.e.open(now) {
			break
		}
		bytes += r.answer(now, out, budget-bytes)
	}
	if r.e.state != ib.StateErr {
		return bytes, false
	}
	n, more := r.flush(now, budget-bytes)
	return bytes + n, more
}

// flushBytes is what a flushed receive counts against the budget of Transmit.
const flushBytes = 64

// flush ends every receive that is posted: first the one in hand, then the queue's. Of a shared receive queue the device
// offers none in the error state, for they belong to others too (IBA 10.2.9).
func (r *responder) flush(now clock.Time, budget int) (bytes int, more bool) {
	for bytes < budget {
		if !r.held && !r.fetch() {
			return bytes, false
		}
		r.e.cfg.Counters.RespCQEFlushError++
		r.wc = transport.Completion{Status: ib.WCWRFlushErr, VendorErr: transport.VendorFlushed}
		r.end(now)
		bytes += flushBytes
	}
	return bytes, true
}

// fetch takes the next receive, whatever it looks like.
func (r *responder) fetch() bool {
	switch r.e.cfg.QP.FetchRecv(&r.recv) {
	case transport.Ready, transport.Malformed:
		r.held = true
	}
	return r.held
}

// modify applies the attributes that concern the responder; the engine holds them already.
func (r *responder) modify(_ clock.Time, mask ib.QPAttrMask) {
	a := &r.e.attr
	if mask&ib.QPAttrRQPSN != 0 {
		r.epsn = ib.NewPSN(uint32(a.RQPSN))
	}
	if mask&ib.QPAttrMaxDestRDAtomic != 0 {
		r.resize(int(a.MaxDestRDAtomic))
	}
	// As in transmit: a NAK that ended the connection is still to leave, whatever the application says of the state.
	if !r.nak.fatal && r.e.state == ib.StateErr {
		r.stop()
	}
}

// reset forgets everything; what was allocated stays. The receive in hand vanishes without a completion, as all others
// of the queue do.
func (r *responder) reset() {
	r.stop()
	r.resources.reset()
	r.epsn, r.msn, r.latched, r.established = 0, 0, false, false
	r.held = false
}

// stop drops all answers: nobody will get them.
func (r *responder) stop() {
	r.answers.clear()
	r.nak = refusal{}
	r.msg = message{}
}

// query fills in the PSN expected next.
func (r *responder) query(a *ib.QPAttr) {
	if r.serves() {
		a.RQPSN = r.epsn
	}
}

// faulted says that the payload of a READ response could not be read: the region is still registered, but its memory is
// gone. The peer learns by a NAK at the PSN of that response (IBA 9.7.5.2.4).
func (r *responder) faulted(now clock.Time, cookie uint64) bool {
	psn := ib.NewPSN(uint32(cookie))
	slot := r.resources.find(psn)
	if slot < 0 || r.resources.ring[slot].kind != reading || !r.serves() && !r.nak.fatal {
		return false
	}
	r.traceFault(now, psn)
	r.refuseRead(now, psn)
	return true
}

// SourceFaults counts the packets of local peers that were dropped because the peer's own memory could not be read. A
// shard that hands over a local frame compares the count before and after: when it moved, the frame's cookie belongs
// into the peer's Faulted. To this side such a packet never arrived, so that a peer who is told nothing runs into its
// retry limit.
func (e *Engine) SourceFaults() uint64 { return e.resp.sourceFaults }
