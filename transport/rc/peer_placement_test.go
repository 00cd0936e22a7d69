package rc_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// TestResponderPlacement has ATOMIC WRITE and FLUSH (IBA A19); what is refused is in TestResponderOperation and
// TestResponderAccess.
func TestResponderPlacement(t *testing.T) {
	flushed := func(psn ib.PSN, msn uint32) reply { return readOnly(psn, 0, msn) }
	play(t, []script{
		{"atomic write: eight bytes as they are, one ACK", "IBA A19", func(s *peerScript) {
			r := s.atomicWrite(100, 64).with(0x40)
			s.deliver(r)
			s.wrote(64, r.bytes())
			s.untouched(0, 64)
			s.untouched(72, 64)
			s.expect(ack(100, 1))
		}},
		{"atomic write is acknowledged even if it does not ask", "reference 4.10", func(s *peerScript) {
			s.deliver(s.atomicWrite(100, 0).silent())
			s.expect(ack(100, 1))
		}},
		{"atomic writes share an ACK", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.atomicWrite(100, 0), s.atomicWrite(101, 8), s.atomicWrite(102, 0).with(7))
			s.wrote(0, s.atomicWrite(0, 0).with(7).bytes())
			s.expect(ack(102, 3))
		}},
		{"a duplicate atomic write is acknowledged and stores nothing", "reference 4.8", func(s *peerScript) {
			r := s.atomicWrite(100, 0).with(0x40)
			s.deliver(r)
			s.expect(ack(100, 1))
			binary.NativeEndian.PutUint64(s.mem, 5)
			s.deliver(r.silent())
			s.expect(ack(100, 1))
			if s.word(0) != 5 {
				s.t.Error("it was stored again")
			}
		}},
		{"atomic write of memory that is gone", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.deliver(s.atomicWrite(100, 0).keyed(s.brokenMR().RKey))
			s.dies(nak(100, wire.NakRemoteOperation, 0), ib.EventQPAccessErr)
		}},
		{"atomic write from a peer's memory that is gone never arrived", "design: local peers", func(s *peerScript) {
			s.deliver(s.atomicWrite(100, 0).local(&broken{64}))
			s.untouched(0, 8)
			s.expect()
			s.expectedPSN(100)
		}},
		{"atomic write in the middle of a message", "reference 4.3", func(s *peerScript) {
			s.deliver(s.writeFirst(100, 0, 2*mtu), s.atomicWrite(101, 0))
			s.dies(nak(101, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
		}},
		{"flush: a READ response without data", "IBA A19", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8), s.flush(101, 0, 8))
			s.expect(ack(100, 1), flushed(101, 2))
			s.expectedPSN(102)
		}},
		{"flush of a range of zero bytes checks its key (B10: the exception)", "IBA A19; C9-88 is about READ and WRITE alone", func(s *peerScript) {
			s.deliver(s.flush(100, 0, 0), s.flush(101, 0, 0).keyed(1))
			s.expect(flushed(100, 1), nak(101, wire.NakRemoteAccess, 1))
			s.state(ib.StateErr)
		}},
		{"flush of a whole region does not look at the range", "IBA A19", func(s *peerScript) {
			s.deliver(s.flush(100, 0, 1<<30).at(3).of(ib.FlushRegion))
			s.expect(flushed(100, 1))
			s.deliver(s.flush(101, 0, 8).keyed(1).of(ib.FlushRegion))
			s.dies(nak(101, wire.NakRemoteAccess, 1), ib.EventQPAccessErr)
		}},
		{"a duplicate flush is answered again", "reference 4.8", func(s *peerScript) {
			s.deliver(s.flush(100, 0, 8), s.writeOnly(101, 0, 8))
			s.expect(flushed(100, 1), ack(101, 2))
			s.deliver(s.flush(100, 0, 8), s.flush(100, 0, 8))
			s.expect(flushed(100, 2))
			s.deliver(s.flush(99, 0, 8)) // not remembered
			s.expect()
		}},
		{"a READ asked for at the number of a flush is no duplicate of it", "reference 4.8; B2", func(s *peerScript) {
			s.deliver(s.flush(100, 0, 8))
			s.expect(flushed(100, 1))
			s.deliver(s.read(100, 0, 8))
			s.expect()
		}},
		{"answers keep their order", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.read(100, 0, mtu+1), s.flush(102, 0, 8), s.atomicWrite(103, 0), s.fetchAdd(104, 8, 0))
			s.expect(readFirst(100, 1), readLast(101, 1, 1), flushed(102, 2), ack(103, 3), atomicAck(104, s.word(8), 4))
		}},
		{"more flushes than agreed on: the last are dropped, and come again", "reference 4.8", func(s *peerScript) {
			var want []reply
			for i := range ib.PSN(6) {
				s.deliver(s.flush(100+i, 0, 8))
				if i < 4 {
					want = append(want, flushed(100+i, uint32(i)+1))
				}
			}
			s.expect(append(want, nak(104, wire.NakSequence, 4))...)
			s.deliver(s.flush(104, 0, 8), s.flush(105, 0, 8))
			s.expect(flushed(104, 5), flushed(105, 6))
		}},
	})
	for name, make := range map[string]func(s *peerScript) request{
		"flush":        func(s *peerScript) request { return s.flush(100, 0, 8) },
		"atomic write": func(s *peerScript) request { return s.atomicWrite(100, 0) },
	} {
		t.Run(name+" where no READs were agreed on", func(t *testing.T) {
			s := newPeerScriptWith(t, 0, epsn)
			s.deliver(make(s))
			s.untouched(0, 8)
			s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
		})
	}
	t.Run("the value lies in memory as the peer's does", func(t *testing.T) {
		s := newPeerScript(t)
		s.deliver(s.atomicWrite(100, 0).with(1))
		if !bytes.Equal(s.mem[:8], []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("%x", s.mem[:8])
		}
	})
}
