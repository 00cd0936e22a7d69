package scripts

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var rights = []event{
	{"no such key", "IBA 9.7.4.1.3", "NAK remote access error", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).key(s.mr.RKey^0x12345600))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memory, 8)
	}},
	{"another variant of the key", "IBA 9.7.4.1.3", "the low byte counts", func(s *script) {
		s.deliver(at(0), readRequest(500, 8).key(s.mr.RKey+1))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"region deregistered", "IBA 9.7.4.1.3", "NAK remote access error", func(s *script) {
		s.table.Remove(s.mr)
		s.deliver(at(0), readRequest(500, 8))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"another protection domain", "IBA 9.7.4.1.3", "NAK remote access error", func(s *script) {
		mr := &dma.MR{Domain: &dma.Domain{Handle: 2}, Region: dma.NewEmbedded(s.arena), Base: memory, Length: 4096, Access: allRights}
		s.insert(mr)
		s.deliver(at(0), readRequest(500, 8).key(mr.RKey))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"READ without REMOTE_READ", "IBA 9.7.4.1.3", "of the region: NAK remote access error", func(s *script) {
		k := s.register(allRights &^ ib.AccessRemoteRead).RKey
		s.deliver(at(0), readRequest(500, 8).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"WRITE without REMOTE_WRITE", "IBA 9.7.4.1.3", "of the region: NAK remote access error", func(s *script) {
		k := s.register(allRights &^ ib.AccessRemoteWrite).RKey
		s.deliver(at(0), writeOnly(500, 8).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memory, 8)
	}},
	{"atomic without REMOTE_ATOMIC", "IBA 9.7.4.1.3", "of the region: NAK remote access error", func(s *script) {
		k := s.register(allRights &^ ib.AccessRemoteAtomic).RKey
		s.deliver(at(0), fetchAddRequest(500, 8).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memory, 8)
	}},
	{"ATOMIC WRITE without REMOTE_WRITE", "A19", "of the region: NAK remote access error", func(s *script) {
		k := s.register(allRights &^ ib.AccessRemoteWrite).RKey
		s.deliver(at(0), atomicWriteRequest(500, []byte("8 octets")).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memory, 8)
	}},
	{"FLUSH without FLUSH_GLOBAL", "A19", "of the region: NAK remote access error", func(s *script) {
		k := s.register(allRights &^ ib.AccessFlushGlobal).RKey
		s.deliver(at(0), flushRequest(500, 8).key(k))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"before the region", "IBA 9.7.4.1.3", "NAK remote access error", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).to(memory-4))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"over the end of the region", "IBA 9.7.4.1.3", "NAK remote access error, not even the part inside is stored", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).to(memoryEnd-4))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memoryEnd-4, 4)
	}},
	{"last bytes of the region", "IBA 9.7.4.1.3", "belong to it", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).to(memoryEnd-8))
		s.expect(at(0), ack(500))
		s.holds(memoryEnd-8, theirs(0, 8))
	}},
	{"around the end of the address space", "IBA 9.7.4.1.3", "address and length do not wrap: NAK remote access error", func(s *script) {
		s.deliver(at(0), readRequest(500, 0xffffff).to(^uint64(0)-3))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"the whole length counts", "IBA 9.7.4.1.3", "a FIRST is refused for what its message would write later", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).to(memoryEnd-1024).length(1025))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.untouched(memoryEnd-1024, 1024)
	}},
	{"region gone in the middle of a WRITE", "IBA 9.7.4.1.3", "NAK at the next packet; what was stored stays", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(2048).at(0))
		s.table.Remove(s.mr)
		s.deliver(at(us), writeLast(501, 1024))
		s.refuses(nak(501, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.holds(memory, theirs(0, 1024))
		s.untouched(memory+1024, 1024)
	}},
	{"region gone before a READ is answered", "IBA 9.7.4.1.3", "NAK in an ACKNOWLEDGE at the response that cannot be made", func(s *script) {
		s.deliver(at(0), readRequest(500, 2000))
		s.table.Remove(s.mr)
		s.expect(at(0), nak(500, wire.NakRemoteAccess))
		s.raises(ib.EventQPAccessErr)
		s.inState(ib.StateErr)
	}},
	{"WRITE with immediate tells in the receive", "man:ibv_get_async_event", "LOC_ACCESS_ERR there, and no event", func(s *script) {
		s.postRecv(0)
		s.deliver(at(0), writeOnlyImm(500, 8, 7).to(memoryEnd))
		s.refuses(nak(500, wire.NakRemoteAccess))
		s.receives(failure(1001, ib.WCLocAccessErr).because(transport.VendorBadRange))
	}},
	// A patch elsewhere says that it is an ATOMIC ACKNOWLEDGE. That has an AtomicAckETH, and there is no value to put there;
	// NAKs come in ACKNOWLEDGE packets alone, and a requester finds what they refuse by PSN.
	{"NAK of an atomic is an ACKNOWLEDGE", "IBA 9.7.5.2", "an ATOMIC ACKNOWLEDGE would have to carry a value", func(s *script) {
		s.deliver(at(0), compareSwapRequest(500, 0, 0).key(1))
		s.refuses(of(wire.RCAcknowledge, 500, 0).says(wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"refused atomic", "IBA 9.7.4.1.3", "atomics look at their key, whatever they would change", func(s *script) {
		s.deliver(at(0), fetchAddRequest(500, 0).key(1))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
}
