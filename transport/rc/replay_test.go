package rc_test

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

func TestResponderDuplicates(t *testing.T) {
	play(t, []script{
		{"of a send: acknowledged with the newest PSN, delivered once", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.post(1, 64)
			s.post(2, 64)
			s.deliver(sendOnly(100, 8), s.writeOnly(101, 0, 8))
			s.expect(ack(101, 2))
			s.deliver(sendOnly(100, 8))
			s.expect(ack(101, 2))
			s.completed(received(1, 8))
			if s.counters.DuplicateRequest != 1 {
				s.t.Errorf("duplicate_request is %d", s.counters.DuplicateRequest)
			}
		}},
		{"of a write: stored once", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8).with(1), s.writeOnly(101, 0, 8).with(2))
			s.deliver(s.writeOnly(100, 0, 8).with(1))
			s.wrote(0, s.writeOnly(0, 0, 8).with(2).bytes())
			s.expect(ack(101, 2))
		}},
		{"of a write that does not ask: silence", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8))
			s.expect(ack(100, 1))
			s.deliver(s.writeOnly(100, 0, 8).silent())
			s.expect()
		}},
		{"of a whole message: one ACK", "IBA 9.7.5.1.5", func(s *peerScript) {
			w := s.writeFirst(100, 0, 3*mtu)
			s.deliver(w, writeMiddle(101), writeLast(102, mtu))
			s.expect(ack(102, 1))
			s.deliver(w, writeMiddle(101), writeLast(102, mtu))
			s.expect(ack(102, 1))
		}},
		{"in the middle of a message changes nothing there", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.post(1, 4096)
			s.deliver(s.writeOnly(100, 0, 8), sendFirst(101))
			s.expect(ack(101, 1))
			s.deliver(s.writeOnly(100, 0, 8))
			s.expect(ack(101, 1))
			s.deliver(sendLast(102, 8))
			s.expect(ack(102, 2))
			s.completed(received(1, mtu+8))
		}},
		{"before anything was executed", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.writeOnly(99, 0, 8), s.read(98, 0, 8), s.fetchAdd(97, 0, 8))
			s.untouched(0, 16)
			s.expect(ack(99, 0))
		}},
		{"with a bad key is not even looked at", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8))
			s.deliver(s.writeOnly(100, 0, 8).keyed(1).sized(9))
			s.expect(ack(100, 1))
			s.state(ib.StateRTR)
		}},
		{"of an atomic: the same value, executed once, still an ATOMIC ACKNOWLEDGE", "IBA 9.7.5.1.5; field B1", func(s *peerScript) {
			old := s.word(8)
			s.deliver(s.fetchAdd(100, 8, 5))
			s.expect(atomicAck(100, old, 1))
			for range 3 {
				s.deliver(s.fetchAdd(100, 8, 5))
				s.expect(atomicAck(100, old, 1))
			}
			if s.word(8) != old+5 {
				s.t.Errorf("memory holds %#x", s.word(8))
			}
		}},
		{"of a compare and swap that matches again by now", "IBA 9.7.5.1.5; field B1", func(s *peerScript) {
			old := s.word(8)
			s.deliver(s.compareSwap(100, 8, old, 1), s.compareSwap(101, 8, 1, old))
			s.expect(atomicAck(100, old, 1), atomicAck(101, 1, 2))
			s.deliver(s.compareSwap(100, 8, old, 1))
			s.expect(atomicAck(100, old, 2))
			if s.word(8) != old {
				s.t.Errorf("memory holds %#x", s.word(8))
			}
		}},
		{"of an atomic whose answer still waits", "IBA 9.7.5.1.5", func(s *peerScript) {
			old := s.word(8)
			s.deliver(s.fetchAdd(100, 8, 5), s.fetchAdd(100, 8, 5))
			s.expect(atomicAck(100, old, 1))
		}},
		{"of an atomic whose region is gone", "IBA 9.7.5.1.5", func(s *peerScript) {
			old := s.word(8)
			s.deliver(s.fetchAdd(100, 8, 5))
			s.table.Remove(s.mr)
			s.expect(atomicAck(100, old, 1))
			s.deliver(s.fetchAdd(100, 8, 5))
			s.expect(atomicAck(100, old, 1))
		}},
		{"of an atomic that is forgotten", "IBA 9.7.5.1.5", func(s *peerScript) {
			for i := range ib.PSN(5) {
				s.deliver(s.fetchAdd(100+i, 8, 1))
				s.transmit(1 << 20)
			}
			value := s.word(8)
			s.deliver(s.fetchAdd(100, 8, 1))
			s.expect()
			s.deliver(s.fetchAdd(101, 8, 1))
			s.expect(atomicAck(101, value-4, 5))
			if s.word(8) != value {
				s.t.Errorf("memory holds %#x, want %#x", s.word(8), value)
			}
		}},
		{"that calls a READ what was an atomic, and the other way", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.fetchAdd(100, 8, 1), s.read(101, 0, 8))
			s.expect(atomicAck(100, s.word(8)-1, 1), readOnly(101, 8, 2))
			s.deliver(s.read(100, 0, 8), s.fetchAdd(101, 8, 1))
			s.expect()
			s.state(ib.StateRTR)
		}},
		{"of a READ: read again, with what memory holds now", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu))
			s.expect(readFirst(100, 1), readLast(101, mtu, 1))
			s.mem[5] = 0xee
			s.deliver(s.writeOnly(102, 8192, 8), s.read(100, 0, 2*mtu))
			s.expect(readFirst(100, 2), readLast(101, mtu, 2), ack(102, 2))
			s.returned(0, 2*mtu)
		}},
		{"of a READ from the middle answers as a READ of its own", "IBA 9.7.5.1.1", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu))
			s.expect(readFirst(100, 1), readMiddle(101), readMiddle(102), readLast(103, mtu, 1))
			s.deliver(s.read(102, 2*mtu, 2*mtu))
			s.expect(readFirst(102, 1), readLast(103, mtu, 1))
			s.returned(2*mtu, 2*mtu)
			s.deliver(s.read(103, 3*mtu, mtu))
			s.expect(readOnly(103, mtu, 1))
		}},
		{"of a zero-length READ", "C9-88", func(s *peerScript) {
			s.deliver(s.read(100, 0, 0).keyed(9))
			s.expect(readOnly(100, 0, 1))
			s.deliver(s.read(100, 0, 0).keyed(9))
			s.expect(readOnly(100, 0, 1))
		}},
		{"that restarts a READ under way cancels the rest", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu))
			got, _ := s.transmit(2 * mtu)
			s.compare(got, []reply{readFirst(100, 1), readMiddle(101)})
			s.deliver(s.read(101, mtu, 3*mtu))
			s.expect(readFirst(101, 1), readMiddle(102), readLast(103, mtu, 1))
			s.returned(mtu, 3*mtu)
		}},
		{"of an older READ goes before one under way, which goes on", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 1))
			s.deliver(s.read(101, 0, 3*mtu), s.writeOnly(104, 8192, 4))
			got, _ := s.transmit(1)
			s.compare(got, []reply{readFirst(101, 2)})
			s.deliver(s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 3), readMiddle(102), readLast(103, mtu, 2), ack(104, 3))
		}},
		{"of everything, after a lost response", "IBA 9.7.5.1.1", func(s *peerScript) {
			old := s.word(0)
			say := func() {
				s.deliver(s.read(100, 64, 2*mtu), s.writeOnly(102, 8192, 4), s.fetchAdd(103, 0, 3), s.writeOnly(104, 8192, 4))
			}
			say()
			s.expect(readFirst(100, 1), readLast(101, mtu, 1), ack(102, 2), atomicAck(103, old, 3), ack(104, 4))
			say()
			s.expect(readFirst(100, 4), readLast(101, mtu, 4), atomicAck(103, old, 4), ack(104, 4))
			if s.word(0) != old+3 {
				s.t.Errorf("memory holds %#x", s.word(0))
			}
		}},
		{"behind a sequence NAK", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 1))
			s.deliver(s.writeOnly(102, 0, 4), s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 1), nak(101, wire.NakSequence, 1))
		}},
		{"of a READ after REMOTE_READ was taken away", "reference 4.4", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 1))
			s.attr.AccessFlags &^= ib.AccessRemoteRead
			s.modify(ib.StateRTS, ib.QPAttrAccessFlags)
			s.deliver(s.read(100, 0, 8))
			s.expect()
		}},
	})
	// Field B2: a duplicate READ reads nothing that the original did not. All are dropped.
	outside := []struct {
		name string
		read func(s *peerScript) request
	}{
		{"wraps to the end of the address space", func(s *peerScript) request { return s.read(100, 0, mtu).at(^uint64(0) - mtu + 1) }},
		{"begins before the original", func(s *peerScript) request { return s.read(100, 4088, 16) }},
		{"ends behind the original", func(s *peerScript) request { return s.read(101, 4096+mtu, mtu+1) }},
		{"is longer than the original", func(s *peerScript) request { return s.read(100, 4096, 2*mtu+4) }},
		{"is elsewhere", func(s *peerScript) request { return s.read(100, 32768, 8) }},
		{"has another key of the same region", func(s *peerScript) request { return s.read(100, 4096, 8).keyed(s.rights(allRights)) }},
		{"has more responses than PSNs are left", func(s *peerScript) request { return s.read(101, 4096, 2*mtu) }},
		{"has 2^32-1 bytes", func(s *peerScript) request { return s.read(100, 4096, 1<<32-1) }},
		{"has a payload", func(s *peerScript) request { return s.read(100, 4096, 8).payload(8) }},
	}
	for _, c := range outside {
		t.Run("READ that "+c.name, func(t *testing.T) {
			s := newPeerScript(t)
			s.deliver(s.read(100, 4096, 2*mtu))
			s.expect(readFirst(100, 1), readLast(101, mtu, 1))
			s.deliver(c.read(s))
			s.expect()
			s.state(ib.StateRTR)
			// The original is still known.
			s.deliver(s.read(101, 4096+mtu, mtu))
			s.expect(readOnly(101, mtu, 1))
		})
	}
	t.Run("READ of a zero-based region that wraps to its start", func(t *testing.T) {
		s := newPeerScript(t)
		key := s.register(&dma.MR{Domain: s.domain, Region: s.mr.Region, Offset: canary, Length: memSize, Access: allRights}).RKey
		s.deliver(s.read(100, 0, 2*mtu).keyed(key).at(0))
		s.expect(readFirst(100, 1), readLast(101, mtu, 1))
		s.deliver(s.read(100, 0, mtu).keyed(key).at(^uint64(0) - mtu + 1))
		s.expect()
		s.state(ib.StateRTR)
	})
	// With each PSN a duplicate begins where the response with that PSN did, and nowhere else.
	for _, length := range []uint32{2 * mtu, 2*mtu - 5} {
		for psn := range ib.PSN(2) {
			for off := uint32(0); off <= length+64; off++ {
				if off%37 != 0 && off%mtu > 1 && off%mtu < mtu-1 {
					continue
				}
				s := newPeerScript(t)
				s.deliver(s.read(100, 4096, length))
				s.transmit(1 << 20)
				n := uint32(100)
				s.deliver(s.read(100+psn, 4096+uint64(off), n))
				got, _ := s.transmit(1 << 20)
				if ours := off == uint32(psn)*mtu; ours != (len(got) == 1) {
					t.Errorf("duplicate with PSN %d at %d of %d bytes: %d answers", psn, off, length, len(got))
				}
			}
		}
	}
}

