package rc

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// bind is a request to bind the script's window to n bytes at off of the region, under its key's next variant. The window
// is made the first time.
func (s *script) bind(handle uint32, off, n uint64) transport.Request {
	s.t.Helper()
	if s.window == nil {
		s.window = &dma.Window{Domain: s.pd, Type: ib.MWType2, Handle: handle}
		if err := s.table.InsertWindow(s.window); err != nil {
			s.t.Fatal(err)
		}
	}
	return transport.Request{
		Opcode: ib.WRBindMW, Flags: ib.SendSignaled, RKey: s.window.RKey().Inc(), Remote: base + off, Length: n,
		Bind: transport.Bind{Window: handle, LKey: s.mr.LKey, Access: ib.AccessRemoteRead | ib.AccessRemoteWrite},
	}
}

// mayRead says whether the peer can read 8 bytes at off through a key.
func (s *script) mayRead(key ib.RKey, off uint64, want dma.Verdict) {
	s.t.Helper()
	if _, v := s.table.Remote(s.pd, localQPN, key, base+off, 8, ib.AccessRemoteRead); v != want {
		s.t.Fatalf("reading through %#x: %v, want %v", uint32(key), v, want)
	}
}

// BIND_MW and LOCAL_INV make no packets and take no numbers (IBA 9.7.3.1), and complete in order (IBA 10.8.3.3).
func TestBindAndInvalidate(t *testing.T) {
	s := newScript(t)
	b := s.bind(7, 64, 8)
	s.post(send(1), b, send(2), localInv(b.RKey), send(3))
	// The bind is in order with what is sent, and does not wait for its acknowledgement; LOCAL_INV waits.
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.mayRead(b.RKey, 64, dma.OK)
	s.completes() // in their turn
	s.deliver(at(us), ack(100))
	s.completes(success(1), success(2))
	s.mayRead(b.RKey, 64, dma.OK)
	s.deliver(at(2*us), ack(101))
	s.expect(at(2*us), sendOnly(102, 3))
	s.completes(success(3), success(4))
	s.mayRead(b.RKey, 64, dma.BadKey)
	s.deliver(at(3*us), ack(102))
	s.completes(success(5))
}

func TestLocalCompletions(t *testing.T) {
	s := newScript(t)
	b := s.bind(7, 0, 8)
	s.post(b, localInv(b.RKey), unsignaled(b))
	s.transmit()
	if len(s.qp.sendDone) != 2 || s.qp.silent != 1 {
		t.Fatalf("%v and %d silent", s.qp.sendDone, s.qp.silent)
	}
	for i, want := range []ib.WCOpcode{ib.WCBindMW, ib.WCLocalInv} {
		if d := s.qp.sendDone[i].detail; d.Opcode != want || d.ByteLen != 0 {
			t.Errorf("%+v, want %v", d, want)
		}
	}
	s.completes(success(1), success(2))
	s.mayRead(b.RKey, 0, dma.OK)
}

