package rc

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Every local error of a requester: status, vendor_err, and the order. The requests before it are good and complete;
// those behind it are flushed and never sent.
func TestLocalErrors(t *testing.T) {
	other := &dma.Domain{}
	readOnlyMR := func(s *script) ib.LKey {
		mr := &dma.MR{Domain: s.pd, Region: dma.NewEmbedded(make([]byte, 64)), Base: base, Length: 64}
		if err := s.table.Insert(mr); err != nil {
			t.Fatal(err)
		}
		return mr.LKey
	}
	foreign := func(s *script) ib.LKey {
		mr := &dma.MR{Domain: other, Region: dma.NewEmbedded(make([]byte, 64)), Base: base, Length: 64, Access: ib.AccessLocalWrite}
		if err := s.table.Insert(mr); err != nil {
			t.Fatal(err)
		}
		return mr.LKey
	}
	keyed := func(r transport.Request, key func(*script) ib.LKey) func(*script) transport.Request {
		return func(s *script) transport.Request {
			r.SGE[0].LKey = key(s)
			return r
		}
	}
	plain := func(r transport.Request) func(*script) transport.Request {
		return func(*script) transport.Request { return r }
	}
	listed := func(r transport.Request, list ...ib.SGE) func(*script) transport.Request {
		return func(s *script) transport.Request {
			r.SGE = append([]ib.SGE(nil), list...)
			return r
		}
	}
	wrong := func(*script) ib.LKey { return 0xbad00 }
	op := func(o ib.WROpcode) func(*script) transport.Request {
		return plain(transport.Request{Opcode: o, Flags: ib.SendSignaled})
	}
	inlineRead := read(8)
	inlineRead.IsInline, inlineRead.SGE, inlineRead.Inline = true, nil, wire.Buffer{B: make([]byte, 8)}

	cases := []struct {
		name    string
		request func(*script) transport.Request
		status  ib.WCStatus
		vendor  transport.VendorErr
	}{
		{"SEND, unknown key", keyed(send(8), wrong), ib.WCLocProtErr, transport.VendorBadKey},
		{"SEND, foreign domain", keyed(send(8), foreign), ib.WCLocProtErr, transport.VendorBadDomain},
		{"SEND, out of range", listed(send(8), ib.SGE{Addr: base - 1, Length: 8}), ib.WCLocProtErr, transport.VendorBadRange},
		{"SEND, end of the address space", listed(send(8), ib.SGE{Addr: ^uint64(3), Length: 8}),
			ib.WCLocProtErr, transport.VendorBadRange},
		{"WRITE, unknown key", keyed(write(8), wrong), ib.WCLocProtErr, transport.VendorBadKey},
		{"READ, unknown key", keyed(read(8), wrong), ib.WCLocProtErr, transport.VendorBadKey},
		{"READ without LOCAL_WRITE", keyed(transport.Request{Opcode: ib.WRRDMARead, SGE: entries(8)}, readOnlyMR),
			ib.WCLocProtErr, transport.VendorBadAccess},
		{"CAS, foreign domain", keyed(transport.Request{Opcode: ib.WRAtomicCmpAndSwp, SGE: entries(8)}, foreign),
			ib.WCLocProtErr, transport.VendorBadDomain},
		{"CAS of 4 bytes", listed(compareSwap(1, 2), sge(0, 4)), ib.WCLocLenErr, transport.VendorTooLong},
		{"FAA of 16 bytes", listed(fetchAdd(1), sge(0, 8), sge(8, 8)), ib.WCLocLenErr, transport.VendorTooLong},
		{"FAA of no bytes", listed(fetchAdd(1)), ib.WCLocLenErr, transport.VendorTooLong},
		{"longer than the port", plain(send(60001)), ib.WCLocLenErr, transport.VendorTooLong},
		{"lengths that sum up beyond 2^32", listed(write(0), sge(0, 1<<31), sge(0, 1<<31), sge(0, 8)),
			ib.WCLocLenErr, transport.VendorTooLong},
		{"too many entries", listed(send(0), sge(0, 1), sge(0, 1), sge(0, 1), sge(0, 1), sge(0, 1)),
			ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"too much inline", plain(inline(string(make([]byte, 257)))), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"inline READ", plain(inlineRead), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"LOCAL_INV of no key", op(ib.WRLocalInv), ib.WCMWBindErr, transport.VendorBadKey},
		{"BIND_MW of no window", op(ib.WRBindMW), ib.WCMWBindErr, transport.VendorBadKey},
		{"FLUSH with a list", listed(flush(8), sge(0, 8)), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"FLUSH of a placement that no header holds", plain(func() transport.Request {
			r := flush(8)
			r.Flush.Placement = 17 // would pass for 1
			return r
		}()), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"FLUSH of a level that no header holds", plain(func() transport.Request {
			r := flush(8)
			r.Flush.Level = 4
			return r
		}()), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"FLUSH of 2^31+1 bytes", plain(flush(1<<31 + 1)), ib.WCLocLenErr, transport.VendorTooLong},
		{"ATOMIC_WRITE of 4 bytes", listed(atomicWrite(0), sge(0, 4)), ib.WCLocLenErr, transport.VendorTooLong},
		{"ATOMIC_WRITE of 16 bytes", listed(atomicWrite(0), sge(0, 8), sge(0, 8)), ib.WCLocLenErr, transport.VendorTooLong},
		{"ATOMIC_WRITE of no bytes inline, B5", plain(transport.Request{Opcode: ib.WRAtomicWrite, IsInline: true}),
			ib.WCLocLenErr, transport.VendorTooLong},
		{"opcode without an operation", op(10), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"no opcode at all", op(255), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
		{"malformed", plain(send(1)), ib.WCLocQPOpErr, transport.VendorMalformedWQE},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, maxMessage(60000), ackTimeout(10, 1))
			if c.name == "malformed" {
				s.qp.malformed = map[uint32]bool{2: true}
			}
			s.post(send(1), read(2), c.request(s), send(4))
			s.expect(at(0), sendOnly(100, 1), readRequest(101, 0, 2))
			s.completes()
			// Even what was lost before it is repaired first.
			s.expect(at(ib.AckTimeout(10)), sendOnly(100, 1), readRequest(101, 0, 2))
			s.deliver(s.now, ack(100))
			s.completes(success(1))
			s.deliver(s.now, readOnly(101, 0, 2))
			s.transmit()
			s.qp.vendor(1, c.vendor)
			s.qp.vendor(2, transport.VendorFlushed)
			s.completes(success(2), failed(3, c.status), failed(4, ib.WCWRFlushErr))
			s.inState(ib.StateErr)
		})
		t.Run(c.name+", alone", func(t *testing.T) {
			s := newScript(t, maxMessage(60000))
			if c.name == "malformed" {
				s.qp.malformed = map[uint32]bool{0: true}
			}
			s.post(c.request(s))
			s.completes(failed(1, c.status))
		})
	}
}

