package rc_test

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

func TestResponderExecutes(t *testing.T) {
	play(t, []script{
		{"send only", "IBA 9.7.5.1", func(s *peerScript) {
			s.post(1, 4096)
			s.deliver(sendOnly(100, 64).with(9))
			s.expect(ack(100, 1))
			s.completed(received(1, 64))
			if want := sendOnly(100, 64).with(9).bytes(); !bytes.Equal(s.buf[:64], want) {
				s.t.Errorf("receive buffer holds %x", s.buf[:64])
			}
			s.expectedPSN(101)
		}},
		{"send of three packets fills one receive in order", "IBA 9.7.4.1.2, 4.7", func(s *peerScript) {
			s.post(1, 4096)
			s.deliver(sendFirst(100).with(1), sendMiddle(101).with(2), sendLast(102, 7).with(3))
			s.expect(ack(102, 1))
			s.completed(received(1, 2*mtu+7))
			if s.buf[0] != 1 || s.buf[mtu] != 2 || s.buf[2*mtu] != 3 {
				s.t.Errorf("packets landed at the wrong places")
			}
		}},
		{"send is scattered over the list", "IBA 10.7.3.1", func(s *peerScript) {
			k := s.bufs.LKey
			s.postList(1, ib.SGE{Addr: bufBase + 100, Length: 1000, LKey: k}, ib.SGE{}, ib.SGE{Addr: bufBase + 5000, Length: 3000, LKey: k})
			s.deliver(sendFirst(100).with(1), sendLast(101, 10).with(99))
			s.expect(ack(101, 1))
			s.completed(received(1, mtu+10))
			data := append(sendFirst(100).with(1).bytes(), sendLast(101, 10).with(99).bytes()...)
			if !bytes.Equal(s.buf[100:1100], data[:1000]) || !bytes.Equal(s.buf[5000:5034], data[1000:]) {
				s.t.Errorf("scattered to the wrong places")
			}
		}},
		{"send with immediate", "IBA 9.4.1", func(s *peerScript) {
			s.post(1, 4096)
			s.post(2, 4096)
			s.deliver(sendOnlyImm(100, 8, 0xcafe), sendFirst(101), sendLastImm(102, 1, 0xbeef))
			s.expect(ack(102, 2))
			s.completed(receivedImm(1, 8, 0xcafe), receivedImm(2, mtu+1, 0xbeef))
		}},
		{"solicited bit of the last packet reaches the completion", "IBA 9.2.3, 11.4.2.2", func(s *peerScript) {
			s.post(1, 4096)
			s.post(2, 4096)
			s.deliver(sendOnly(100, 8).solicited(), sendFirst(101).solicited(), sendLast(102, 1))
			s.expect(ack(102, 2))
			first := received(1, 8)
			first.Solicited = true
			s.completed(first, received(2, mtu+1))
		}},
		{"zero-length send", "IBA 9.7.4.1.5; field B10", func(s *peerScript) {
			s.postList(1)
			s.deliver(sendOnly(100, 0))
			s.expect(ack(100, 1))
			s.completed(received(1, 0))
		}},
		{"write only", "IBA 9.4.3", func(s *peerScript) {
			w := s.writeOnly(100, 40, 100).with(77)
			s.deliver(w)
			s.expect(ack(100, 1))
			s.wrote(40, w.bytes())
			s.untouched(0, 40)
			s.untouched(140, 100)
			s.completed()
		}},
		{"write of three packets continues from the recorded address", "IBA 9.7.4.1.3", func(s *peerScript) {
			s.deliver(s.writeFirst(100, 8, 2*mtu+9).with(1), writeMiddle(101).with(2), writeLast(102, 9).with(3))
			s.expect(ack(102, 1))
			s.wrote(8, writeMiddle(0).with(1).bytes())
			s.wrote(8+mtu, writeMiddle(0).with(2).bytes())
			s.wrote(8+2*mtu, writeLast(0, 9).with(3).bytes())
			s.untouched(8+2*mtu+9, 64)
		}},
		{"write of a whole number of MTUs", "IBA 9.7.4.1.6", func(s *peerScript) {
			s.deliver(s.writeFirst(100, 0, 2*mtu), writeLast(101, mtu))
			s.expect(ack(101, 1))
		}},
		{"write with immediate takes a receive and leaves its buffer alone", "IBA 9.4.3.1", func(s *peerScript) {
			s.post(1, 16)
			s.deliver(s.writeOnlyImm(100, 0, 500, 7).with(1).solicited())
			s.expect(ack(100, 1))
			want := writtenImm(1, 500, 7)
			want.Solicited = true
			s.completed(want)
			if s.buf[0] != 0 {
				s.t.Errorf("receive buffer was written")
			}
		}},
		{"write with immediate of several packets counts all bytes", "IBA 9.4.3.1", func(s *peerScript) {
			s.post(1, 0)
			s.deliver(s.writeFirst(100, 0, mtu+5), writeLastImm(101, 5, 9))
			s.expect(ack(101, 1))
			s.completed(writtenImm(1, mtu+5, 9))
		}},
		{"zero-length write ignores its key", "C9-88; field B10", func(s *peerScript) {
			// Two test suites elsewhere expect an error. C9-88 lets the responder check nothing: no memory is named, and
			// an HCA succeeds. One packet, one PSN.
			s.deliver(s.writeOnly(100, 0, 0).keyed(0xdeadbeef).at(^uint64(0)))
			s.expect(ack(100, 1))
			s.expectedPSN(101)
		}},
		{"zero-length write with immediate", "C9-88", func(s *peerScript) {
			s.post(1, 0)
			s.deliver(s.writeOnlyImm(100, 0, 0, 5).keyed(0))
			s.expect(ack(100, 1))
			s.completed(writtenImm(1, 0, 5))
		}},
		{"read of one packet", "IBA 9.4.4", func(s *peerScript) {
			s.deliver(s.read(100, 33, 100))
			s.expect(readOnly(100, 100, 1))
			s.returned(33, 100)
			s.expectedPSN(101)
		}},
		{"read takes one PSN for each response", "IBA 9.7.3.1", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu+1))
			s.expectedPSN(103)
			s.expect(readFirst(100, 1), readMiddle(101), readLast(102, 1, 1))
			s.returned(0, 2*mtu+1)
		}},
		{"read of exactly two MTUs", "IBA 9.7.3.1", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu))
			s.expectedPSN(102)
			s.expect(readFirst(100, 1), readLast(101, mtu, 1))
		}},
		{"zero-length read ignores its key", "C9-88; field B10", func(s *peerScript) {
			s.deliver(s.read(100, 0, 0).keyed(0xdeadbeef).at(^uint64(0)))
			s.expect(readOnly(100, 0, 1))
			s.expectedPSN(101)
		}},
		{"fetch and add returns the original and wraps at 64 bits", "IBA 9.4.5", func(s *peerScript) {
			old := s.word(16)
			s.deliver(s.fetchAdd(100, 16, ^uint64(0)))
			s.expect(atomicAck(100, old, 1))
			if s.word(16) != old-1 {
				s.t.Errorf("memory holds %#x", s.word(16))
			}
		}},
		{"compare and swap swaps on a match alone", "IBA 9.4.5", func(s *peerScript) {
			old := s.word(24)
			s.deliver(s.compareSwap(100, 24, old, 5), s.compareSwap(101, 24, old, 6))
			s.expect(atomicAck(100, old, 1), atomicAck(101, 5, 2))
			if s.word(24) != 5 {
				s.t.Errorf("memory holds %#x", s.word(24))
			}
		}},
		{"comm established once, in RTR", "IBA 11.6.3.3", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 4), s.writeOnly(101, 0, 4))
			if len(s.qp.events) != 1 || s.qp.events[0] != ib.EventCommEst {
				s.t.Errorf("events %v", s.qp.events)
			}
			s.expect(ack(101, 2))
		}},
		{"no comm established in RTS", "IBA 11.6.3.3", func(s *peerScript) {
			s.modify(ib.StateRTS, ib.QPAttrSQPSN)
			s.deliver(s.writeOnly(100, 0, 4))
			if len(s.qp.events) != 0 {
				s.t.Errorf("events %v", s.qp.events)
			}
			s.expect(ack(100, 1))
		}},
		{"SQD leaves the receive side alone", "IBA 10.3.1.6", func(s *peerScript) {
			s.modify(ib.StateRTS, ib.QPAttrSQPSN)
			s.modify(ib.StateSQD, 0)
			s.deliver(s.writeOnly(100, 0, 4))
			s.expect(ack(100, 1))
		}},
	})
}