// Field bug B8: a retry repeats packets, never an operation on the keys of this side. Bound twice, the window would refuse,
// and the connection would end.
func TestB8RetryReplaysNoLocalOperation(t *testing.T) {
	s := newScript(t, ackTimeout(10, 7))
	b := s.bind(7, 0, 8)
	s.post(write(1), b, send(2), unsignaled(send(3)))
	s.expect(at(0), writeOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
	s.mayRead(b.RKey, 0, dma.OK)
	for _, v := range []dma.Verdict{dma.OK, dma.BadKey} {
		s.expect(s.now.Add(ib.AckTimeout(10)), writeOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
		s.mayRead(b.RKey, 0, v)
		s.deliver(s.now.Add(us), nak(100, wire.NakSequence))
		s.expect(s.now, writeOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
		s.mayRead(b.RKey, 0, v)
		// Somebody else ends it: the retry does not bind it anew.
		s.table.Invalidate(s.pd, localQPN, b.RKey, false)
	}
	s.deliver(s.now.Add(us), ack(101))
	s.completes(success(1), success(2), success(3))
	s.deliver(s.now.Add(us), ack(102))
	s.inState(ib.StateRTS)
}

// Field bug B8, the other half: LOCAL_INV behind a SEND that is lost is performed when that has arrived, once.
func TestB8LocalInvalidateAfterTheRetry(t *testing.T) {
	s := newScript(t, ackTimeout(10, 7))
	b := s.bind(7, 0, 8)
	s.post(b, send(1), localInv(b.RKey), s.again(b, 1), send(2))
	s.expect(at(0), sendOnly(100, 1))
	s.completes(success(1))
	s.expect(s.now.Add(ib.AckTimeout(10)), sendOnly(100, 1))
	s.mayRead(b.RKey, 0, dma.OK)
	s.deliver(s.now.Add(us), ack(100))
	s.expect(s.now, sendOnly(101, 2))
	s.completes(success(2), success(3), success(4))
	s.mayRead(b.RKey, 0, dma.BadKey)
	s.mayRead(b.RKey+1, 0, dma.OK)
	s.expect(s.now.Add(ib.AckTimeout(10)), sendOnly(101, 2))
	s.mayRead(b.RKey+1, 0, dma.OK)
	s.deliver(s.now.Add(us), ack(101))
	s.completes(success(5))
}

// again is a bind under another variant.
func (s *script) again(b transport.Request, by ib.RKey) transport.Request {
	b.RKey += by
	return b
}

// Field bug B9, the part of LOCAL_INV: it waits for everything before it, fence or not; a fence on anything else waits for
// READs and atomics only.
func TestB9LocalInvalidateWaitsForAll(t *testing.T) {
	for name, before := range map[string]struct {
		request transport.Request
		sent    packet
		answer  packet
	}{
		"SEND":  {send(4), sendOnly(100, 4), ack(100)},
		"WRITE": {write(4), writeOnly(100, 4), ack(100)},
		"READ":  {read(4), readRequest(100, 0, 4), readOnly(100, 0, 4)},
		"FAA":   {fetchAdd(1), of(wire.RCFetchAdd, 100, 0), atomicAck(100, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			b := s.bind(7, 0, 8)
			s.post(b, before.request, localInv(b.RKey), send(1))
			s.expect(at(0), before.sent)
			s.completes(success(1))
			s.mayRead(b.RKey, 0, dma.OK)
			s.expect(at(100 * us))
			s.deliver(at(200*us), before.answer)
			s.expect(at(200*us), sendOnly(101, 1))
			s.mayRead(b.RKey, 0, dma.BadKey)
			s.completes(success(2), success(3))
			s.deliver(at(300*us), ack(101))
			s.completes(success(4))
		})
	}
}

// IBA 10.8.3.3: a bind behind a READ waits only behind a fence.
func TestBindAndFence(t *testing.T) {
	for _, fence := range []ib.SendFlags{0, ib.SendFence} {
		s := newScript(t)
		b := with(s.bind(7, 0, 8), fence)
		s.post(read(4), b)
		s.expect(at(0), readRequest(100, 0, 4))
		want := dma.OK
		if fence != 0 {
			want = dma.BadKey
		}
		s.mayRead(b.RKey, 0, want)
		s.deliver(at(us), readOnly(100, 0, 4))
		s.completes(success(1), success(2))
		s.mayRead(b.RKey, 0, dma.OK)
	}
}

// A window that is closed, or a receiver that is not ready, keeps nothing local from its turn but order.
func TestBindInAFullWindow(t *testing.T) {
	s := newScript(t, windowOf(1))
	b := s.bind(7, 0, 8)
	s.post(send(1), b, send(2))
	s.expect(at(0), sendOnly(100, 1))
	s.mayRead(b.RKey, 0, dma.OK)
	s.deliver(at(us), rnrNak(100, 1))
	s.expect(at(11*us), sendOnly(100, 1))
	s.deliver(at(20*us), ack(100))
	s.expect(at(20*us), sendOnly(101, 2))
	s.completes(success(1), success(2))
	s.deliver(at(30*us), ack(101))
	s.completes(success(3))
}

// More local operations than the ring holds are performed without any packet that would wake the requester.
func TestManyLocalOperations(t *testing.T) {
	s := newScript(t, sendQueue(4))
	b := s.bind(7, 0, 8)
	var want []completed
	for i := range uint64(50) {
		s.post(b, localInv(b.RKey))
		want = append(want, success(2*i+1), success(2*i+2))
	}
	n, more := s.e.Transmit(s.now, s.burst, 5*flushBytes)
	if n != 5*flushBytes || !more || len(s.qp.sendDone) != 5 {
		t.Fatalf("%d bytes, more %v, %d completions", n, more, len(s.qp.sendDone))
	}
	s.completes(want...)
}

// The binding is judged when its turn comes, and the error ends the queue pair as every local error does (MW_BIND_ERR).
// IBA calls this status the memory management operation error, for LOCAL_INV alike. Linux rxe gives LOC_QP_OP_ERR to that;
// rdma-unit-test, written for hardware, wants MW_BIND_ERR (CrossQpInvalidate, UnsignaledLocalInvalidateError).
func TestLocalOperationsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		request func(s *script) transport.Request
		vendor  transport.VendorErr
	}{
		"bind: bound already": {func(s *script) transport.Request { return s.again(s.bind(7, 0, 8), 1) }, transport.VendorBadState},
		"bind: key of another window": {func(s *script) transport.Request {
			return s.again(s.bind(7, 0, 8), 0x5500)
		}, transport.VendorBadKey},
		"bind: range wraps (B3)": {func(s *script) transport.Request {
			b := s.bind(7, 0, ^uint64(0)-base+2)
			s.table.Invalidate(s.pd, localQPN, s.window.RKey(), false)
			return b
		}, transport.VendorBadRange},
		"bind: a right that windows have not": {func(s *script) transport.Request {
			b := s.bind(7, 0, 8)
			s.table.Invalidate(s.pd, localQPN, s.window.RKey(), false)
			b.Bind.Access = ib.AccessLocalWrite
			return b
		}, transport.VendorBadAccess},
		"invalidate: another variant": {func(s *script) transport.Request { return localInv(s.window.RKey() + 1) }, transport.VendorBadKey},
		"invalidate: a region":        {func(s *script) transport.Request { return localInv(s.mr.RKey) }, transport.VendorBadKey},
		"invalidate: of another queue pair (B31)": {func(s *script) transport.Request {
			w := &dma.Window{Domain: s.pd, Type: ib.MWType2}
			if err := s.table.InsertWindow(w); err != nil {
				s.t.Fatal(err)
			}
			s.table.Bind(s.pd, localQPN+1, &dma.Bind{Key: w.RKey(), LKey: s.mr.LKey, Addr: base, Length: 8})
			return localInv(w.RKey())
		}, transport.VendorBadDomain},
		"invalidate: type 1 (o10-37.2.26)": {func(s *script) transport.Request {
			w := &dma.Window{Domain: s.pd, Type: ib.MWType1}
			if err := s.table.InsertWindow(w); err != nil {
				s.t.Fatal(err)
			}
			s.table.Bind(s.pd, localQPN, &dma.Bind{Key: w.RKey(), LKey: s.mr.LKey, Addr: base, Length: 8})
			return localInv(w.RKey())
		}, transport.VendorBadState},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.post(s.bind(7, 0, 8))
			s.completes(success(1))
			s.post(send(1), unsignaled(c.request(s)), send(2))
			s.expect(at(0), sendOnly(100, 1))
			s.completes()
			s.deliver(at(us), ack(100))
			s.transmit()
			s.qp.vendor(1, c.vendor)
			s.completes(success(2), failed(3, ib.WCMWBindErr), failed(4, ib.WCWRFlushErr))
			s.inState(ib.StateErr)
		})
	}
}