// A local error in the middle of a message: the rest of it is not sent.
func TestLocalErrorInTheMiddleOfAMessage(t *testing.T) {
	s := newScript(t)
	r := send(0)
	r.SGE = []ib.SGE{sge(0, 2048), {Addr: base, Length: 2000, LKey: 0xbad00}}
	s.post(send(1), r, send(2))
	s.expect(at(0), sendOnly(100, 1), sendFirst(101, 1024), sendMiddle(102, 1024).asking(true))
	s.deliver(at(us), ack(101))
	s.completes(success(1), failed(2, ib.WCLocProtErr), failed(3, ib.WCWRFlushErr))
}

// A key that went away between two transmissions: the second one fails here.
func TestKeyGoneBeforeTheRetry(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.table.Remove(s.mr)
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.completes(success(1), failed(2, ib.WCLocProtErr))
}

// A key that went away before the data came: nothing is written.
func TestKeyGoneBeforeTheResponse(t *testing.T) {
	for _, r := range []transport.Request{read(8), fetchAdd(1)} {
		s := newScript(t)
		s.post(r)
		s.skip(at(0))
		s.table.Remove(s.mr)
		if r.Opcode == ib.WRRDMARead {
			s.deliver(at(us), readOnly(100, 0, 8))
		} else {
			s.deliver(at(us), atomicAck(100, 8))
		}
		s.qp.vendor(0, transport.VendorBadKey)
		s.completes(failed(1, ib.WCLocProtErr))
		if string(s.placed(8)) != string(pattern(1<<16, 8)) {
			t.Fatal("memory without a key was written")
		}
	}
}