func TestResponderPSN(t *testing.T) {
	play(t, []script{
		{"a gap gives one NAK with the expected PSN", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(101, 0, 8))
			s.expect(nak(100, wire.NakSequence, 0))
			s.deliver(s.writeOnly(102, 0, 8), s.writeOnly(103, 0, 8))
			s.expect()
			s.untouched(0, 8)
			s.state(ib.StateRTR)
			s.raised()
		}},
		{"the gap repaired, the next one gives a NAK again", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(101, 0, 8))
			s.expect(nak(100, wire.NakSequence, 0))
			s.deliver(s.writeOnly(100, 0, 8))
			s.expect(ack(100, 1))
			s.deliver(s.writeOnly(102, 0, 8))
			s.expect(nak(101, wire.NakSequence, 1))
		}},
		{"a duplicate does not repair a gap", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8), s.writeOnly(102, 0, 8))
			s.expect(ack(100, 1), nak(101, wire.NakSequence, 1))
			s.deliver(s.writeOnly(100, 0, 8), s.writeOnly(102, 0, 8))
			s.expect(ack(100, 1))
		}},
		{"reordered before anything was said: no NAK", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(101, 0, 8), s.writeOnly(100, 0, 8), s.writeOnly(101, 8, 8))
			s.expect(ack(101, 2))
		}},
		{"reordered, one still missing: the NAK names that one", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(102, 0, 8), s.writeOnly(101, 0, 8), s.writeOnly(100, 0, 8))
			s.expect(ack(100, 1), nak(101, wire.NakSequence, 1))
		}},
		{"reordered, the newest one lost: the NAK waits for the farthest", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(102, 0, 8), s.writeOnly(105, 0, 8), s.writeOnly(100, 0, 8), s.writeOnly(101, 0, 8), s.writeOnly(102, 0, 8))
			s.expect(ack(102, 3), nak(103, wire.NakSequence, 3))
		}},
		{"reordered twice", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(105, 0, 8), s.writeOnly(100, 0, 8), s.writeOnly(102, 0, 8), s.writeOnly(101, 0, 8), s.writeOnly(102, 0, 8))
			s.expect(ack(102, 3), nak(103, wire.NakSequence, 3))
		}},
		{"half the number space ahead counts as behind", "IBA 9.7.2; field B29", func(s *peerScript) {
			s.deliver(s.writeOnly(ib.PSN(100).Add(1<<23), 0, 8))
			s.expect(ack(99, 0))
			s.untouched(0, 8)
		}},
		{"just under half ahead is a gap", "IBA 9.7.2; field B29", func(s *peerScript) {
			s.deliver(s.writeOnly(ib.PSN(100).Add(1<<23-1), 0, 8))
			s.expect(nak(100, wire.NakSequence, 0))
		}},
		{"a sequence NAK does not overtake a READ", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu), s.writeOnly(103, 0, 8))
			s.expect(readFirst(100, 1), readLast(101, mtu, 1), nak(102, wire.NakSequence, 1))
		}},
		{"a gap in the middle of a message", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.post(1, 4096)
			s.deliver(sendFirst(100), sendLast(102, 5))
			s.expect(nak(101, wire.NakSequence, 0))
			s.deliver(sendMiddle(101), sendLast(102, 5))
			s.expect(ack(102, 1))
			s.completed(received(1, 2*mtu+5))
		}},
	})
	t.Run("wrap", func(t *testing.T) { // field B29
		s := newPeerScriptWith(t, 4, 0xfffffe)
		s.post(1, 8192)
		s.deliver(sendFirst(0xfffffe), sendMiddle(0xffffff), sendMiddle(0), sendLast(1, 5))
		s.expect(ack(1, 1))
		s.completed(received(1, 3*mtu+5))
		s.deliver(sendLast(1, 5), sendFirst(0xfffffe).silent())
		s.expect(ack(1, 1))
	})
	t.Run("read across the wrap, and its duplicate", func(t *testing.T) { // field B29
		s := newPeerScriptWith(t, 4, 0xffffff)
		s.deliver(s.read(0xffffff, 0, 3*mtu))
		s.expect(readFirst(0xffffff, 1), readMiddle(0), readLast(1, mtu, 1))
		s.deliver(s.read(0, mtu, 2*mtu))
		s.expect(readFirst(0, 1), readLast(1, mtu, 1))
		s.returned(mtu, 2*mtu)
		s.expectedPSN(2)
	})
	t.Run("first PSN is taken modulo 2^24", func(t *testing.T) {
		s := newPeerScriptWith(t, 4, 0x1000005)
		s.expectedPSN(5)
	})
}

