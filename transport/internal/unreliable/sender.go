package unreliable

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// sender is a send queue whose requests end when the port has taken their packets (IBA 9.8.2.1, 9.8.3.1): their owner may
// write the memory then. A frame in the burst refers to it still, so that a request waits in a ring until its last frame
// has left. The request whose packets are being made is the newest in the ring.
//
//	      head                 tail
//	ended  |  frames in the burst | request  | posted
type sender struct {
	ring    []work
	inline  wire.Buffer // room for cap.MaxInlineData bytes of each place
	perData int
	head    uint32 // positions count for ever, RESET too: they are the cookies of frames
	tail    uint32

	psn     ib.PSN
	request transport.Request
	sges    []ib.SGE
	data    []byte
	begun   bool // request has packets that were not made
	packet  uint32
	packets uint32
	stopped bool // a request in the ring has failed: nothing behind it is sent
	drained bool // in SQD nothing is left

	bind dma.Bind // of the request in hand

	due     clock.Time // of the next look whether the burst has left
	patient bool       // it had not when we looked

	ended transport.Request // what is reported
	done  transport.Completion
}

// work is what is left of a request once its packets are made.
type work struct {
	wrid   uint64
	end    uint64 // wire.Burst.End behind its last frame
	index  uint32
	length uint32
	opcode ib.WROpcode
	flags  ib.SendFlags
	framed bool // it had a frame
	status ib.WCStatus
	vendor transport.VendorErr
}

// start is the way from RTR to RTS. The ring is allocated only here.
func (b *Base) start() {
	s := &b.sender
	if s.ring == nil {
		n := 1
		for n < int(b.cfg.Cap.MaxSendWR) {
			n <<= 1
		}
		s.ring = make([]work, n)
		s.perData = int(b.cfg.Cap.MaxInlineData)
		s.inline.B = make([]byte, n*s.perData)
		s.sges = make([]ib.SGE, min(b.cfg.Cap.MaxSendSGE, wire.MaxPieces))
		s.data = make([]byte, s.perData)
	}
	s.psn = ib.NewPSN(uint32(b.attr.SQPSN))
	s.stopped, s.begun = false, false
}

// forget empties the queue, as RESET asks.
func (b *Base) forget() {
	s := &b.sender
	s.head = s.tail
	s.begun, s.stopped, s.drained, s.patient = false, false, false, false
	s.psn, s.due = 0, clock.Never
	b.way = transport.Pacer{}
}

// resume is the way from SQE to RTS. What was posted before it is flushed, what is posted after it is sent (IBA 10.3.1).
func (b *Base) resume() {
	b.begun = false
	for b.head != b.tail {
		b.flush()
	}
	// No more than the queue holds: the application may post all the while.
	for range b.cfg.Cap.MaxSendWR {
		if b.fetch() == transport.Empty {
			break
		}
		b.flush()
	}
	b.stopped = false
}

func (s *sender) at(position uint32) *work { return &s.ring[position&uint32(len(s.ring)-1)] }

// transmitSends ends what has left, sends what may be sent, and flushes in the error states.
func (b *Base) transmitSends(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	if b.ring == nil {
		if b.state != ib.StateErr {
			return 0, false
		}
		b.start() // posted in RTR or before: there is nothing, but the application may say so
	}
	b.retire(out)
	for b.state == ib.StateRTS || b.state == ib.StateSQD {
		if !b.begun {
			turn := b.next()
			if turn != packets {
				b.retire(out) // what failed before it had a packet, or has none
			}
			if b.state == ib.StateSQE {
				break
			}
			if turn == nothing {
				return bytes, false
			}
			if turn == performed {
				if bytes += flushBytes; bytes >= budget {
					return bytes, true
				}
				continue
			}
		}
		if bytes >= budget || out.Full() {
			return bytes, true
		}
		if b.paced = !b.open(now); b.paced {
			return bytes, false
		}
		bytes += b.send(now, out)
	}
	if b.state != ib.StateSQE && b.state != ib.StateErr {
		return bytes, false
	}
	for ; bytes < budget; bytes += flushBytes {
		if b.head == b.tail && b.fetch() == transport.Empty {
			return bytes, false
		}
		if !b.left(out) {
			return bytes, false
		}
		b.flush()
	}
	return bytes, true
}

