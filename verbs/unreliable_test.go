package verbs_test

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// newTypedSide is newSide with a queue pair of another type.
func newTypedSide(t testing.TB, ctx *verbs.Context, typ ib.QPType, srq bool) *side {
	t.Helper()
	s := &side{t: t, ctx: ctx}
	s.pd = must(ctx.AllocPD())
	s.ch = must(ctx.CreateCompChannel())
	s.cq = must(ctx.CreateCQ(256, verbs.WithChannel(s.ch)))
	init := verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, Cap: smallCap}
	if srq {
		init.SRQ = must(s.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 16, MaxSGE: 2}))
	}
	s.qp = must(s.pd.CreateQP(init))
	s.buf = must(s.pd.AllocBuffer(1 << 16))
	s.mr = must(s.pd.RegMR(s.buf.Bytes(), everything))
	s.end = verbs.Endpoint{QPN: s.qp.QPN(), PSN: verbs.RandomPSN(), GID: must(ctx.QueryGID(1, 0)).GID}
	return s
}

// newTypedPair makes two devices on one network, or takes one for both, with a queue pair of a type on each side.
func newTypedPair(t testing.TB, typ ib.QPType, oneDevice, srq bool) (a, b *side) {
	t.Helper()
	var net embedded.Network
	ctx := openDevice(t, embedded.Options{Network: &net})
	a = newTypedSide(t, ctx, typ, false)
	if !oneDevice {
		ctx = openDevice(t, embedded.Options{Network: &net})
	}
	b = newTypedSide(t, ctx, typ, srq)
	return a, b
}

func connectUC(t testing.TB, a, b *side) {
	t.Helper()
	check(t, a.qp.ConnectUC(a.end, b.end, verbs.UCAttr{}))
	check(t, b.qp.ConnectUC(b.end, a.end, verbs.UCAttr{}))
}

const testQKey = 0x1234567

func activateUD(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		check(t, s.qp.ActivateUD(verbs.UDAttr{QKey: testQKey, PSN: s.end.PSN}))
	}
}

// to makes an address handle for a peer.
func (s *side) handle(peer *side) *verbs.AH {
	s.t.Helper()
	return must(s.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: peer.end.GID, TrafficClass: 0x28, HopLimit: 9}}))
}

// datagram is a send of the first n bytes to a peer.
func (s *side) datagram(id uint64, n int, ah *verbs.AH, peer *side) verbs.SendWR {
	wr := s.send(id, n)
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, peer.qp.QPN(), testQKey
	return wr
}

func (s *side) postRecv(wrs ...verbs.RecvWR) {
	s.t.Helper()
	if _, init, _ := s.qp.Query(); init.SRQ != nil {
		check(s.t, init.SRQ.PostRecv(wrs...))
		return
	}
	check(s.t, s.qp.PostRecv(wrs...))
}

// quiet wants nothing in the CQ for a while.
func (s *side) quiet() {
	s.t.Helper()
	time.Sleep(20 * time.Millisecond)
	var wc [4]verbs.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		s.t.Fatalf("completions %+v, error %v, want none", wc[:n], err)
	}
}