// TestResponderSequence has every pair of packets that may not follow each other: reference 4.3.
func TestResponderSequence(t *testing.T) {
	type step struct {
		name string
		make func(s *peerScript, psn ib.PSN) request
	}
	begin := map[string]step{
		"nothing":      {},
		"send first":   {make: func(_ *peerScript, p ib.PSN) request { return sendFirst(p) }},
		"send middle":  {make: func(_ *peerScript, p ib.PSN) request { return sendMiddle(p) }},
		"write first":  {make: func(s *peerScript, p ib.PSN) request { return s.writeFirst(p, 0, 8*mtu) }},
		"write middle": {make: func(_ *peerScript, p ib.PSN) request { return writeMiddle(p) }},
	}
	steps := []step{
		{"send first", func(_ *peerScript, p ib.PSN) request { return sendFirst(p) }},
		{"send middle", func(_ *peerScript, p ib.PSN) request { return sendMiddle(p) }},
		{"send last", func(_ *peerScript, p ib.PSN) request { return sendLast(p, 4) }},
		{"send last imm", func(_ *peerScript, p ib.PSN) request { return sendLastImm(p, 4, 1) }},
		{"send only", func(_ *peerScript, p ib.PSN) request { return sendOnly(p, 4) }},
		{"send only imm", func(_ *peerScript, p ib.PSN) request { return sendOnlyImm(p, 4, 1) }},
		{"write first", func(s *peerScript, p ib.PSN) request { return s.writeFirst(p, 0, 8*mtu) }},
		{"write middle", func(_ *peerScript, p ib.PSN) request { return writeMiddle(p) }},
		{"write last", func(_ *peerScript, p ib.PSN) request { return writeLast(p, mtu) }},
		{"write last imm", func(_ *peerScript, p ib.PSN) request { return writeLastImm(p, mtu, 1) }},
		{"write only", func(s *peerScript, p ib.PSN) request { return s.writeOnly(p, 0, 4) }},
		{"write only imm", func(s *peerScript, p ib.PSN) request { return s.writeOnlyImm(p, 0, 4, 1) }},
		{"read", func(s *peerScript, p ib.PSN) request { return s.read(p, 0, 4) }},
		{"compare swap", func(s *peerScript, p ib.PSN) request { return s.compareSwap(p, 0, 0, 0) }},
		{"fetch add", func(s *peerScript, p ib.PSN) request { return s.fetchAdd(p, 0, 1) }},
		{"reserved 0x15", func(_ *peerScript, p ib.PSN) request { return request{op: 0x15, psn: p} }},
		{"reserved 0x1f", func(_ *peerScript, p ib.PSN) request { return request{op: 0x1f, psn: p} }},
	}
	// The packets of one line are the only ones that may follow it.
	follows := map[string][]string{
		"nothing":      {"send first", "send only", "send only imm", "write first", "write only", "write only imm", "read", "compare swap", "fetch add"},
		"send first":   {"send middle", "send last", "send last imm"},
		"send middle":  {"send middle", "send last", "send last imm"},
		"write first":  {"write middle"},
		"write middle": {"write middle"},
	}
	for previous, allowed := range follows {
		for _, next := range steps {
			t.Run(previous+", "+next.name, func(t *testing.T) {
				s := newPeerScript(t)
				s.post(1, bufSize/2)
				s.post(2, bufSize/2)
				psn := ib.PSN(100)
				deliver := func(f func(*peerScript, ib.PSN) request) {
					r := f(s, psn)
					r.quiet = true
					s.deliver(r)
					psn = psn.Next()
				}
				switch previous {
				case "send middle":
					deliver(begin["send first"].make)
					deliver(begin["send middle"].make)
				case "write middle":
					deliver(begin["write first"].make)
					deliver(begin["write middle"].make)
				case "nothing":
				default:
					deliver(begin[previous].make)
				}
				ok := false
				for _, a := range allowed {
					ok = ok || a == next.name
				}
				at := psn
				deliver(next.make)
				if ok {
					s.expectedPSN(psn)
					s.state(ib.StateRTR)
					return
				}
				// A WRITE LAST of the right operation fails all the same here, for it comes too early: the lengths of
				// whole messages are tested below.
				msn := uint32(0)
				s.expect(nak(at, wire.NakInvalidRequest, msn))
				s.state(ib.StateErr)
				s.raised(ib.EventQPReqErr)
				for _, c := range s.qp.done {
					if c.Status != ib.WCWRFlushErr {
						t.Errorf("a receive ended with %v", c.Status)
					}
				}
				if len(s.qp.done) != 2 {
					t.Errorf("%d receives ended, want 2", len(s.qp.done))
				}
			})
		}
	}
}

