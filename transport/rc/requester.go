package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// requester turns posted sends into request packets.
//
// Its packets are numbered; una is the oldest number that has not been acknowledged, nxt the first that was never used.
// The cursor is the packet that goes next. It stands at nxt, or, after a loss, anywhere back to una: which packet has
// which number never changes, so everything a packet holds is derived from its place again each time it is sent.
//
//	          una            cursor         nxt
//	completed  |  outstanding  |  to resend  |  new
type requester struct {
	e *Engine
	q queue

	una, nxt ib.PSN
	cursor   cursor
	reads    int // READs, atomics and what else counts as such, that were started and have not completed
	unasked  int // packets sent since one asked for an acknowledgement
	window   window
	retry    retryState
	probe    probe

	running bool // was in RTS since RESET
	drained bool // nothing that was started is left in SQD

	// What is passed by pointer to the queue pair lives here, so that nothing is allocated for it.
	request    transport.Request
	completion transport.Completion
	sges       []ib.SGE
	data       []byte
	original   wire.Buffer // result of an atomic, in host order
	bind       dma.Bind
	piece      [1]wire.Piece
}

// cursor names a packet: its request's position in the queue, and its place in the message.
type cursor struct {
	position uint32
	packet   uint32
}

func (c cursor) before(d cursor) bool {
	n := int32(c.position - d.position)
	return n < 0 || n == 0 && c.packet < d.packet
}

func (r *requester) init(e *Engine) {
	r.e = e
	r.sges = make([]ib.SGE, e.cfg.Cap.MaxSendSGE)
	r.data = make([]byte, e.cfg.Cap.MaxInlineData)
	r.original.B = make([]byte, 8)
	r.piece[0] = wire.Piece{Mem: &r.original, Len: 8}
	r.reset()
}

// reset forgets everything, as RESET asks.
func (r *requester) reset() {
	r.q.head, r.q.tail = 0, 0
	r.una, r.nxt, r.cursor = 0, 0, cursor{}
	r.reads, r.unasked = 0, 0
	r.running, r.drained = false, false
	r.stopTimers()
	r.probe.reset()
	r.retry.recovering = false
}

func (r *requester) modify(mask ib.QPAttrMask) {
	switch r.e.state {
	case ib.StateRTS:
		r.drained = false
		if !r.running {
			r.start()
		}
	case ib.StateErr:
		r.stopTimers()
	}
	if mask&(ib.QPAttrRetryCnt|ib.QPAttrRNRRetry) != 0 {
		r.reloadRetries()
	}
}

// start is the way from RTR to RTS. The ring is allocated only here: a queue pair that was never connected is small.
func (r *requester) start() {
	if r.q.entries == nil {
		r.q.allocate(&r.e.cfg.Cap)
	}
	r.running = true
	r.una = ib.NewPSN(uint32(r.e.attr.SQPSN))
	r.nxt = r.una
	r.window = newWindow(r.e.cfg.Limits.Window)
	r.reloadRetries()
}

func (r *requester) query(attr *ib.QPAttr) {
	attr.SQPSN = r.nxt
	attr.SQDraining = r.e.state == ib.StateSQD && !r.drained
}

// transmit sends what the window, the burst and the budget allow.
func (r *requester) transmit(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	switch r.e.state {
	case ib.StateErr:
		return r.flush(now, budget)
	case ib.StateRTS, ib.StateSQD:
	default:
		return 0, false
	}
	var last *wire.Frame
	for !r.waitsForReceiver() && !(r.probe.active && r.probe.sent) {
		w := r.next()
		if w == nil {
			break
		}
		if bytes >= budget || out.Full() {
			more = true
			break
		}
		if w.local() {
			bytes += flushBytes
			r.perform(w)
			if r.settle(now) {
				break
			}
			continue
		}
		if !r.e.open(now) || !r.e.cfg.Outstanding.Allows() {
			break
		}
		n := r.runOf(w, budget-bytes)
		f := out.Next()
		v := r.build(f, w, n)
		if v != dma.OK && n > 1 {
			// Its first packets may be good.
			out.Undo()
			f = out.Next()
			v = r.build(f, w, 1)
		}
		if v != dma.OK {
			out.Undo()
			r.spoil(r.cursor, ib.WCLocProtErr, vendorOf(v))
			break
		}
		r.sent(now, f, w)
		r.probe.sent = true
		bytes += f.Len()
		last = f
	}
	if last != nil {
		// Whatever stopped us, the last packet asks: without that, a tail that was lost would never be missed.
		if !last.BTH().AckReq() {
			last.BTH().SetAckReq(true)
			r.unasked = 0
		}
		r.armAckTimer(now)
		r.armProbe(now)
	}
	if r.settle(now) {
		return bytes, true
	}
	return bytes, more
}

// next returns the request whose packet is at the cursor, if that packet may be sent now.
func (r *requester) next() *work {
	rts := r.e.state == ib.StateRTS
	if r.cursor.position == r.q.tail && (!rts || !r.fetch()) {
		return nil
	}
	w := r.q.at(r.cursor.position)
	if w.status != ib.WCSuccess {
		return nil
	}
	if w.local() {
		if !r.mayPerform(w) {
			return nil
		}
		return w
	}
	if !r.window.open(r.inFlight(w)) {
		return nil
	}
	if w.started {
		return w
	}
	// SQD finishes what was started and starts nothing (IBA 10.3.1.6).
	if !rts {
		return nil
	}
	// A fence waits for earlier READs and atomics, for nothing else (IBA 10.8.3.3).
	if w.flags&ib.SendFence != 0 && r.reads > 0 {
		return nil
	}
	w.packets = r.packetsOf(w)
	if w.agreed() && !r.mayAsk(w) {
		return nil
	}
	return w
}