func TestResponderResources(t *testing.T) {
	play(t, []script{
		{"as many READs as agreed", "IBA 9.7.4.1.4", func(s *peerScript) {
			for i := range ib.PSN(4) {
				s.deliver(s.read(100+i, 0, 8))
			}
			s.expect(readOnly(100, 8, 1), readOnly(101, 8, 2), readOnly(102, 8, 3), readOnly(103, 8, 4))
		}},
		{"one more than agreed", "IBA 9.7.4.1.4", func(s *peerScript) {
			for i := range ib.PSN(5) {
				s.deliver(s.read(100+i, 0, 8))
			}
			s.expect(readOnly(100, 8, 1), readOnly(101, 8, 2), readOnly(102, 8, 3), readOnly(103, 8, 4), nak(104, wire.NakInvalidRequest, 4))
			s.state(ib.StateErr)
			s.raised(ib.EventQPReqErr)
		}},
		{"one more atomic than agreed: not executed", "IBA 9.7.4.1.4", func(s *peerScript) {
			old := s.word(0)
			for i := range ib.PSN(5) {
				s.deliver(s.fetchAdd(100+i, 0, 1))
			}
			if s.word(0) != old+4 {
				s.t.Errorf("memory holds %#x", s.word(0))
			}
			s.transmit(1 << 20)
			s.state(ib.StateErr)
		}},
		{"a repetition that waits gives way to a new request", "IBA 9.7.4.1.4", func(s *peerScript) {
			// The peer asked again for 100, its first answer came late after all, and it goes on: it has one outstanding.
			for i := range ib.PSN(4) {
				s.deliver(s.read(100+i, 0, 8))
				s.transmit(1 << 20)
			}
			s.deliver(s.read(100, 0, 8), s.read(104, 0, 8))
			s.expect(readOnly(104, 8, 5))
		}},
	})
	t.Run("none agreed, READ", func(t *testing.T) {
		s := newPeerScriptWith(t, 0, epsn)
		s.deliver(s.read(100, 0, 8))
		s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
	})
	t.Run("none agreed, atomic", func(t *testing.T) {
		s := newPeerScriptWith(t, 0, epsn)
		s.deliver(s.fetchAdd(100, 0, 8))
		s.untouched(0, 8)
		s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
	})
	t.Run("none agreed, duplicate", func(t *testing.T) {
		s := newPeerScriptWith(t, 0, epsn)
		s.deliver(s.fetchAdd(99, 0, 8), s.read(98, 0, 8))
		s.expect()
		s.untouched(0, 8)
	})
	// Field B27: max_dest_rd_atomic changes while READs are being answered.
	for _, limit := range []uint8{1, 2, 5, 16, 255} {
		t.Run("limit changed under traffic", func(t *testing.T) {
			s := newPeerScriptWith(t, 4, epsn)
			old := s.word(0)
			for i := range ib.PSN(3) { // turn the ring, so that its oldest entry stands in the middle
				s.deliver(s.fetchAdd(100+i, 0, 1))
				s.transmit(1 << 20)
			}
			s.deliver(s.read(103, 64, 3*mtu), s.fetchAdd(106, 0, 1), s.read(107, 128, 8))
			got, _ := s.transmit(1)
			s.compare(got, []reply{readFirst(103, 4)})
			s.attr.MaxDestRDAtomic = limit
			s.modify(ib.StateRTS, ib.QPAttrMaxDestRDAtomic)
			s.deliver(s.fetchAdd(102, 0, 1))
			s.expect(atomicAck(102, old+2, 6), readMiddle(104), readLast(105, mtu, 4), atomicAck(106, old+3, 5), readOnly(107, 8, 6))
			for i := range ib.PSN(limit) {
				s.deliver(s.fetchAdd(108+i, 0, 1))
			}
			s.state(ib.StateRTS)
			s.deliver(s.fetchAdd(108+ib.PSN(limit), 0, 1))
			s.state(ib.StateErr)
		})
	}
}