// TestResponderLength has every row of reference 4.5 (IBA 9.7.4.1.5, 9.7.4.1.6; field B21): all are refused with NAK
// invalid request, and nothing of the packet is stored.
func TestResponderLength(t *testing.T) {
	one := func(f func(s *peerScript) request) func(s *peerScript) []request {
		return func(s *peerScript) []request { return []request{f(s)} }
	}
	rows := []struct {
		name     string
		requests func(s *peerScript) []request // the last one is wrong
	}{
		{"send first shorter than the MTU", one(func(*peerScript) request { return sendFirst(100).payload(mtu - 4) })},
		{"send first longer than the MTU", one(func(*peerScript) request { return sendFirst(100).payload(mtu + 4) })},
		{"send first empty", one(func(*peerScript) request { return sendFirst(100).payload(0) })},
		{"send middle shorter", func(*peerScript) []request { return []request{sendFirst(100), sendMiddle(101).payload(mtu - 1)} }},
		{"send middle longer", func(*peerScript) []request { return []request{sendFirst(100), sendMiddle(101).payload(mtu + 1)} }},
		{"send last empty", func(*peerScript) []request { return []request{sendFirst(100), sendLast(101, 0)} }},
		{"send last longer than the MTU", func(*peerScript) []request { return []request{sendFirst(100), sendLast(101, mtu+1)} }},
		{"send last with immediate empty", func(*peerScript) []request { return []request{sendFirst(100), sendLastImm(101, 0, 1)} }},
		{"send only longer than the MTU", one(func(*peerScript) request { return sendOnly(100, mtu+1) })},
		{"send first with a pad", one(func(*peerScript) request { return sendFirst(100).badPad() })},
		{"send only with the wrong pad", one(func(*peerScript) request { return sendOnly(100, 5).badPad() })},
		{"write first shorter than the MTU", one(func(s *peerScript) request { return s.writeFirst(100, 0, 2*mtu).payload(mtu - 4) })},
		{"write first longer than the MTU", one(func(s *peerScript) request { return s.writeFirst(100, 0, 4*mtu).payload(mtu + 4) })},
		{"write first of a message that fits one packet", one(func(s *peerScript) request { return s.writeFirst(100, 0, mtu) })},
		{"write first announcing less than it carries", one(func(s *peerScript) request { return s.writeFirst(100, 0, mtu-1) })},
		{"write middle shorter", func(s *peerScript) []request {
			return []request{s.writeFirst(100, 0, 4*mtu), writeMiddle(101).payload(mtu - 4)}
		}},
		{"write middle that ends the message", func(s *peerScript) []request { return []request{s.writeFirst(100, 0, 2*mtu), writeMiddle(101)} }},
		{"write middle past the message", func(s *peerScript) []request { return []request{s.writeFirst(100, 0, 2*mtu-1), writeMiddle(101)} }},
		{"write last before the end", func(s *peerScript) []request { return []request{s.writeFirst(100, 0, 2*mtu), writeLast(101, mtu-1)} }},
		{"write last past the end", func(s *peerScript) []request { return []request{s.writeFirst(100, 0, 2*mtu-4), writeLast(101, mtu)} }},
		{"write last empty", func(s *peerScript) []request { return []request{s.writeFirst(100, 0, 2*mtu), writeLast(101, 0)} }},
		{"write only announcing more than it carries", one(func(s *peerScript) request { return s.writeOnly(100, 0, 8).sized(9) })},
		{"write only announcing less than it carries", one(func(s *peerScript) request { return s.writeOnly(100, 0, 8).sized(7) })},
		{"write only announcing nothing", one(func(s *peerScript) request { return s.writeOnly(100, 0, 8).sized(0) })},
		{"write only longer than the MTU", one(func(s *peerScript) request { return s.writeOnly(100, 0, mtu+1) })},
		{"write longer than 2^31", one(func(s *peerScript) request { return s.writeFirst(100, 0, 1<<31+1) })},
		{"write longer than the port's largest message", one(func(s *peerScript) request { return s.writeFirst(100, 0, 1<<30+1) })},
		{"read longer than 2^31", one(func(s *peerScript) request { return s.read(100, 0, 1<<31+1) })},
		{"read of 2^32-1", one(func(s *peerScript) request { return s.read(100, 0, 1<<32-1) })},
		{"read request with a payload", one(func(s *peerScript) request { return s.read(100, 0, 8).payload(4) })},
		{"read request with a pad", one(func(s *peerScript) request { return s.read(100, 0, 8).badPad() })},
		{"atomic with a payload", one(func(s *peerScript) request { return s.fetchAdd(100, 0, 8).payload(4) })},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newPeerScript(t)
			s.post(1, 8192)
			requests := row.requests(s)
			last := requests[len(requests)-1]
			s.deliver(requests...)
			s.untouched(mtu, 4*mtu)
			s.dies(nak(last.psn, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
			s.completed(flushed(1)) // taken or not, it says nothing about the length
		})
	}
	play(t, []script{
		{"send of one packet longer than the receive", "IBA 9.7.4.1.6, 9.7.5.2.3", func(s *peerScript) {
			s.post(1, 10)
			s.post(2, 10)
			s.deliver(sendOnly(100, 11))
			s.dies(nak(100, wire.NakInvalidRequest, 0))
			s.completed(failed(1, ib.WCLocLenErr, transport.VendorTooLong), flushed(2))
			if s.counters.RespLocalLengthError != 1 {
				s.t.Errorf("counter is %d", s.counters.RespLocalLengthError)
			}
		}},
		{"send of two packets longer than the receive", "IBA 9.7.4.1.6", func(s *peerScript) {
			s.post(1, mtu+10)
			s.deliver(sendFirst(100), sendLast(101, 11))
			s.dies(nak(101, wire.NakInvalidRequest, 0))
			s.completed(failed(1, ib.WCLocLenErr, transport.VendorTooLong))
		}},
		{"send that fills the receive exactly", "IBA 9.7.4.1.6", func(s *peerScript) {
			s.post(1, mtu+10)
			s.deliver(sendFirst(100), sendLast(101, 10))
			s.expect(ack(101, 1))
			s.completed(received(1, mtu+10))
		}},
	})
}