// Every operation of UC, within a packet and across many, between two devices and on one, with and without a shared receive
// queue.
func TestUCOperations(t *testing.T) {
	for _, oneDevice := range []bool{false, true} {
		for _, srq := range []bool{false, true} {
			a, b := newTypedPair(t, ib.QPTypeUC, oneDevice, srq)
			connectUC(t, a, b)
			for i, n := range []int{0, 1, 1000, 20000} {
				id := uint64(10 * i)
				fill(a.buf.Bytes(), id)
				b.postRecv(b.recv(id, 0, n))
				wr := a.send(id+1, n)
				wr.Opcode, wr.ImmData = ib.WRSendWithImm, 7
				check(t, a.qp.PostSend(wr))
				wc := b.expect(id, ib.WCSuccess)
				if wc.ByteLen != uint32(n) || wc.Opcode != ib.WCRecv || wc.Flags != ib.WCWithImm || wc.ImmData != 7 || wc.SrcQP != a.qp.QPN() {
					t.Errorf("send of %d bytes: receive %+v", n, wc)
				}
				if !bytes.Equal(a.buf.Bytes()[:n], b.buf.Bytes()[:n]) {
					t.Errorf("send of %d bytes: other bytes arrived", n)
				}
				a.expect(id+1, ib.WCSuccess)

				fill(a.buf.Bytes(), id+5)
				b.postRecv(b.recv(id+2, 0, 0))
				check(t, a.qp.PostSend(a.rdma(ib.WRRDMAWrite, id+3, n, b, 0), a.rdma(ib.WRRDMAWriteWithImm, id+4, n, b, 0)))
				a.expect(id+3, ib.WCSuccess)
				a.expect(id+4, ib.WCSuccess)
				if wc := b.expect(id+2, ib.WCSuccess); wc.ByteLen != uint32(n) || wc.Opcode != ib.WCRecvRDMAWithImm {
					t.Errorf("write of %d bytes: receive %+v", n, wc)
				}
				if !bytes.Equal(a.buf.Bytes()[:n], b.buf.Bytes()[:n]) {
					t.Errorf("write of %d bytes: other bytes arrived", n)
				}
			}
		}
	}
}

// What goes wrong at the peer of an unreliable connection is no error anywhere (IBA 9.8.2).
func TestUCLosesSilently(t *testing.T) {
	a, b := newTypedPair(t, ib.QPTypeUC, false, false)
	connectUC(t, a, b)
	check(t, a.qp.PostSend(a.send(1, 100)))                          // no receive
	check(t, a.qp.PostSend(a.rdma(ib.WRRDMAWrite, 2, 100, b, 0x10))) // no such key
	a.expect(1, ib.WCSuccess)
	a.expect(2, ib.WCSuccess)
	b.quiet()
	check(t, b.qp.PostRecv(b.recv(3, 0, 50)))
	check(t, a.qp.PostSend(a.send(4, 51), a.send(5, 50))) // the first is too long, and the receive stays
	a.expect(4, ib.WCSuccess)
	a.expect(5, ib.WCSuccess)
	if wc := b.expect(3, ib.WCSuccess); wc.ByteLen != 50 {
		t.Errorf("receive %+v", wc)
	}
	if a.qp.State() != ib.StateRTS || b.qp.State() != ib.StateRTS {
		t.Errorf("states %v and %v", a.qp.State(), b.qp.State())
	}
}

// Datagrams go where the handle says, and tell where they came from, so that an answer finds its way.
func TestUDConversation(t *testing.T) {
	for _, oneDevice := range []bool{false, true} {
		for _, srq := range []bool{false, true} {
			a, b := newTypedPair(t, ib.QPTypeUD, oneDevice, srq)
			activateUD(t, a, b)
			ah := a.handle(b)
			for i, n := range []int{0, 1, 1023} {
				id := uint64(10 * i)
				fill(a.buf.Bytes(), id)
				b.postRecv(b.recv(id, 0, n+verbs.GRHSize))
				wr := a.datagram(id+1, n, ah, b)
				wr.Opcode, wr.ImmData = ib.WRSendWithImm, 9
				check(t, a.qp.PostSend(wr))
				a.expect(id+1, ib.WCSuccess)
				wc := b.expect(id, ib.WCSuccess)
				if wc.ByteLen != uint32(n+40) || wc.SrcQP != a.qp.QPN() || wc.Flags != ib.WCGRH|ib.WCWithImm || wc.ImmData != 9 {
					t.Errorf("%d bytes: receive %+v", n, wc)
				}
				if !bytes.Equal(a.buf.Bytes()[:n], b.buf.Bytes()[40:40+n]) {
					t.Errorf("%d bytes: other bytes arrived", n)
				}
				attr := must(b.ctx.InitAHFromWC(1, &wc, b.buf.Bytes()))
				// The handle's traffic class, and ECT(0): the datagram asked to be marked.
				if attr.GRH.DGID != a.end.GID || attr.GRH.TrafficClass != 0x2a || attr.GRH.HopLimit != 9 {
					t.Errorf("address vector of the answer: %+v", attr)
				}
				back := must(b.pd.CreateAHFromWC(1, &wc, b.buf.Bytes()))
				check(t, a.qp.PostRecv(a.recv(id+2, 0, 100)))
				answer := b.datagram(id+3, 16, back, a)
				answer.RemoteQPN = wc.SrcQP
				check(t, b.qp.PostSend(answer))
				b.expect(id+3, ib.WCSuccess)
				a.expect(id+2, ib.WCSuccess)
				check(t, back.Destroy())
			}
			check(t, ah.Destroy())
		}
	}
}

