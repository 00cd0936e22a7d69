package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var acks = []event{
	{"ACK", "IBA 9.7.5", "a SEND ends when it is acknowledged", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.completes()
		s.deliver(at(us), ack(100))
		s.completes(success(1).as(ib.WCSend, 1))
	}},
	{"coalesced ACK", "IBA 9.7.5", "one ACK covers everything before it", func(s *script) {
		s.post(send(1), write(2), send(3))
		s.expect(at(0), sendOnly(100, 1), writeOnly(101, 2), sendOnly(102, 3))
		s.deliver(at(us), ack(102))
		s.completes(success(1), success(2), success(3))
	}},
	{"ACK within a message", "IBA 9.7.5", "the message ends with the ACK of its last packet", func(s *script) {
		s.post(send(1), send(3000))
		s.expect(at(0), sendOnly(100, 1), sendFirst(101, 1024), sendMiddle(102, 1024), sendLast(103, 952))
		s.deliver(at(us), ack(102))
		s.completes(success(1))
		s.deliver(at(2*us), ack(103))
		s.completes(success(2))
	}},
	{"ghost ACK", "IBA 9.7.6.1", "an ACK of what was acknowledged is dropped", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), ack(100), ack(100), ack(99))
		s.completes(success(1))
		s.deliver(at(2*us), ack(101))
		s.completes(success(2))
		same(s, "ghosts", s.counters.GhostAcks, 2)
	}},
	{"ACK of the future", "IBA 9.7.6.1", "an ACK of what was not sent is dropped", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), ack(101), ack(200))
		s.completes()
		s.deliver(at(2*us), ack(100))
		s.completes(success(1))
	}},
	{"ACK before anything was sent", "IBA 9.7.6.1", "dropped", func(s *script) {
		s.deliver(at(0), ack(100), ack(99))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"stale NAK", "IBA 9.7.6.1", "a fatal NAK of what was acknowledged harms nothing", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), ack(100), nak(100, wire.NakRemoteAccess))
		s.completes(success(1))
		s.deliver(at(2*us), ack(101))
		s.completes(success(2))
	}},
	{"MSN does not matter", "IBA 9.7.5", "no value of it completes or spoils anything", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), ack(100).msn(0xffffff))
		s.completes(success(1))
		s.deliver(at(2*us), ack(101).msn(0))
		s.completes(success(2))
	}},
	{"credit code 0", "IBA 9.7.7.2", "is not enforced: ConnectX sends it", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), nak(100, 0x00))
		s.completes(success(1))
		s.post(send(2), send(3))
		s.expect(at(us), sendOnly(101, 2), sendOnly(102, 3))
		s.deliver(at(2*us), ack(102))
		s.completes(success(2), success(3))
	}},
	{"reserved syndrome", "IBA 9.7.6.1", "dropped whole: it does not even acknowledge what is before it", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), nak(101, 0x40), nak(101, 0x80), nak(101, 0x65))
		s.completes()
		s.deliver(at(2*us), ack(101))
		s.completes(success(1), success(2))
	}},
	{"READ response acknowledges", "IBA 9.7.6.1", "everything before the READ ends with its response", func(s *script) {
		s.post(send(1), write(2), read(10))
		s.expect(at(0), sendOnly(100, 1), writeOnly(101, 2), readRequest(102, 10))
		s.deliver(at(us), readOnly(102, 0, 10))
		s.completes(success(1), success(2), success(3))
	}},
	{"atomic response acknowledges", "IBA 9.7.6.1", "everything before the atomic ends with its response", func(s *script) {
		s.post(send(1), fetchAdd(1))
		s.expect(at(0), sendOnly(100, 1), fetchAddRequest(101, 1))
		s.deliver(at(us), atomicAck(101, 7))
		s.completes(success(1), success(2))
		same(s, "result", s.word(results), 7)
	}},
	{"responses in ERR", "IBA 10.3.1.7", "dropped", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.modify(ib.StateErr)
		s.deliver(at(us), ack(100))
		s.completes(failure(1, ib.WCWRFlushErr))
	}},
	{"ACK asked for", "IBA 9.7.5", "a request with A is acknowledged after it was executed", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8))
		s.holds(memory, theirs(0, 8))
		s.expect(at(0), ack(500).msn(1))
	}},
	{"ACK not asked for", "IBA 9.7.5", "a request without A need not be acknowledged; the next ACK covers it", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).silent())
		s.expect(at(0))
		s.deliver(at(us), writeOnly(501, 8))
		s.expect(at(us), ack(501).msn(2))
	}},
	{"one ACK for a burst", "IBA 9.7.5", "the PSN is that of the newest request", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8), writeOnly(501, 8), writeOnly(502, 8))
		s.expect(at(0), ack(502).msn(3))
	}},
	{"ACK within a message that asks", "IBA 9.7.5", "A of a FIRST is answered, the MSN does not move", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1032).asks())
		s.expect(at(0), ack(500).msn(0))
		s.deliver(at(us), writeLast(501, 8))
		s.expect(at(us), ack(501).msn(1))
	}},
	{"ACK does not overtake a READ", "IBA 9.7.5", "answers leave in the order of their PSNs", func(s *script) {
		s.deliver(at(0), readRequest(500, 2000), writeOnly(502, 8).to(results))
		s.expect(at(0), readFirst(500, 0).msn(1), readLast(501, 1024, 976).msn(1), ack(502).msn(2))
	}},
	{"MSN counts messages", "IBA 9.7.5", "SENDs and WRITEs at their end, READs and atomics when they are accepted", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1025), writeLast(501, 1), readRequest(502, 8).to(results), fetchAddRequest(503, 0))
		s.expect(at(0), ack(501).msn(1), readOnly(502, results-memory, 8).msn(2), atomicAck(503, s.word(memory)).msn(3))
	}},
}