// mayAsk reports whether a READ or atomic may start now: the peer has room for so many at a time, and the numbers of a
// READ are outstanding all at once.
func (r *requester) mayAsk(w *work) bool {
	if r.e.attr.MaxRDAtomic == 0 {
		// Nothing that has an answer was agreed on; waiting for room would be for ever.
		w.spoil(ib.WCLocQPOpErr, transport.VendorMalformedWQE)
		return false
	}
	return r.reads < int(r.e.attr.MaxRDAtomic) && distance(r.una, r.nxt)+w.packets <= maxSpan
}

// maxSpan is how many numbers may be outstanding: with more, older and newer would look alike (IBA 9.7.3.1).
const maxSpan = 1<<23 - 1

// inFlight returns how many numbers lie between una and the cursor.
func (r *requester) inFlight(w *work) int {
	if !w.started {
		return int(distance(r.una, r.nxt))
	}
	return int(distance(r.una, w.first.Add(r.cursor.packet)))
}

// packetsOf returns how many sequence numbers a request takes: one a packet, and for a READ one for each packet of its
// response (IBA 9.7.3.1). A message of no bytes has one packet.
func (r *requester) packetsOf(w *work) uint32 {
	mtu := uint32(r.e.mtu)
	if w.length <= mtu {
		return 1
	}
	return (w.length-1)/mtu + 1
}

// fetch copies the next posted request and judges what can be judged before it is sent. A request that is refused stays
// in the queue to complete in its turn.
func (r *requester) fetch() bool {
	if r.q.full() {
		return false
	}
	fetched := r.take()
	if fetched == transport.Empty {
		return false
	}
	w := r.q.push(&r.request)
	if fetched == transport.Malformed || !built(w.opcode) {
		w.spoil(ib.WCLocQPOpErr, transport.VendorMalformedWQE)
		return true
	}
	if w.local() {
		return true
	}
	length, ok := r.q.keepPayload(w, &r.request)
	switch {
	case !ok || w.inline && w.answered():
		w.spoil(ib.WCLocQPOpErr, transport.VendorMalformedWQE)
		return true
	case length > r.maxMessage(w):
		w.spoil(ib.WCLocLenErr, transport.VendorTooLong)
		return true
	}
	w.length = uint32(length)
	switch {
	case w.opcode == ib.WRAtomicWrite:
		r.judgeValue(w)
	case w.opcode == ib.WRFlush:
		judgeFlush(w)
	case w.answered():
		r.judgeResult(w)
	}
	return true
}

// take asks for the next posted request.
func (r *requester) take() transport.Fetched {
	r.request.SGE, r.request.Inline.B = r.sges[:0], r.data[:0]
	return r.e.cfg.QP.FetchSend(&r.request)
}

// maxMessage is 2^31 bytes or what the device says (IBA 10.7.2). A READ has its numbers outstanding all at once, so it may
// not have 2^23 of them: with a path MTU of 256 that is one packet less.
func (r *requester) maxMessage(w *work) uint64 {
	limit := min(r.e.cfg.Limits.MaxMessage, 1<<31)
	if w.opcode == ib.WRRDMARead {
		limit = min(limit, maxSpan*uint64(r.e.mtu))
	}
	return limit
}

// judgeResult asks whether the response of a READ or atomic will have a place. The keys are asked again when it arrives.
func (r *requester) judgeResult(w *work) {
	if isAtomic(w.opcode) && w.length != 8 {
		w.spoil(ib.WCLocLenErr, transport.VendorTooLong)
		return
	}
	for _, e := range r.q.list(r.q.tail - 1) {
		if e.Length == 0 {
			continue
		}
		if _, v := r.e.cfg.Table.Local(r.e.cfg.Domain, e, ib.AccessLocalWrite); v != dma.OK {
			w.spoil(ib.WCLocProtErr, vendorOf(v))
			return
		}
	}
}

// sent moves the cursor behind the packet, or run of packets, that was just made.
func (r *requester) sent(now clock.Time, f *wire.Frame, w *work) {
	psn, n := f.BTH().PSN(), uint32(f.Packets())
	again := psn != r.nxt
	r.probe.departs(now, psn, again)
	if again {
		r.e.cfg.Counters.Retransmissions += uint64(n)
	}
	if !w.started {
		w.started = true
		w.first = psn
		if w.agreed() {
			r.reads++
		}
	}
	r.e.pace.Sent(now, f.Len())
	r.depart(w, n)
	r.unasked += int(n)
	if f.BTH().AckReq() {
		r.unasked = 0
	}
	taken := n
	if w.answered() {
		taken = w.packets - r.cursor.packet
	}
	r.cursor.packet += taken
	if r.cursor.packet == w.packets {
		r.cursor = cursor{position: r.cursor.position + 1}
	}
	if end := psn.Add(taken); distance(r.una, end) > distance(r.una, r.nxt) {
		r.nxt = end
	}
	r.traceSent(now, f, again)
}