func TestResponderLostRegion(t *testing.T) {
	play(t, []script{
		{"a READ is looked up again for every packet", "IBA 9.7.5.2.4", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu), s.writeOnly(104, 64, 8))
			got, _ := s.transmit(2 * mtu)
			s.compare(got, []reply{readFirst(100, 1), readMiddle(101)})
			s.table.Remove(s.mr)
			s.dies(nak(102, wire.NakRemoteAccess, 2), ib.EventQPAccessErr)
		}},
		{"gone before the first response", "IBA 9.7.5.2.4", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu))
			s.table.Remove(s.mr)
			s.dies(nak(100, wire.NakRemoteAccess, 1), ib.EventQPAccessErr)
		}},
		{"memory gone between request and port", "transport.Engine.Faulted", func(s *peerScript) {
			mr := s.register(&dma.MR{Domain: s.domain, Region: &broken{memSize}, Base: memBase, Length: memSize, Access: allRights})
			s.deliver(s.writeOnly(100, 0, 8), s.read(101, 0, 2*mtu).keyed(mr.RKey))
			s.expect(ack(100, 1), nak(101, wire.NakRemoteAccess, 2))
			s.state(ib.StateErr)
			s.raised(ib.EventQPAccessErr)
		}},
		// A READ that was answered in full, its region deregistered since, as is proper; then a copy of the request that
		// the network kept. The connection must not die of it, while a peer who really waits learns why he gets nothing.
		{"a late copy of a finished READ is harmless", "IBA 9.7.5.1.5", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8))
			s.expect(readOnly(100, 8, 1))
			key := s.rights(allRights)
			s.table.Remove(s.mr)
			s.deliver(s.read(100, 0, 8))
			s.expect(nak(100, wire.NakRemoteAccess, 1))
			s.state(ib.StateRTR)
			s.raised()
			s.deliver(s.writeOnly(101, 0, 8).keyed(key))
			s.expect(ack(101, 2))
		}},
		{"gone while a refusal waits behind the READ: one NAK, of the READ", "IBA 9.7.5.2.4", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu), s.writeOnly(102, 0, 8).keyed(1))
			s.table.Remove(s.mr)
			s.expect(nak(100, wire.NakRemoteAccess, 1))
			s.state(ib.StateErr)
			s.raised(ib.EventQPAccessErr)
		}},
	})
}
