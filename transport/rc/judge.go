package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// verdict answers one question about a request.
type verdict struct {
	action action
	// Of a refusal: the NAK, and how the receive in use reports it. With WCSuccess it does not; it will be flushed.
	syndrome wire.Syndrome
	status   ib.WCStatus
	vendor   transport.VendorErr
}

// action is what becomes of a request.
type action uint8

const (
	accept action = iota
	drop
	repeat   // seen before
	gap      // requests before it are missing
	notReady // a receive is missing: RNR NAK
	refuse   // NAK, and the end of the connection
)

var (
	proceed        = verdict{action: accept}
	invalidRequest = verdict{action: refuse, syndrome: wire.NakInvalidRequest}
)

// judge asks the questions of IBA 9.7.4 in their order, the last being the execution itself. The first answer that is not
// proceed decides.
func (r *responder) judge(p *wire.Packet) verdict {
	if v := r.checkPSN(p); v != proceed { // duplicate, gap or next?
		return v
	}
	if v := r.checkSequence(p); v != proceed { // does this opcode follow the last one?
		return v
	}
	if v := r.checkOperation(p); v != proceed { // is the operation known, and enabled here?
		return v
	}
	if v := r.checkTarget(p); v != proceed { // of XRC: whose receives and keys are meant?
		return v
	}
	if v := r.checkResources(p); v != proceed { // is there a receive, is there room for the answer?
		return v
	}
	if v := r.checkLength(p); v != proceed { // do packet and message have the lengths they claim?
		return v
	}
	if v := r.checkKey(p); v != proceed { // may the peer touch this memory?
		return v
	}
	return r.execute(p)
}

// checkPSN compares with the expected PSN, in 24 bits (IBA 9.7.4.1.1).
func (r *responder) checkPSN(p *wire.Packet) verdict {
	switch d := p.PSN().Diff(r.epsn); {
	case d < 0:
		return verdict{action: repeat}
	case d > 0:
		return verdict{action: gap}
	}
	return proceed
}

// checkSequence holds packets to the order FIRST, MIDDLE ..., LAST of one operation (IBA 9.7.4.1.2).
func (r *responder) checkSequence(p *wire.Packet) verdict {
	op := p.Opcode
	follows := op.IsMiddle() || op.IsLast()
	switch r.msg.kind {
	case idle:
		if follows {
			return invalidRequest
		}
	case sending:
		if !follows || !op.IsSend() {
			return invalidRequest
		}
	case writing:
		if !follows || !op.IsWrite() {
			return invalidRequest
		}
	}
	return proceed
}

// checkOperation refuses what is reserved, not built, or not enabled in qp_access_flags. The rights of the memory come
// later and have a NAK of their own (IBA 9.7.4.1.3).
func (r *responder) checkOperation(p *wire.Packet) verdict {
	need := ib.AccessFlags(0)
	switch operation(p.Opcode) {
	case wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendLastImm, wire.RCSendOnly, wire.RCSendOnlyImm,
		wire.RCSendLastInv, wire.RCSendOnlyInv:
	case wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteLastImm, wire.RCWriteOnly, wire.RCWriteOnlyImm,
		wire.RCAtomicWrite:
		need = ib.AccessRemoteWrite
	case wire.RCReadRequest:
		need = ib.AccessRemoteRead
	case wire.RCCompareSwap, wire.RCFetchAdd:
		need = ib.AccessRemoteAtomic
	case wire.RCFlush:
		var ok bool
		if need, ok = flushRights(wire.FindFETH(p.Header)); !ok {
			return invalidRequest
		}
	default:
		return invalidRequest
	}
	if r.e.attr.AccessFlags&need != need {
		return invalidRequest
	}
	return proceed
}

// checkResources finds the receive of a SEND or WRITE with immediate, and room to remember a READ or atomic
// (IBA 9.7.4.1.4, 9.7.5.2.8).
func (r *responder) checkResources(p *wire.Packet) verdict {
	op := operation(p.Opcode)
	switch {
	case op.IsRead(), op.IsAtomic():
		if !r.resources.room() {
			return invalidRequest
		}
		return proceed
	case op == wire.RCFlush, op == wire.RCAtomicWrite:
		return r.checkPlacement(op)
	}
	// The receive in hand may be left from a packet that had to be sent once more.
	if !takesReceive(op) || r.held {
		return proceed
	}
	switch r.e.cfg.QP.FetchRecv(&r.recv) {
	case transport.Empty:
		return verdict{action: notReady}
	case transport.Broken:
		return verdict{refuse, wire.NakRemoteOperation, ib.WCSuccess, transport.VendorQueueBroken}
	case transport.Malformed:
		r.held = true
		return verdict{refuse, wire.NakRemoteOperation, ib.WCLocQPOpErr, transport.VendorMalformedWQE}
	}
	r.held = true
	return proceed
}