// flushBytes is what a flushed request counts against the budget of Transmit.
const flushBytes = 64

// turn is what the next request brings.
type turn uint8

const (
	nothing   turn = iota // there is none that may begin now: SQD starts nothing
	packets               // its packets are to be made
	performed             // a local operation, which is over
)

// next fetches the next request and judges it.
func (b *Base) next() turn {
	if b.state != ib.StateRTS || b.stopped || b.tail-b.head == uint32(len(b.ring)) {
		return nothing
	}
	fetched := b.fetch()
	if fetched == transport.Empty {
		return nothing
	}
	r, w := &b.request, b.at(b.tail-1)
	w.status, w.vendor = ib.WCLocQPOpErr, transport.VendorMalformedWQE
	if fetched == transport.Ready && len(r.Inline.B) <= b.perData {
		w.status, w.vendor = b.service.Judge(r)
		switch {
		case w.status != ib.WCSuccess:
		case IsLocal(r.Opcode):
			v := b.perform(r)
			if v == dma.OK {
				return performed
			}
			// As on a reliable connection: the memory management operation error, for binding and invalidating alike.
			w.status, w.vendor = ib.WCMWBindErr, VendorOf(v)
		case r.Length > b.cfg.MaxMessage:
			w.status, w.vendor = ib.WCLocLenErr, transport.VendorTooLong
		}
	}
	if w.status != ib.WCSuccess {
		b.stopped = true
		return nothing
	}
	w.length = uint32(r.Length)
	if r.IsInline {
		copy(b.inline.B[b.inlineAt(b.tail-1):], r.Inline.B)
	}
	mtu := uint64(b.service.MTU())
	b.packet, b.packets = 0, uint32(max((r.Length+mtu-1)/mtu, 1))
	b.begun = true
	return packets
}

// fetch copies the next posted request and puts it into the ring, which has room.
func (b *Base) fetch() transport.Fetched {
	b.request = transport.Request{SGE: b.sges[:0], Inline: wire.Buffer{B: b.data[:0]}}
	f := b.cfg.QP.FetchSend(&b.request)
	if f == transport.Empty {
		return f
	}
	r := &b.request
	*b.at(b.tail) = work{wrid: r.WRID, index: r.Index, opcode: r.Opcode, flags: r.Flags}
	b.tail++
	return f
}

func (s *sender) inlineAt(position uint32) uint64 {
	return uint64(position&uint32(len(s.ring)-1)) * uint64(s.perData)
}

// send makes the next packet of the request and returns its bytes.
func (b *Base) send(now clock.Time, out *wire.Burst) int {
	r, position := &b.request, b.tail-1
	w := b.at(position)
	f := out.Next()
	f.QPN, f.Cookie, f.Stable = b.cfg.QPN, uint64(position), true
	b.service.Head(f, r, b.packet, b.packets, b.psn)
	mtu := uint64(b.service.MTU())
	off := uint64(b.packet) * mtu
	n := int(min(mtu, r.Length-min(off, r.Length)))
	v := dma.OK
	if r.IsInline {
		f.Add(&b.inline, b.inlineAt(position)+off, n)
	} else {
		v = b.cfg.Table.Gather(f, b.cfg.Domain, r.SGE, off, n)
	}
	if v != dma.OK {
		out.Undo()
		b.spoil(w, ib.WCLocProtErr, VendorOf(v))
		return 0
	}
	b.psn = b.psn.Next()
	b.packet++
	b.begun = b.packet < b.packets
	w.framed, w.end = true, out.End()
	b.patient = false
	b.counts(now, f.Len())
	return f.Len()
}

