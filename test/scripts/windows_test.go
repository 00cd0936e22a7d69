package scripts

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

const readWrite = ib.AccessRemoteRead | ib.AccessRemoteWrite

var windows = []event{
	{"bound window", "IBA 10.6.7", "its key names its range", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, readWrite))
		s.completes(success(1).as(ib.WCBindMW, 0))
		s.deliver(at(0), writeOnly(500, 8).key(w.RKey()), readRequest(501, 8).key(w.RKey()))
		s.expect(at(0), ack(500), of(wire.RCReadResponseOnly, 501, 8).carries(theirs(0, 8)))
	}},
	{"free window", "IBA 10.6.7", "its key names nothing: NAK remote access error", func(s *script) {
		w := s.window(ib.MWType2)
		s.deliver(at(0), readRequest(500, 8).key(w.RKey()))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"outside the window", "C10-75", "inside the region, but NAK remote access error", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, readWrite))
		s.completes(success(1))
		s.deliver(at(0), readRequest(500, 8).key(w.RKey()).to(memory+60))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"right of the region alone", "C10-74", "a right that the window has not: NAK remote access error", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, ib.AccessRemoteRead))
		s.completes(success(1))
		s.deliver(at(0), writeOnly(500, 8).key(w.RKey()))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memory, 8)
	}},
	{"LOCAL_INV", "IBA 10.6.7", "ends the window: its key names nothing", func(s *script) {
		w := s.window(ib.MWType2)
		k := w.RKey()
		s.post(s.bind(w, k, 64, readWrite), localInv(k))
		s.completes(success(1), success(2).as(ib.WCLocalInv, 0))
		s.deliver(at(0), readRequest(500, 8).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"LOCAL_INV waits", "IBA 10.8.3.3", "for everything before it", func(s *script) {
		w := s.window(ib.MWType2)
		k := w.RKey()
		s.post(s.bind(w, k, 64, readWrite), send(1), localInv(k))
		s.expect(at(0), sendOnly(100, 1))
		s.completes(success(1))
		s.deliver(at(0), readRequest(500, 8).key(k))
		s.expect(at(0), readOnly(500, 0, 8))
		s.deliver(at(us), ack(100))
		s.completes(success(2), success(3))
		same(s, "verdict", s.usable(k), dma.BadKey)
	}},
	{"LOCAL_INV of no key", "IBA 10.6.7", "ends the connection with an error", func(s *script) {
		s.post(localInv(0xabc00), send(1))
		s.completes(failure(1, ib.WCMWBindErr), failure(2, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"LOCAL_INV of type 1", "o10-37.2.26", "is not allowed", func(s *script) {
		w := s.window(ib.MWType1)
		s.post(s.bind(w, w.RKey().Inc(), 64, readWrite))
		s.completes(success(1))
		s.post(localInv(w.RKey()))
		s.completes(failure(2, ib.WCMWBindErr))
	}},
	{"bind of a bound window", "o10-37.2.30", "type 2 is bound when it is free: MW_BIND_ERR", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, readWrite), s.bind(w, w.RKey().Inc(), 128, readWrite))
		s.completes(success(1), failure(2, ib.WCMWBindErr))
		s.inState(ib.StateErr)
	}},
	{"bind without MW_BIND", "C10-73", "of the region: MW_BIND_ERR", func(s *script) {
		w := s.window(ib.MWType2)
		b := s.bind(w, w.RKey(), 64, readWrite)
		b.Bind.LKey = s.register(allRights &^ ib.AccessMWBind).LKey
		s.post(b)
		s.completes(failure(1, ib.WCMWBindErr))
	}},
	{"bind for writing without LOCAL_WRITE", "C10-74", "of the region: MW_BIND_ERR", func(s *script) {
		w := s.window(ib.MWType2)
		b := s.bind(w, w.RKey(), 64, readWrite)
		b.Bind.LKey = s.register(ib.AccessRemoteRead | ib.AccessMWBind).LKey
		s.post(b)
		s.completes(failure(1, ib.WCMWBindErr))
	}},
	{"bind beyond the region", "C10-75", "MW_BIND_ERR", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), memoryEnd-memory+1, readWrite))
		s.completes(failure(1, ib.WCMWBindErr))
	}},
	{"another queue pair's window", "IBA 10.6.7", "type 2B serves the queue pair that bound it alone", func(s *script) {
		w := s.window(ib.MWType2)
		b := dma.Bind{Handle: w.Handle, Key: w.RKey(), LKey: s.mr.LKey, Addr: memory, Length: 64, Access: readWrite}
		same(s, "bind", s.table.Bind(s.domain, here+1, &b), dma.OK)
		s.deliver(at(0), readRequest(500, 8).key(w.RKey()))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"type 1 of another queue pair", "IBA 10.6.7", "serves the whole protection domain", func(s *script) {
		w := s.window(ib.MWType1)
		b := dma.Bind{Handle: w.Handle, Key: w.RKey().Inc(), LKey: s.mr.LKey, Addr: memory, Length: 64, Access: readWrite}
		same(s, "bind", s.table.Bind(s.domain, here+1, &b), dma.OK)
		s.deliver(at(0), readRequest(500, 8).key(w.RKey()))
		s.expect(at(0), readOnly(500, 0, 8))
	}},
	{"SEND WITH INVALIDATE received", "IBA 10.6.7", "the window ends, the receive says which", func(s *script) {
		w := s.window(ib.MWType2)
		k := w.RKey()
		s.post(s.bind(w, k, 64, readWrite))
		s.completes(success(1))
		s.postRecv(64)
		s.deliver(at(0), sendOnlyInv(500, 8, k))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 8).invalidated(k))
		same(s, "verdict", s.usable(k), dma.BadKey)
	}},
	{"SEND WITH INVALIDATE of two packets", "IBA 10.6.7", "the window ends with the last, not before", func(s *script) {
		w := s.window(ib.MWType2)
		k := w.RKey()
		s.post(s.bind(w, k, 64, readWrite))
		s.completes(success(1))
		s.postRecv(2048)
		s.deliver(at(0), sendFirst(500, 1024))
		same(s, "verdict", s.usable(k), dma.OK)
		s.deliver(at(0), sendLastInv(501, 8, k))
		s.expect(at(0), ack(501))
		s.receives(received(1001, 1032).invalidated(k))
		same(s, "verdict", s.usable(k), dma.BadKey)
	}},
	{"SEND WITH INVALIDATE of no key", "IBA 10.6.7", "the receive has the error, and the connection ends", func(s *script) {
		s.postRecv(64)
		s.deliver(at(0), sendOnlyInv(500, 8, 0xabc00))
		s.refuses(nak(500, wire.NakRemoteOperation))
		s.receives(failure(1001, ib.WCMWBindErr))
	}},
	{"SEND WITH INVALIDATE of type 1", "o10-37.2.26", "is not allowed", func(s *script) {
		w := s.window(ib.MWType1)
		s.post(s.bind(w, w.RKey().Inc(), 64, readWrite))
		s.completes(success(1))
		s.postRecv(64)
		s.deliver(at(0), sendOnlyInv(500, 8, w.RKey()))
		s.refuses(nak(500, wire.NakRemoteOperation))
		s.receives(failure(1001, ib.WCMWBindErr))
		same(s, "verdict", s.usable(w.RKey()), dma.OK)
	}},
	{"duplicate SEND WITH INVALIDATE", "IBA 9.7.5.1.5", "ends nothing that was bound since", func(s *script) {
		w := s.window(ib.MWType2)
		k := w.RKey()
		s.post(s.bind(w, k, 64, readWrite))
		s.completes(success(1))
		s.postRecv(64)
		s.deliver(at(0), sendOnlyInv(500, 8, k))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 8).invalidated(k))
		s.post(s.bind(w, k, 64, readWrite))
		s.completes(success(2))
		s.deliver(at(us), sendOnlyInv(500, 8, k))
		s.expect(at(us), ack(500))
		same(s, "verdict", s.usable(k), dma.OK)
	}},
}

// usable says what the key table thinks of READs through a key.
func (s *script) usable(key ib.RKey) dma.Verdict {
	return s.table.Usable(s.domain, here, key, ib.AccessRemoteRead)
}