// takesReceive reports whether op needs a receive: every SEND, and the end of a WRITE with immediate.
func takesReceive(op wire.Opcode) bool {
	return op.IsSend() || op.IsWrite() && op.Headers().Has(wire.HasImm)
}

// checkLength holds the packet to the rule of its opcode and the message to the length it was announced with, or to the
// receive it is for (IBA 9.7.4.1.5, 9.7.4.1.6).
func (r *responder) checkLength(p *wire.Packet) verdict {
	op := operation(p.Opcode)
	if !op.Payload().Fits(p.Len/p.Packets(), r.e.mtu) || p.BTH().PadCount() != uint8(-p.Len&3) {
		return invalidRequest
	}
	r.cur = r.msg
	n := uint64(p.Len)
	switch {
	case op.IsSend():
		r.cur.kind = sending
		return r.checkReceiveLength(n)
	case op.IsRead():
		if uint64(wire.FindRETH(p.Header).Length()) > r.maxMessage() {
			return invalidRequest
		}
	case op == wire.RCFlush:
		if wire.FindRETH(p.Header).Length() > maxMessageSize {
			return invalidRequest
		}
	case op == wire.RCAtomicWrite:
		if wire.FindRETH(p.Header).Length() != 8 { // oA19-28
			return invalidRequest
		}
	case op.IsWrite():
		if h := wire.FindRETH(p.Header); h != nil {
			r.cur = message{kind: writing, key: h.RKey(), va: h.VA(), size: uint64(h.Length())}
		}
		left := r.cur.size - r.cur.done
		if r.cur.size > r.maxMessage() || n > left || op.Ends() != (n == left) {
			return invalidRequest
		}
	}
	return proceed
}

// checkReceiveLength asks whether n more bytes of a SEND fit.
func (r *responder) checkReceiveLength(n uint64) verdict {
	if n > r.recv.Length-r.cur.done {
		return verdict{refuse, wire.NakInvalidRequest, ib.WCLocLenErr, transport.VendorTooLong}
	}
	if r.cur.done+n > r.maxMessage() {
		return invalidRequest
	}
	return proceed
}

// maxMessageSize is the longest message there is (IBA 9.7.4.1.6).
const maxMessageSize = 1 << 31

func (r *responder) maxMessage() uint64 {
	if n := r.e.cfg.Limits.MaxMessage; n != 0 {
		return min(n, maxMessageSize)
	}
	return maxMessageSize
}

// checkKey asks whether the peer may touch the memory that it names (IBA 9.7.4.1.3, 10.6.3).
func (r *responder) checkKey(p *wire.Packet) verdict {
	switch op := operation(p.Opcode); {
	case op.IsWrite():
		return r.checkWriteKey(p)
	case op.IsRead():
		h := wire.FindRETH(p.Header)
		// A zero-length READ names no memory, so its R_Key goes unread. IBA C9-88.
		if h.Length() == 0 {
			return proceed
		}
		_, v := r.remote(h.RKey(), h.VA(), uint64(h.Length()), ib.AccessRemoteRead)
		return accessVerdict(v)
	case op.IsAtomic():
		h := wire.FindAtomicETH(p.Header)
		var v dma.Verdict
		if r.mem, v = r.remote(h.RKey(), h.VA(), 8, ib.AccessRemoteAtomic); v != dma.OK {
			return accessVerdict(v)
		}
		if h.VA()&7 != 0 {
			return invalidRequest
		}
	case op == wire.RCAtomicWrite:
		return r.checkValueKey(p)
	case op == wire.RCFlush:
		return r.checkFlushKey(p)
	}
	return proceed
}

// checkWriteKey judges the whole range when the message begins, and once more the part of every later packet: the region
// may have been deregistered meanwhile, and a key is no promise beyond the packet in hand.
func (r *responder) checkWriteKey(p *wire.Packet) verdict {
	m := &r.cur
	// A zero-length WRITE names no memory, so its R_Key goes unread. IBA C9-88.
	if m.size == 0 {
		r.mem = dma.Span{}
		return proceed
	}
	va, n := m.va, m.size
	if m.done > 0 {
		va, n = m.va+m.done, uint64(p.Len)
	}
	var v dma.Verdict
	if r.mem, v = r.remote(m.key, va, n, ib.AccessRemoteWrite); v == dma.OK {
		return proceed
	}
	bad := accessVerdict(v)
	if takesReceive(p.Opcode) {
		bad.status = ib.WCLocAccessErr // the receive of a WRITE with immediate reports it
	}
	return bad
}

// accessVerdict makes a NAK of what the key table says.
func accessVerdict(v dma.Verdict) verdict {
	if v == dma.OK {
		return proceed
	}
	return verdict{action: refuse, syndrome: wire.NakRemoteAccess, vendor: vendorOf(v)}
}
