package sim

import (
	"bytes"
	"encoding/binary"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

// What is right over an unreliable service. Every request ends well, once, in order, and not before its packets have left.
// What is received are messages whose ends arrived, in the order in which they did, and each as often at most; to the
// byte. A WRITE may have come in part, but only its own bytes change.

// arrival is the end of a message that has come to the port.
type arrival struct {
	message int // request of the peer
	class   uint8
}

// checkFrame asks of a frame what must be true of all, and returns which request it belongs to.
func (t *talker) checkFrame(f *wire.Frame) (message int) {
	w, h := t.w, f.BTH()
	to, qpn := t.destination()
	if f.Path.Source != t.node.gid || f.Path.Dest != to || h.DestQP() != qpn || h.PKey() != ib.DefaultPKey {
		w.accuse("%s sent a packet somewhere else: % x", t.name, f.Header())
	}
	if h.Opcode() == wire.CNP {
		return -1
	}
	service := wire.ServiceUC
	if t.plan.Service == ib.QPTypeUD {
		service = wire.ServiceUD
	}
	switch {
	case t.dead || t.left >= t.posted:
		w.accuse("%s sent %v, and nothing was asked of it", t.name, h.Opcode())
		return -1
	case h.Opcode().Service() != service || !h.Opcode().Valid() || h.AckReq():
		w.accuse("%s sent a header that makes no sense: % x", t.name, f.Header())
	case t.sqd != nil && !h.PSN().Before(t.sqd.limit):
		w.accuse("%s sent psn %v in SQD, and what may have been begun ends before %v", t.name, h.PSN(), t.sqd.limit)
	case h.PSN() != t.fresh:
		w.accuse("%s sent psn %v, its next is %v", t.name, h.PSN(), t.fresh)
	case f.PayloadLen() > t.plan.MTU.Bytes():
		w.accuse("%s sent %d bytes over a path MTU of %v", t.name, f.PayloadLen(), t.plan.MTU)
	}
	message = t.left
	t.fresh = t.fresh.Next()
	if h.Opcode().Ends() {
		t.left++
	}
	return message
}

// arrive notes a packet that the port has let in.
func (t *talker) arrive(p *packet) {
	if op := wire.Opcode(p.Bytes[0]); p.message >= 0 && op.Ends() {
		t.arrivals = append(t.arrivals, arrival{p.message, p.TrafficClass})
	}
}

// drain takes all completions.
func (t *talker) drain() {
	var batch [8]abi.CQE
	for {
		n, err := t.reader.Poll(batch[:])
		if err != nil {
			t.w.failf("%s: %v", t.name, err)
		}
		for i := range batch[:n] {
			c := &batch[i]
			t.w.record(uint64(t.w.now), c.WRID, uint64(c.Status)<<32|uint64(c.ByteLen), uint64(c.Imm)<<32|uint64(c.WQEIndex))
			switch {
			case c.QPN != uint32(t.qp.QPN()):
			case c.Queue == abi.QueueSend:
				t.sent(c)
				continue
			case c.Queue == abi.QueueRecv:
				t.received(c)
				continue
			}
			t.w.failf("%s: a completion that belongs nowhere: %+v", t.name, *c)
		}
		if n == 0 {
			return
		}
	}
}

// sent judges the completion of a request.
func (t *talker) sent(c *abi.CQE) {
	i := t.base + int(c.WQEIndex)
	if i < t.ended || i >= t.posted || c.WRID != t.id(abi.QueueSend, i) {
		t.w.failf("%s: completion of request #%d with wr_id %#x; %d are posted and %d have ended", t.name, i, c.WRID, t.posted, t.ended)
	}
	if i >= t.left {
		t.w.failf("%s: request #%d has ended, and not all of its packets have left", t.name, i)
	}
	for ; t.ended <= i; t.ended++ {
		r := &t.script[t.ended]
		if r.signaled != (t.ended == i) {
			t.w.failf("%s: completion of request #%d, and #%d has signaled %v", t.name, i, t.ended, r.signaled)
		}
		if r.local != nil && r.local.wrong() >= 0 {
			t.w.failf("%s: request #%d has changed its own memory", t.name, t.ended)
		}
		r.local.free(r)
	}
	r := &t.script[i]
	if ib.WCStatus(c.Status) != ib.WCSuccess || ib.WCOpcode(c.Opcode) != r.ends || c.ByteLen != uint32(r.length) {
		t.w.failf("%s: %v #%d of %d bytes ended with %v as %v of %d", t.name, r.op, i, r.length, ib.WCStatus(c.Status), ib.WCOpcode(c.Opcode), c.ByteLen)
	}
}

// received judges the completion of a receive: they end in order, and with a message that has arrived.
func (t *talker) received(c *abi.CQE) {
	w := t.w
	if t.recvBase+int(c.WQEIndex) != t.taken || t.taken >= t.ready || c.WRID != t.id(abi.QueueRecv, t.taken) {
		w.failf("%s: completion of receive #%d with wr_id %#x; %d are posted and %d have ended", t.name, c.WQEIndex, c.WRID, t.ready, t.taken)
	}
	v := &t.receives[t.taken]
	t.taken++
	// A message of which the end was lost may have left its beginning in the list. Gaps in it stay.
	got := v.contents()
	if at := v.slot.wrong(); at >= 0 {
		w.failf("%s: receive #%d has changed byte %d beside its list", t.name, c.WQEIndex, at)
	}
	defer v.slot.free(v)
	switch s := ib.WCStatus(c.Status); {
	case s == ib.WCWRFlushErr && t.closed:
		t.flushed++
		return
	case s != ib.WCSuccess || t.flushed > 0:
		w.failf("%s: receive #%d ended with %v", t.name, c.WQEIndex, s)
	}
	before := t.heard
	for ; t.heard < len(t.arrivals); t.heard++ {
		if a := t.arrivals[t.heard]; t.is(a, c, got) {
			r := &t.peer.script[a.message]
			w.logf(t.name, "receive #%d: message #%d", c.WQEIndex, a.message)
			w.census[t.plan.Service.String()+" "+r.op.String()+" received"]++
			if t.plan.Group {
				w.census["datagrams to a group received"]++
			}
			t.heard++
			return
		}
	}
	w.failf("%s: what was received into #%d is none of the %d messages that came since the last: %d bytes, opcode %v, flags %v, immediate %#x",
		t.name, c.WQEIndex, len(t.arrivals)-before, c.ByteLen, ib.WCOpcode(c.Opcode), ib.WCFlags(c.Flags), c.Imm)
}

// contents returns what a list holds, and takes it into the model.
func (v *receive) contents() (b []byte) {
	s := v.slot
	for _, e := range v.list {
		if e.Length > 0 {
			at := int(e.Addr - s.area.base)
			part := s.area.mem[at : at+int(e.Length)]
			s.expect(at-s.off, part)
			b = append(b, part...)
		}
	}
	return b
}

// is reports whether a completion tells of the message that arrived, to the byte.
func (t *talker) is(a arrival, c *abi.CQE, got []byte) bool {
	r := &t.peer.script[a.message]
	op, flags, want := ib.WCRecv, ib.WCFlags(0), r.data
	switch {
	case !r.consumes():
		return false
	case r.isWrite():
		op, want = ib.WCRecvRDMAWithImm, nil
	}
	n := r.length
	if r.hasImm() {
		flags |= ib.WCWithImm
	}
	if t.plan.Service == ib.QPTypeUD {
		if len(got) < ib.GRHSize || !bytes.Equal(got[:ib.GRHSize], t.header(a, r)) {
			return false
		}
		flags |= ib.WCGRH
		n += ib.GRHSize
		got = got[ib.GRHSize:]
	}
	if ib.WCOpcode(c.Opcode) != op || c.ByteLen != uint32(n) || ib.WCFlags(c.Flags) != flags || c.Imm != r.imm ||
		c.SrcQP != uint32(t.peer.qp.QPN()) || len(got) < len(want) || !bytes.Equal(got[:len(want)], want) {
		return false
	}
	// The immediate of a WRITE says that the bytes before it are there.
	return !r.isWrite() || bytes.Equal(t.target.mem[r.remote.off+r.at:][:r.length], r.data)
}

// hopsLeft is what a hop leaves of the limit that devices set.
const hopsLeft = 63

// header is the network header in front of a datagram: that of IPv6, or nothing and that of IPv4.
func (t *talker) header(a arrival, r *request) []byte {
	b := make([]byte, ib.GRHSize)
	n := 8 + wire.BTHSize + 8 + (r.length+3)&^3 + wire.ICRCSize // UDP, BTH, DETH
	if r.hasImm() {
		n += 4
	}
	from, to := t.peer.node.gid, t.node.gid
	if t.plan.Group {
		to = t.w.group()
	}
	if t.w.plan.IPv6 {
		binary.BigEndian.PutUint32(b, 6<<28|uint32(a.class)<<20)
		binary.BigEndian.PutUint16(b[4:], uint16(n))
		b[6], b[7] = 17, hopsLeft
		copy(b[8:], from[:])
		copy(b[24:], to[:])
		return b
	}
	h := b[20:]
	h[0], h[1], h[8], h[9] = 0x45, a.class, hopsLeft, 17
	binary.BigEndian.PutUint16(h[2:], uint16(20+n))
	copy(h[12:], from[12:])
	copy(h[16:], to[12:])
	binary.BigEndian.PutUint16(h[10:], ud.Checksum(h))
	return b
}

// endTalks takes all talkers to the error state and asks what is left: nothing.
func (w *world) endTalks() {
	for _, t := range w.talkers {
		if t.dead {
			continue
		}
		t.checkHearing()
		t.closed = true
		if err := t.ctx.ModifyQP(t.qp, &ib.QPAttr{State: ib.StateErr}, ib.QPAttrState); err != nil {
			w.failf("%s: %v", t.name, err)
		}
		t.ring()
		t.wake(w.now + 1)
	}
	w.settle()
	for _, t := range w.talkers {
		if t.dead {
			continue
		}
		if t.taken != t.ready {
			w.failf("%s: %d of %d receives were flushed", t.name, t.flushed, t.ready-t.taken+t.flushed)
		}
		t.checkMemory()
		if w.plan.Piecemeal {
			t.dismantle()
		}
		if err := t.ctx.Close(); err != nil {
			w.failf("%s: %v", t.name, err)
		}
		for _, b := range t.blocks() {
			scribble(b)
		}
	}
}

// checkHearing asks whether all has arrived, if nothing went wrong on the network, and whether the numbers are right.
func (t *talker) checkHearing() {
	w := t.w
	if a, _, _ := t.ctx.QueryQP(t.qp); a.SQPSN != t.fresh || a.State != ib.StateRTS || t.left != t.posted {
		w.failf("%s: after %d of %d requests the next psn is %v and should be %v; it is in %v", t.name, t.left, t.posted, a.SQPSN, t.fresh, a.State)
	}
	sent, received := 0, t.taken-t.reset
	for i := range t.peer.posted {
		if t.peer.script[i].consumes() {
			sent++
		}
	}
	switch {
	case received < sent && w.plan.clean():
		w.failf("%s: nothing went wrong on the network, and %d of %d messages were received", t.name, received, sent)
	case received > sent:
		w.census["unreliable messages received again"]++
	case received < sent:
		w.census["unreliable messages that were lost"] += sent - received
	}
}

// checkMemory compares all memory with the model. Of a WRITE some bytes may have come, and on a clean network all have.
func (t *talker) checkMemory() {
	w := t.w
	if at := t.arena.broken(); at >= 0 {
		w.failf("%s: byte %d of its memory, which is no region's, was changed", t.name, at)
	}
	for i := range t.peer.posted {
		r := &t.peer.script[i]
		if !r.isWrite() {
			continue
		}
		at := r.remote.off + r.at
		for j, x := range t.target.mem[at:][:r.length] {
			if x == r.data[j] {
				t.target.model[at+j] = x
			} else if w.plan.clean() {
				w.failf("%s: nothing went wrong on the network, and byte %d of %v #%d has not come", t.name, j, r.op, i)
			}
		}
		w.census[t.plan.Service.String()+" "+r.op.String()]++
	}
	for _, a := range t.arena.areas {
		if at := a.differs(0, len(a.mem)); at >= 0 {
			w.failf("%s: byte %d of memory that nobody asked to change was changed", t.name, at)
		}
	}
}

func (t *talker) dismantle() {
	destroy := func(err error) {
		if err != nil {
			t.w.failf("%s: %v", t.name, err)
		}
	}
	if t.ah != nil {
		destroy(t.ctx.DestroyAH(t.ah))
	}
	destroy(t.leave())
	destroy(t.ctx.DestroyQP(t.qp))
	for _, a := range t.arena.areas {
		destroy(t.ctx.DeregMR(a.mr))
	}
	destroy(t.ctx.DestroyCQ(t.cq))
	destroy(t.ctx.DeallocPD(t.pd))
}

// expectUntouched looks for what the device wrote into memory that it had given back.
func (t *talker) expectUntouched() {
	for _, b := range t.blocks() {
		if at := notCanary(b); at >= 0 {
			t.w.failf("%s: byte %d of a block of %d was written after its end", t.name, at, len(b))
		}
	}
}
