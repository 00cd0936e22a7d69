package rc

import (
	"errors"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// execute does what the request asks. It is the last question, since memory can be gone although its key is good
// (IBA 9.7.4, 9.7.5.2.7).
func (r *responder) execute(p *wire.Packet) verdict {
	switch op := operation(p.Opcode); {
	case op.IsSend():
		if v := r.scatter(p); v != proceed {
			return v
		}
		return r.invalidate(p)
	case op.IsWrite():
		return r.faultVerdict(p, dma.CopyPayload(r.mem, 0, p.Payload))
	case op.IsRead():
		return r.executeRead(p)
	case op == wire.RCFlush:
		return r.executeFlush()
	case op == wire.RCAtomicWrite:
		return r.executeValue(p)
	}
	return r.executeAtomic(p)
}

// scatter places the payload of a SEND in the receive.
func (r *responder) scatter(p *wire.Packet) verdict {
	if p.Len == 0 {
		return proceed
	}
	v, err := r.e.cfg.Table.Scatter(r.recvDomain, r.recv.SGE, r.cur.done, p.Payload)
	if v != dma.OK {
		return verdict{refuse, wire.NakRemoteOperation, ib.WCLocProtErr, vendorOf(v)}
	}
	return r.faultVerdict(p, err)
}

// executeRead only remembers: the memory is read as the responses are sent.
func (r *responder) executeRead(p *wire.Packet) verdict {
	h := wire.FindRETH(p.Header)
	n := r.packets(h.Length())
	r.remember(resource{
		kind: reading, first: r.epsn, last: r.epsn.Add(n - 1),
		domain: r.domain, key: h.RKey(), va: h.VA(), size: uint64(h.Length()),
	})
	r.e.cfg.Counters.RxReadRequests++
	return proceed
}

// executeAtomic remembers the original value, so that a duplicate gets it again and changes nothing (IBA 9.7.5.1.5).
func (r *responder) executeAtomic(p *wire.Packet) verdict {
	h := wire.FindAtomicETH(p.Header)
	do := dma.FetchAdd
	if operation(p.Opcode) == wire.RCCompareSwap {
		do = dma.CompareSwap
	}
	old, err := r.mem.Mem.Atomic(r.mem.Off, do, h.SwapAdd(), h.Compare())
	if v := r.faultVerdict(p, err); v != proceed {
		return v
	}
	r.remember(resource{kind: atomic, first: r.epsn, last: r.epsn, original: old})
	r.e.cfg.Counters.RxAtomicRequests++
	return proceed
}

// packets returns how many responses a READ of n bytes has, which is also the count of PSNs that it takes (IBA 9.7.3.1).
func (r *responder) packets(n uint32) uint32 {
	if n == 0 {
		return 1
	}
	return (n-1)/uint32(r.e.mtu) + 1
}

// faultVerdict charges a memory fault to the side whose memory it was. Ours was named by a good key and is gone
// nevertheless: the peer did nothing wrong. A local peer's payload that cannot be read never arrived.
func (r *responder) faultVerdict(p *wire.Packet, err error) verdict {
	if err == nil {
		return proceed
	}
	if r.isSource(p, err) {
		r.sourceFaults++
		return verdict{action: drop}
	}
	v := verdict{action: refuse, syndrome: wire.NakRemoteOperation, vendor: transport.VendorMemoryFault}
	if takesReceive(p.Opcode) {
		v.status = ib.WCLocProtErr
	}
	return v
}

// isSource reports whether err is about the payload of a local peer. Memory that is source and destination at once
// counts as destination where that is known.
func (r *responder) isSource(p *wire.Packet, err error) bool {
	var f *dma.Fault
	if !errors.As(err, &f) || !p.Local || p.Opcode.IsWrite() && f.Mem == wire.Memory(r.mem.Mem) {
		return false
	}
	for i := range p.Payload {
		if p.Payload[i].Mem == f.Mem {
			return true
		}
	}
	return false
}

// complete moves the PSN on and, with the last packet of a message, counts it and ends its receive. Everything is in
// order before the completion is given: it may be seen at once, and may overrun the CQ.
func (r *responder) complete(now clock.Time, p *wire.Packet) {
	op := p.Opcode
	n := uint32(p.Packets())
	if op.IsRead() {
		n = r.packets(wire.FindRETH(p.Header).Length())
	}
	r.epsn = r.epsn.Add(n)
	if op.Ends() {
		r.msn = (r.msn + 1) & ib.PSNMask
	}
	r.repaired()
	if op.IsRead() || op.IsAtomic() {
		return
	}
	if op.IsWrite() && (op.IsFirst() || op.IsOnly()) {
		r.e.cfg.Counters.RxWriteRequests++
	}
	r.cur.done += uint64(p.Len)
	if !op.Ends() {
		r.msg = r.cur
		return
	}
	r.msg = message{}
	if takesReceive(op) {
		r.deliver(now, p)
	}
}

// repaired takes back what was to be said about a request that was missing and has come after all.
func (r *responder) repaired() {
	r.latched = false
	if !r.nak.pending {
		return
	}
	// A sequence NAK that has not left moves along as long as something behind it was dropped: packets that came in the
	// wrong order, and the peer does not know yet.
	if r.nak.syndrome == wire.NakSequence && !r.nak.beyond.Before(r.epsn) {
		r.latched = true
		r.nak.psn, r.nak.msn = r.epsn, r.msn
		return
	}
	r.nak = refusal{}
}

// deliver completes the receive of a SEND or WRITE with immediate.
func (r *responder) deliver(now clock.Time, p *wire.Packet) {
	r.wc = transport.Completion{
		Opcode:    ib.WCRecv,
		ByteLen:   uint32(r.cur.done),
		SrcQP:     r.e.attr.DestQPN,
		Solicited: p.BTH().Solicited(),
	}
	if p.Opcode.IsWrite() {
		r.wc.Opcode = ib.WCRecvRDMAWithImm
	}
	if h := wire.FindImmDt(p.Header); h != nil {
		r.wc.Flags, r.wc.Imm = ib.WCWithImm, h.Data()
	}
	if h := wire.FindIETH(p.Header); h != nil {
		r.wc.Flags, r.wc.Imm = ib.WCWithInv, uint32(h.RKey())
	}
	r.end(now)
}