// B19, and what else is dropped without a word: the queue pair stays in RTS, the receive posted.
func TestUDMismatches(t *testing.T) {
	a, b := newTypedPair(t, ib.QPTypeUD, false, false)
	activateUD(t, a, b)
	ah := a.handle(b)
	check(t, b.qp.PostRecv(b.recv(1, 0, 140)))
	long, key := a.datagram(2, 101, ah, b), a.datagram(3, 10, ah, b)
	key.RemoteQKey++
	check(t, a.qp.PostSend(long, key, a.datagram(4, 100, ah, b)))
	for id := uint64(2); id <= 4; id++ {
		a.expect(id, ib.WCSuccess)
	}
	if wc := b.expect(1, ib.WCSuccess); wc.ByteLen != 140 {
		t.Errorf("receive %+v", wc)
	}
	b.quiet()
	if s := b.qp.State(); s != ib.StateRTS {
		t.Errorf("state %v", s)
	}
	if p := must(b.ctx.QueryPort(1)); p.QKeyViolCntr != 1 {
		t.Errorf("qkey_viol_cntr is %d, want 1", p.QKeyViolCntr)
	}
}

// A local error ends the send queue alone. What was posted is flushed, receives go on, and RTS makes it whole again.
func TestSendQueueError(t *testing.T) {
	for name, spoil := range map[string]struct {
		do     func(wr *verbs.SendWR, other *side)
		status ib.WCStatus
	}{
		"key":     {func(wr *verbs.SendWR, _ *side) { wr.SGList[0].LKey ^= 0x100 }, ib.WCLocProtErr},
		"opcode":  {func(wr *verbs.SendWR, _ *side) { wr.Opcode = ib.WRRDMARead }, ib.WCLocQPOpErr},
		"length":  {func(wr *verbs.SendWR, s *side) { wr.SGList[0].Length = 4097 }, ib.WCLocLenErr},
		"address": {func(wr *verbs.SendWR, s *side) { wr.AH = s.inOtherDomain() }, ib.WCLocQPOpErr},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newTypedPair(t, ib.QPTypeUD, false, false)
			activateUD(t, a, b)
			ah := a.handle(b)
			bad := a.datagram(2, 10, ah, b)
			spoil.do(&bad, a)
			check(t, b.qp.PostRecv(b.recv(11, 0, 100), b.recv(12, 0, 100)))
			check(t, a.qp.PostRecv(a.recv(13, 0, 100)))
			check(t, a.qp.PostSend(a.datagram(1, 10, ah, b), bad, a.datagram(3, 10, ah, b)))
			a.expect(1, ib.WCSuccess)
			a.expect(2, spoil.status)
			a.expect(3, ib.WCWRFlushErr)
			b.expect(11, ib.WCSuccess)
			if s := a.qp.State(); s != ib.StateSQE {
				t.Fatalf("state %v, want SQE", s)
			}
			check(t, b.qp.PostSend(b.datagram(21, 10, b.handle(a), a)))
			a.expect(13, ib.WCSuccess)
			check(t, a.qp.PostSend(a.datagram(4, 10, ah, b)))
			a.expect(4, ib.WCWRFlushErr)
			check(t, a.qp.Modify(&verbs.QPAttr{State: ib.StateRTS}, ib.QPAttrState))
			check(t, a.qp.PostSend(a.datagram(5, 10, ah, b)))
			a.expect(5, ib.WCSuccess)
			// Those of a send queue and of a receive queue, in either order.
			if x, y := b.next(), b.next(); x.WRID+y.WRID != 21+12 || x.Status != ib.WCSuccess || y.Status != ib.WCSuccess {
				t.Errorf("completions %+v and %+v", x, y)
			}
		})
	}
}