// Memory that faults while a response is placed is the requester's own fault.
func TestPlaceOfAResponseFaults(t *testing.T) {
	s := newScript(t)
	mr := &dma.MR{Domain: s.pd, Region: gone{}, Length: 64, Access: ib.AccessLocalWrite}
	if err := s.table.Insert(mr); err != nil {
		t.Fatal(err)
	}
	r := read(0)
	r.SGE = []ib.SGE{{Length: 8, LKey: mr.LKey}}
	s.post(r)
	s.skip(at(0))
	s.deliver(at(us), readOnly(100, 0, 8))
	s.qp.vendor(0, transport.VendorMemoryFault)
	s.completes(failed(1, ib.WCLocProtErr))
}

// A response whose own memory is gone, at a peer on this device, is as good as lost.
func TestSourceOfALocalResponseFaults(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1))
	s.post(read(8))
	s.skip(at(0))
	var p wire.Packet
	answer := readOnly(100, 0, 8)
	answer.make(&p)
	p.Payload = []wire.Piece{{Mem: gone{}, Len: 8}}
	s.e.Receive(s.now, &p)
	s.completes()
	s.expect(at(ib.AckTimeout(10)), readRequest(100, 0, 8))
	s.deliver(s.now, answer)
	s.completes(success(1))
}

// gone is memory that its owner unmapped.
type gone struct{}

func (gone) Size() uint64               { return 64 }
func (gone) Bytes(uint64, int) []byte   { return nil }
func (gone) Read([]byte, uint64) error  { return &dma.Fault{Mem: gone{}} }
func (gone) Write([]byte, uint64) error { return &dma.Fault{Mem: gone{}} }
func (gone) Close() error               { return nil }
func (gone) Atomic(uint64, dma.AtomicOp, uint64, uint64) (uint64, error) {
	return 0, &dma.Fault{Mem: gone{}}
}

// A frame that could not be read was dropped; its request has a local error, in its turn, and nothing behind it is sent.
func TestFaultedFrame(t *testing.T) {
	s := newScript(t, ackTimeout(10, 3))
	s.post(send(1), send(3000), send(2))
	got := s.skip(at(0))
	if !s.e.Faulted(s.now, got[2].cookie) { // the MIDDLE
		t.Fatal("the fault was ignored")
	}
	s.completes()
	s.post(send(4))
	s.quiet()
	s.expect(at(ib.AckTimeout(10)), sendOnly(100, 1)) // what is before it goes on
	s.deliver(s.now, ack(100))
	s.qp.vendor(1, transport.VendorMemoryFault)
	s.completes(success(1), failed(2, ib.WCLocProtErr), failed(3, ib.WCWRFlushErr), failed(4, ib.WCWRFlushErr))
}

func TestFaultedFrameOfTheOldest(t *testing.T) {
	s := newScript(t)
	s.post(write(8), send(2))
	got := s.skip(at(0))
	s.e.Faulted(s.now, got[0].cookie)
	s.completes(failed(1, ib.WCLocProtErr), failed(2, ib.WCWRFlushErr))
}

// What was acknowledged meanwhile has no owner to blame.
func TestFaultedFrameThatNobodyNeeds(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	got := s.skip(at(0))
	s.deliver(at(us), ack(100))
	if s.e.Faulted(s.now, got[0].cookie) {
		t.Fatal("a fault of an acknowledged packet counted")
	}
	s.deliver(at(us), ack(101))
	s.completes(success(1), success(2))
	s.post(send(2000))
	got = s.skip(at(us))
	s.deliver(at(2*us), ack(102)) // the FIRST alone
	if s.e.Faulted(s.now, got[0].cookie) {
		t.Fatal("a fault of an acknowledged packet of an open message counted")
	}
	s.deliver(at(2*us), ack(103))
	s.completes(success(3))
}

// A fault is final: an acknowledgement that comes later all the same does not undo it.
func TestAckAfterAFault(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	got := s.skip(at(0))
	s.e.Faulted(s.now, got[1].cookie)
	s.deliver(at(us), ack(101))
	s.completes(success(1), failed(2, ib.WCLocProtErr))
}

// What is before the fault and was about to go out again still does.
func TestFaultBehindARepetition(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2), send(3))
	got := s.skip(at(0))
	s.receive(nak(100, wire.NakSequence))
	s.e.Faulted(s.now, got[2].cookie)
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), ack(101))
	s.completes(success(1), success(2), failed(3, ib.WCLocProtErr))
}