// IBA 10.3.1.6: what was not started waits in SQD, local operations too, and the queue drains without them.
func TestLocalOperationsInSQD(t *testing.T) {
	s := newScript(t)
	b := s.bind(7, 0, 8)
	s.post(send(1))
	s.expect(at(0), sendOnly(100, 1))
	s.modify(ib.StateSQD, 0)
	s.post(b, localInv(b.RKey))
	s.deliver(at(us), ack(100))
	s.completes(success(1))
	s.mayRead(b.RKey, 0, dma.BadKey)
	var a ib.QPAttr
	if s.e.Query(&a); a.SQDraining {
		t.Fatal("it never drains")
	}
	s.modify(ib.StateRTS, 0)
	s.completes(success(2), success(3))
}

// A CQ that overruns at a local operation's completion ends everything behind it.
func TestOverrunAtALocalOperation(t *testing.T) {
	s := newScript(t)
	b := s.bind(7, 0, 8)
	s.qp.overrun = true
	s.post(b, send(1))
	s.completes(success(1), failed(2, ib.WCWRFlushErr))
	s.inState(ib.StateErr)
}

// Bound or not: what has not completed when the queue pair fails is flushed.
func TestLocalOperationsAreFlushed(t *testing.T) {
	s := newScript(t)
	b := s.bind(7, 0, 8)
	s.post(send(1), b, localInv(b.RKey), send(2))
	s.expect(at(0), sendOnly(100, 1))
	s.deliver(at(us), nak(100, wire.NakRemoteAccess))
	s.completes(failed(1, ib.WCRemAccessErr), failed(2, ib.WCWRFlushErr), failed(3, ib.WCWRFlushErr), failed(4, ib.WCWRFlushErr))
}

func TestLocalOperationsAllocateNothing(t *testing.T) {
	s := newScript(t)
	s.qp.forget = true
	b := s.bind(7, 0, 8)
	two := []transport.Request{b, localInv(b.RKey)}
	if n := testing.AllocsPerRun(100, func() {
		for i := range two {
			two[i].Index = s.qp.posted
			s.qp.posted++
		}
		s.qp.sends = two
		s.e.Transmit(s.now, s.burst, 1<<20)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s.qp.ended != s.qp.posted || s.e.state != ib.StateRTS {
		t.Fatalf("%d posted, %d ended", s.qp.posted, s.qp.ended)
	}
}