// Header starts a frame: base transport header of a packet to qpn. There are no alternate paths.
func Header(f *wire.Frame, op wire.Opcode, key ib.PKey, qpn ib.QPN, psn ib.PSN) []byte {
	h := f.SetHeader(op)
	bth := f.BTH()
	bth.SetPKey(key)
	bth.SetMigReq(true)
	bth.SetDestQP(qpn)
	bth.SetPSN(psn)
	return h
}

// spoil gives a request a local error. What is left of its message is not sent, nor anything behind it.
func (b *Base) spoil(w *work, status ib.WCStatus, vendor transport.VendorErr) {
	if w.status == ib.WCSuccess {
		w.status, w.vendor = status, vendor
	}
	b.begun, b.stopped = false, true
}

// Faulted implements transport.Engine: the payload of a frame could not be read.
func (b *Base) Faulted(_ clock.Time, cookie uint64) bool {
	position := uint32(cookie)
	if position-b.head >= b.tail-b.head {
		return false
	}
	b.spoil(b.at(position), ib.WCLocProtErr, transport.VendorMemoryFault)
	return true
}

// left reports whether the frames of the oldest request have left the burst.
func (b *Base) left(out *wire.Burst) bool {
	w := b.at(b.head)
	return !w.framed || out.Taken() >= w.end
}

// retire ends the oldest requests, in order, as their frames have left. A local error of one ends the send queue alone: the
// state is SQE, and receives go on (IBA 10.3.1).
func (b *Base) retire(out *wire.Burst) {
	for b.state == ib.StateRTS || b.state == ib.StateSQD {
		if b.head == b.tail || b.begun && b.head == b.tail-1 {
			break
		}
		if !b.left(out) {
			return
		}
		w := b.at(b.head)
		if w.status != ib.WCSuccess {
			b.begun = false
			b.enter(ib.StateSQE)
			b.cfg.Counters.ReqCQEError++
		}
		b.end(w.status, w.vendor)
	}
	if b.state == ib.StateSQD && b.head == b.tail && !b.drained {
		b.drained = true
		b.cfg.QP.SetState(ib.StateSQD)
		if b.attr.EnSQDAsyncNotify {
			b.cfg.QP.Event(ib.EventSQDrained)
		}
	}
}

// flush ends the oldest request unsent. One that had failed by itself says why.
func (b *Base) flush() {
	b.begun = false
	b.cfg.Counters.ReqCQEFlushError++
	b.end(ib.WCWRFlushErr, transport.VendorFlushed)
}

// end completes the oldest request.
func (b *Base) end(status ib.WCStatus, vendor transport.VendorErr) {
	w := b.at(b.head)
	if b.head == b.tail-1 {
		b.begun = false
	}
	b.head++
	b.ended.Index, b.ended.Opcode, b.ended.Flags, b.ended.WRID = w.index, w.opcode, w.flags, w.wrid
	b.done = transport.Completion{Status: status, VendorErr: vendor, Opcode: ib.WCSend, ByteLen: w.length}
	switch w.opcode {
	case ib.WRRDMAWrite, ib.WRRDMAWriteWithImm:
		b.done.Opcode = ib.WCRDMAWrite
	case ib.WRBindMW:
		b.done.Opcode = ib.WCBindMW
	case ib.WRLocalInv:
		b.done.Opcode = ib.WCLocalInv
	}
	b.cfg.QP.CompleteSend(&b.ended, &b.done)
}

// VendorOf tells people why a key was refused.
func VendorOf(v dma.Verdict) transport.VendorErr {
	switch v {
	case dma.BadKey:
		return transport.VendorBadKey
	case dma.BadDomain:
		return transport.VendorBadDomain
	case dma.BadAccess:
		return transport.VendorBadAccess
	case dma.BadState:
		return transport.VendorBadState
	}
	return transport.VendorBadRange
}