func TestResponderAcknowledges(t *testing.T) {
	play(t, []script{
		{"one ACK for all that was executed", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8), s.writeOnly(101, 0, 8), s.writeOnly(102, 0, 8))
			s.expect(ack(102, 3))
		}},
		{"no ACK that nobody asked for", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8).silent())
			s.expect()
		}},
		{"an ACK speaks for later packets that did not ask", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8), s.writeOnly(101, 0, 8).silent())
			s.expect(ack(101, 2))
		}},
		{"ACK in the middle of a message: the MSN waits for its end", "IBA 9.7.7.1", func(s *peerScript) {
			w := s.writeFirst(100, 0, 3*mtu)
			w.quiet = false
			s.deliver(w, writeMiddle(101))
			s.expect(ack(101, 0))
			s.deliver(writeLast(102, mtu))
			s.expect(ack(102, 1))
		}},
		{"requests behind a READ are executed, and answered after it", "IBA 9.7.5.1.2, 4.12", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 8192, 8), s.read(101, 0, 2*mtu), s.writeOnly(103, 9000, 8).with(5), s.writeOnly(104, 8192, 8))
			s.wrote(9000, s.writeOnly(0, 0, 8).with(5).bytes())
			s.expect(ack(100, 1), readFirst(101, 2), readLast(102, mtu, 2), ack(104, 4))
		}},
		{"READs, atomics and ACKs keep their order", "IBA 9.7.5.1.2", func(s *peerScript) {
			old := s.word(0)
			s.deliver(s.read(100, 64, 8), s.writeOnly(101, 8192, 8), s.fetchAdd(102, 0, 1), s.read(103, 64, 8), s.writeOnly(104, 8192, 8))
			s.expect(readOnly(100, 8, 1), ack(101, 2), atomicAck(102, old, 3), readOnly(103, 8, 4), ack(104, 5))
		}},
		{"the budget stops a READ between packets", "transport.Engine.Transmit", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu))
			got, more := s.transmit(mtu + 100)
			s.compare(got, []reply{readFirst(100, 1), readMiddle(101)})
			if !more {
				s.t.Error("more: got false")
			}
			got, more = s.transmit(1)
			s.compare(got, []reply{readMiddle(102)})
			if !more {
				s.t.Error("more: got false")
			}
			s.expect(readLast(103, mtu, 1))
		}},
		{"what the port does not take is not said again", "CVE-2023-53539", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu), s.fetchAdd(102, 8192, 1))
			s.e.Transmit(0, s.burst, 1<<20)
			if s.e.Transmit(0, s.burst, 1<<20); s.burst.Len() != 3 {
				s.t.Errorf("%d frames wait, want 3", s.burst.Len())
			}
		}},
		{"a full burst stops a READ", "transport.Engine.Transmit", func(s *peerScript) {
			s.burst = wire.NewBurst(3)
			s.deliver(s.read(100, 0, 4*mtu))
			got, more := s.transmit(1 << 20)
			s.compare(got, []reply{readFirst(100, 1), readMiddle(101), readMiddle(102)})
			if !more {
				s.t.Error("more: got false")
			}
			s.expect(readLast(103, mtu, 1))
		}},
		{"the MSN counts READs when accepted, atomics when executed", "IBA 9.7.7.1", func(s *peerScript) {
			old := s.word(0)
			s.deliver(s.writeOnly(100, 64, 4), s.read(101, 64, 4), s.fetchAdd(102, 0, 1))
			s.expect(ack(100, 1), readOnly(101, 4, 2), atomicAck(102, old, 3))
			s.deliver(s.writeOnly(103, 64, 4))
			s.expect(ack(103, 4))
		}},
	})
}
