package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// segments are the opcodes of a message's packets. A request that is always one packet has only the last of them.
type segments struct{ first, middle, last, only wire.Opcode }

// requestOpcodes is indexed by the operation of the work request; what has no ONLY has no packets.
var requestOpcodes = [...]segments{
	ib.WRSend:             {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly},
	ib.WRSendWithImm:      {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastImm, wire.RCSendOnlyImm},
	ib.WRSendWithInv:      {wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastInv, wire.RCSendOnlyInv},
	ib.WRRDMAWrite:        {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly},
	ib.WRRDMAWriteWithImm: {wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLastImm, wire.RCWriteOnlyImm},
	ib.WRRDMARead:         {only: wire.RCReadRequest},
	ib.WRAtomicCmpAndSwp:  {only: wire.RCCompareSwap},
	ib.WRAtomicFetchAdd:   {only: wire.RCFetchAdd},
	ib.WRAtomicWrite:      {only: wire.RCAtomicWrite},
	ib.WRFlush:            {only: wire.RCFlush},
}

// built reports whether there is such an operation.
func built(o ib.WROpcode) bool {
	return isLocal(o) || int(o) < len(requestOpcodes) && requestOpcodes[o].only != 0
}

// at returns the opcode of packet i of n.
func (s *segments) at(i, n uint32) wire.Opcode {
	switch {
	case n == 1:
		return s.only
	case i == 0:
		return s.first
	case i == n-1:
		return s.last
	}
	return s.middle
}

// build makes the packet of w at the cursor, or the run of packets from there on. Everything comes from its place in the
// message, so that a packet sent again is the packet sent before, the scatter/gather list included (IBA 9.7.2.1).
func (r *requester) build(f *wire.Frame, w *work, packets int) dma.Verdict {
	i := r.cursor.packet
	psn := r.nxt
	if w.started {
		psn = w.first.Add(i)
	}
	if w.answered() {
		r.buildAnswered(f, w, psn)
		return dma.OK
	}
	op := requestOpcodes[w.opcode].at(i, w.packets)
	h := r.e.header(f, op, psn)
	f.Cookie = uint64(psn)
	if op.Ends() {
		// SE belongs to messages that consume a receive (IBA 9.2).
		f.BTH().SetSolicited(w.flags&ib.SendSolicited != 0 && takesReceive(op))
		f.BTH().SetAckReq(true)
	} else if r.unasked+packets >= r.ackEvery() {
		f.BTH().SetAckReq(true)
	}
	r.addressTarget(h, w)
	if reth := wire.FindRETH(h); reth != nil {
		reth.SetVA(w.remote)
		reth.SetRKey(w.rkey)
		reth.SetLength(w.length)
	}
	if imm := wire.FindImmDt(h); imm != nil {
		imm.SetData(w.imm)
	}
	if inv := wire.FindIETH(h); inv != nil {
		inv.SetRKey(ib.RKey(w.imm))
	}
	off := uint64(i) * uint64(r.e.mtu)
	n := int(min(uint64(packets)*uint64(r.e.mtu), uint64(w.length)-off))
	f.SetRun(packets)
	// The owner left the bytes alone until now; after a first transmission the peer may have them, and he may know.
	f.Stable = psn == r.nxt
	if w.inline {
		f.Add(&r.q.inline, r.q.inlineAt(r.cursor.position)+off, n)
		return dma.OK
	}
	if w.entries == 0 && w.opcode == ib.WRAtomicWrite {
		f.Add(&r.q.values, r.q.valueAt(r.cursor.position), n)
		return dma.OK
	}
	return r.e.cfg.Table.Gather(f, r.e.cfg.Domain, r.q.list(r.cursor.position), off, n)
}

// buildAnswered makes a READ request, a FLUSH or an atomic. A READ that goes on from the middle asks for the rest, with the
// number of the first response that is missing: the RETH is the one thing that a repetition changes (IBA 9.7.5.1.1).
func (r *requester) buildAnswered(f *wire.Frame, w *work, psn ib.PSN) {
	h := r.e.header(f, requestOpcodes[w.opcode].only, psn)
	f.Cookie = uint64(psn)
	f.BTH().SetAckReq(true)
	r.addressTarget(h, w)
	if a := wire.FindAtomicETH(h); a != nil {
		a.SetVA(w.remote)
		a.SetRKey(w.rkey)
		a.SetSwapAdd(w.swap)
		if w.opcode == ib.WRAtomicCmpAndSwp {
			a.SetCompare(w.compare)
		}
		return
	}
	if a := wire.FindFETH(h); a != nil {
		buildFlush(a, wire.FindRETH(h), w)
		return
	}
	done := r.cursor.packet * uint32(r.e.mtu)
	reth := wire.FindRETH(h)
	reth.SetVA(w.remote + uint64(done))
	reth.SetRKey(w.rkey)
	reth.SetLength(w.length - done)
}

// ackEvery is how many packets of a long message go unasked at the most. Runs are no longer than that.
func (r *requester) ackEvery() int { return max(r.e.cfg.Limits.AckEvery, 1) }

// vendorOf tells people why a key was refused.
func vendorOf(v dma.Verdict) transport.VendorErr {
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