// inOtherDomain makes an address handle of another protection domain.
func (s *side) inOtherDomain() *verbs.AH {
	return must(must(s.ctx.AllocPD()).CreateAH(verbs.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: s.end.GID}}))
}

func TestAHMistakes(t *testing.T) {
	a, b := newTypedPair(t, ib.QPTypeUD, false, false)
	activateUD(t, a, b)
	right := verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: b.end.GID}}
	other := ib.GIDFromAddr(netip.MustParseAddr("2001:db8::1"))
	if !b.end.GID.Is4() {
		other = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	}
	for name, change := range map[string]func(*verbs.AHAttr){
		"no GRH":           func(x *verbs.AHAttr) { x.IsGlobal = false },
		"port 2":           func(x *verbs.AHAttr) { x.PortNum = 2 },
		"SL 8":             func(x *verbs.AHAttr) { x.SL = 8 },
		"index 255":        func(x *verbs.AHAttr) { x.GRH.SGIDIndex = 255 },
		"other family":     func(x *verbs.AHAttr) { x.GRH.DGID = other },
		"destination zero": func(x *verbs.AHAttr) { x.GRH.DGID = ib.GID{} },
	} {
		x := right
		change(&x)
		if _, err := a.pd.CreateAH(x); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			wantErrno(t, err, syscall.EINVAL)
		}
	}
	ah := must(a.pd.CreateAH(right))
	wantErrno(t, a.pd.Dealloc(), syscall.EBUSY)
	check(t, ah.Destroy())
	wantErrno(t, ah.Destroy(), syscall.EINVAL)
	wantErrno(t, a.qp.PostSend(a.send(1, 10)), syscall.EINVAL)
	// A handle that is gone is found out by the device.
	check(t, a.qp.PostSend(a.datagram(2, 10, ah, b)))
	a.expect(2, ib.WCLocQPOpErr)
}

func TestInitAHFromWCMistakes(t *testing.T) {
	a, _ := newTypedPair(t, ib.QPTypeUD, false, false)
	var v6 [40]byte
	v6[0] = 6 << 4
	wc := verbs.WC{Flags: ib.WCGRH}
	for name, c := range map[string]struct {
		wc  verbs.WC
		grh []byte
	}{
		"no GRH":    {verbs.WC{}, v6[:]},
		"short":     {wc, v6[:39]},
		"zeros":     {wc, make([]byte, 40)},
		"not to us": {wc, v6[:]},
	} {
		if _, err := a.ctx.InitAHFromWC(1, &c.wc, c.grh); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			wantErrno(t, err, syscall.EINVAL)
		}
	}
}

// Thread and parent domains are accepted, and hold each other.
func TestParentDomains(t *testing.T) {
	a, _ := newPair(t)
	td := must(a.ctx.AllocTD())
	pd := must(a.ctx.AllocPD())
	parent := must(a.ctx.AllocParentDomain(verbs.ParentDomainAttr{PD: pd, TD: td}))
	wantErrno(t, td.Dealloc(), syscall.EBUSY)
	wantErrno(t, pd.Dealloc(), syscall.EBUSY)
	_, err := a.ctx.AllocParentDomain(verbs.ParentDomainAttr{PD: parent})
	wantErrno(t, err, syscall.EINVAL)
	_, err = a.ctx.AllocParentDomain(verbs.ParentDomainAttr{TD: td})
	wantErrno(t, err, syscall.EINVAL)
	qp := must(parent.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: smallCap}))
	check(t, parent.Dealloc())
	check(t, td.Dealloc())
	wantErrno(t, pd.Dealloc(), syscall.EBUSY) // the queue pair is in it
	check(t, qp.Close())
	check(t, pd.Dealloc())
}
