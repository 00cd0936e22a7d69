package rc_test

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

const (
	localQPN    = 0x11 // of every engine here
	windowOff   = 4096 // where windows are bound, in the region
	windowBytes = 256
)

// window makes a window, bound to nothing.
func (s *peerScript) window(t ib.MWType) *dma.Window {
	s.t.Helper()
	w := &dma.Window{Domain: s.domain, Type: t}
	if err := s.table.InsertWindow(w); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// bound binds w for the queue pair qpn (localQPN if 1) with all rights, and returns the key.
func (s *peerScript) bound(w *dma.Window, qpn ib.QPN) ib.RKey {
	return s.boundWith(w, qpn, ib.AccessRemoteRead|ib.AccessRemoteWrite|ib.AccessRemoteAtomic)
}

func (s *peerScript) boundWith(w *dma.Window, qpn ib.QPN, a ib.AccessFlags) ib.RKey {
	s.t.Helper()
	if qpn == 1 {
		qpn = localQPN
	}
	b := dma.Bind{Key: w.RKey().Inc(), LKey: s.mr.LKey, Addr: memBase + windowOff, Length: windowBytes, Access: a}
	if v := s.table.Bind(s.domain, qpn, &b); v != dma.OK {
		s.t.Fatalf("bind: %v", v)
	}
	return b.Key
}

// TestResponderWindows has the rows of reference 4.6 and 7.9 that are about windows.
func TestResponderWindows(t *testing.T) {
	for name, typ := range map[string]ib.MWType{"type 1": ib.MWType1, "type 2": ib.MWType2} {
		play(t, []script{
			{name + ": every operation on a bound window", "IBA 10.6.7", func(s *peerScript) {
				k := s.bound(s.window(typ), 1)
				s.deliver(s.writeOnly(100, windowOff, 8).keyed(k).with(9), s.read(101, windowOff, 8).keyed(k),
					s.fetchAdd(102, windowOff+8, 1).keyed(k), s.atomicWrite(103, windowOff+16).keyed(k))
				s.wrote(windowOff, s.writeOnly(0, 0, 8).with(9).bytes())
				s.expect(ack(100, 1), readOnly(101, 8, 2), atomicAck(102, s.word(windowOff+8)-1, 3), ack(103, 4))
			}},
			{name + ": not bound", "reference 7.9", func(s *peerScript) {
				s.deliver(s.read(100, windowOff, 8).keyed(s.window(typ).RKey()))
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": the key of an earlier bind", "reference 4.6", func(s *peerScript) {
				w := s.window(typ)
				s.deliver(s.read(100, windowOff, 8).keyed(s.bound(w, 1) - 1))
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": outside the window, inside the region", "C10-75", func(s *peerScript) {
				s.deliver(s.writeOnly(100, windowOff+windowBytes-4, 8).keyed(s.bound(s.window(typ), 1)))
				s.untouched(windowOff, windowBytes+8)
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": wraps around the address space (B3)", "IBA 10.6.3", func(s *peerScript) {
				s.deliver(s.read(100, 0, 1024).keyed(s.bound(s.window(typ), 1)).at(^uint64(0) - 1023))
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": a right that the region has and the window has not", "reference 4.6", func(s *peerScript) {
				s.deliver(s.writeOnly(100, windowOff, 8).keyed(s.boundWith(s.window(typ), 1, ib.AccessRemoteRead)))
				s.untouched(windowOff, 8)
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": deallocated while it is bound", "reference 7.9", func(s *peerScript) {
				w := s.window(typ)
				k := s.bound(w, 1)
				s.table.RemoveWindow(w)
				s.deliver(s.read(100, windowOff, 8).keyed(k))
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
			{name + ": FLUSH is no right of windows", "reference 7.9", func(s *peerScript) {
				s.deliver(s.flush(100, windowOff, 8).keyed(s.bound(s.window(typ), 1)))
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			}},
		})
	}
	play(t, []script{
		{"type 1 serves every queue pair of its domain", "reference 7.9", func(s *peerScript) {
			s.deliver(s.read(100, windowOff, 8).keyed(s.bound(s.window(ib.MWType1), localQPN+1)))
			s.expect(readOnly(100, 8, 1))
			s.returned(windowOff, 8)
		}},
		{"B31: type 2B serves the queue pair that bound it alone (CrossQpRead)", "reference 7.9", func(s *peerScript) {
			s.deliver(s.read(100, windowOff, 8).keyed(s.bound(s.window(ib.MWType2), localQPN+1)))
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"type 1: an empty bind ends it", "reference 7.9", func(s *peerScript) {
			w := s.window(ib.MWType1)
			k := s.bound(w, 1)
			s.table.Bind(s.domain, localQPN, &dma.Bind{Key: k})
			s.deliver(s.read(100, windowOff, 8).keyed(k))
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"zero-based: addresses begin at 0", "reference 7.9", func(s *peerScript) {
			k := s.boundWith(s.window(ib.MWType2), 1, ib.AccessRemoteRead|ib.AccessZeroBased)
			s.deliver(s.read(100, 0, windowBytes).keyed(k).at(0))
			s.expect(readOnly(100, windowBytes, 1))
			s.returned(windowOff, windowBytes)
			s.deliver(s.read(101, 0, 1).keyed(k).at(windowBytes))
			s.dies(nak(101, wire.NakRemoteAccess, 1), ib.EventQPAccessErr)
		}},
		{"the window is invalidated in the middle of a WRITE", "reference 4.6", func(s *peerScript) {
			w := s.window(ib.MWType2)
			b := dma.Bind{Key: w.RKey(), LKey: s.mr.LKey, Addr: memBase, Length: 4 * mtu, Access: ib.AccessRemoteWrite}
			s.table.Bind(s.domain, localQPN, &b)
			s.deliver(s.writeFirst(100, 0, 3*mtu).keyed(b.Key))
			s.table.Invalidate(s.domain, localQPN, b.Key, false)
			s.deliver(writeMiddle(101))
			s.untouched(mtu, mtu)
			s.dies(nak(101, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
	})
}

// TestResponderInvalidates has SEND WITH INVALIDATE: reference 4.7, and field bug B31 by the names of rdma-unit-test's
// mw_test.
func TestResponderInvalidates(t *testing.T) {
	const memoryError = ib.WCMWBindErr
	gone := func(s *peerScript, k ib.RKey) {
		s.t.Helper()
		if _, v := s.table.Remote(s.domain, localQPN, k, memBase+windowOff, 8, ib.AccessRemoteRead); v != dma.BadKey {
			s.t.Errorf("the key can still be used: %v", v)
		}
	}
	kept := func(s *peerScript, q ib.QPN, k ib.RKey) {
		s.t.Helper()
		if _, v := s.table.Remote(s.domain, q, k, memBase+windowOff, 8, ib.AccessRemoteRead); v != dma.OK {
			s.t.Errorf("the key cannot be used any more: %v", v)
		}
	}
	play(t, []script{
		{"with the only packet", "IBA 9.4.1.1.3", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, k).solicited())
			gone(s, k)
			c := receivedInv(1, 9, k)
			c.Solicited = true
			s.completed(c)
			s.expect(ack(100, 1))
		}},
		{"without data", "IBA 9.4.1.1.3", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.post(1, 0)
			s.deliver(sendOnlyInv(100, 0, k))
			gone(s, k)
			s.completed(receivedInv(1, 0, k))
			s.expect(ack(100, 1))
		}},
		{"with the last packet, not before", "IBA 9.4.1.1.3", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.post(1, 4096)
			s.deliver(sendFirst(100), sendMiddle(101))
			kept(s, localQPN, k)
			s.deliver(sendLastInv(102, 5, k))
			gone(s, k)
			s.completed(receivedInv(1, 2*mtu+5, k))
			s.expect(ack(102, 1))
		}},
		{"a duplicate invalidates nothing that was bound since", "IBA 9.7.5.1.5", func(s *peerScript) {
			w := s.window(ib.MWType2)
			k := s.bound(w, 1)
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, k))
			s.expect(ack(100, 1))
			b := dma.Bind{Key: k, LKey: s.mr.LKey, Addr: memBase + windowOff, Length: 8, Access: ib.AccessRemoteRead}
			s.table.Bind(s.domain, localQPN, &b)
			s.deliver(sendOnlyInv(100, 9, k))
			kept(s, localQPN, k)
			s.expect(ack(100, 1))
			s.completed(receivedInv(1, 9, k))
		}},
		{"no receive: RNR, and the window stays", "reference 4.9", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.deliver(sendOnlyInv(100, 9, k))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			kept(s, localQPN, k)
		}},
		{"too long for the receive: the window stays", "wc_status 1", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.post(1, 4)
			s.deliver(sendOnlyInv(100, 9, k))
			kept(s, localQPN, k)
			s.dies(nak(100, wire.NakInvalidRequest, 0))
			s.completed(failed(1, ib.WCLocLenErr, transport.VendorTooLong))
		}},
		{"B31: a key that is none (bad rkey)", "reference 4.7", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), 1)
			s.post(1, 64)
			s.post(2, 64)
			s.deliver(sendOnlyInv(100, 9, k+1))
			kept(s, localQPN, k)
			s.dies(nak(100, wire.NakRemoteOperation, 0)) // the receive tells; no event
			s.completed(failed(1, memoryError, transport.VendorBadKey), flushed(2))
		}},
		{"B31: of type 1", "o10-37.2.26", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType1), 1)
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, k))
			kept(s, localQPN, k)
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, memoryError, transport.VendorBadState))
		}},
		{"B31: wrong QP (CrossQpInvalidate)", "reference 7.9", func(s *peerScript) {
			k := s.bound(s.window(ib.MWType2), localQPN+1)
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, k))
			kept(s, localQPN+1, k)
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, memoryError, transport.VendorBadDomain))
		}},
		{"of another protection domain", "reference 7.8", func(s *peerScript) {
			w := &dma.Window{Domain: &dma.Domain{}, Type: ib.MWType2}
			if err := s.table.InsertWindow(w); err != nil {
				s.t.Fatal(err)
			}
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, w.RKey()))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, memoryError, transport.VendorBadDomain))
		}},
		{"of a region that was registered", "reference 7.8", func(s *peerScript) {
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, s.mr.RKey))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, memoryError, transport.VendorBadKey))
		}},
		{"of a window without a remote right", "reference 7.8", func(s *peerScript) {
			s.post(1, 64)
			s.deliver(sendOnlyInv(100, 9, s.boundWith(s.window(ib.MWType2), 1, 0)))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, memoryError, transport.VendorBadAccess))
		}},
		{"B31: DeregMrWhenBound", "IBA 10.6.7.2.6", func(s *peerScript) {
			w := s.window(ib.MWType2)
			k := s.bound(w, 1)
			if err := s.table.Remove(s.mr); err == nil {
				s.t.Error("the region went away under the window")
			}
			s.deliver(s.read(100, windowOff, 8).keyed(k))
			s.expect(readOnly(100, 8, 1))
		}},
	})
}
