package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var duplicates = []event{
	{"of a SEND", "IBA 9.7.5.1.5", "delivered once, acknowledged with the newest PSN", func(s *script) {
		s.postRecv(64, 64)
		s.deliver(at(0), sendOnly(500, 8), writeOnly(501, 8))
		s.expect(at(0), ack(501).msn(2))
		s.deliver(at(us), sendOnly(500, 8))
		s.expect(at(us), ack(501).msn(2))
		s.receives(received(1001, 8))
	}},
	{"of a WRITE", "IBA 9.7.5.1.5", "not stored again", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8), writeOnly(501, 8).carries([]byte("new data")))
		s.expect(at(0), ack(501))
		s.deliver(at(us), writeOnly(500, 8))
		s.expect(at(us), ack(501).msn(2))
		s.holds(memory, []byte("new data"))
	}},
	{"that does not ask", "IBA 9.7.5.1.5", "not answered", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0), ack(500))
		s.deliver(at(us), writeOnly(500, 8).silent())
		s.expect(at(us))
	}},
	{"of a whole message", "IBA 9.7.5.1.5", "one ACK", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1032), writeLast(501, 8))
		s.expect(at(0), ack(501))
		s.deliver(at(us), writeFirst(500, 1024).length(1032), writeLast(501, 8))
		s.expect(at(us), ack(501).msn(1))
	}},
	{"within a message", "IBA 9.7.5.1.5", "changes nothing about the message", func(s *script) {
		s.postRecv(2048)
		s.deliver(at(0), writeOnly(500, 8), sendFirst(501, 1024), writeOnly(500, 8), sendLast(502, 8))
		s.expect(at(0), ack(502).msn(2))
		s.receives(received(1001, 1032))
	}},
	{"before anything was executed", "IBA 9.7.5.1.5", "acknowledged, not executed", func(s *script) {
		s.deliver(at(0), writeOnly(499, 8))
		s.expect(at(0), ack(499).msn(0))
		s.untouched(memory, 8)
	}},
	{"with a bad key", "IBA 9.7.5.1.5", "nobody looks at the key of a WRITE that was executed", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0), ack(500))
		s.deliver(at(us), writeOnly(500, 8).key(1))
		s.expect(at(us), ack(500))
		s.inState(ib.StateRTS)
	}},
	{"of FETCH ADD", "IBA 9.7.5.1.5", "the saved value, executed once", func(s *script) {
		s.setWord(memory, 5)
		s.deliver(at(0), fetchAddRequest(500, 1))
		s.expect(at(0), atomicAck(500, 5))
		s.deliver(at(us), fetchAddRequest(500, 1))
		s.expect(at(us), atomicAck(500, 5).msn(1))
		same(s, "word", s.word(memory), 6)
	}},
	{"of COMPARE SWAP", "IBA 9.7.5.1.5", "the saved value, though it would match again", func(s *script) {
		s.setWord(memory, 5)
		s.deliver(at(0), compareSwapRequest(500, 5, 9), compareSwapRequest(501, 9, 5))
		s.expect(at(0), atomicAck(500, 5), atomicAck(501, 9))
		s.deliver(at(us), compareSwapRequest(500, 5, 9))
		s.expect(at(us), atomicAck(500, 5))
		same(s, "word", s.word(memory), 5)
	}},
	{"of an atomic that is forgotten", "IBA 9.7.5.1.5", "dropped, never executed twice", func(s *script) {
		s.with(responderResources(1))
		s.setWord(memory, 5)
		s.deliver(at(0), fetchAddRequest(500, 1))
		s.expect(at(0), atomicAck(500, 5))
		s.deliver(at(us), fetchAddRequest(501, 1))
		s.expect(at(us), atomicAck(501, 6))
		s.deliver(at(2*us), fetchAddRequest(500, 1))
		s.expect(at(2 * us))
		same(s, "word", s.word(memory), 7)
	}},
	{"of a READ", "IBA 9.7.5.1.5", "executed again: memory as it is now", func(s *script) {
		s.deliver(at(0), readRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 8))
		copy(s.memory(), "new data")
		s.deliver(at(us), readRequest(500, 8))
		s.expect(at(us), of(wire.RCReadResponseOnly, 500, 8).carries([]byte("new data")).msn(1))
	}},
	{"of a READ from its middle", "IBA 9.7.5.1.1", "answered as a READ of its own, FIRST to LAST", func(s *script) {
		s.deliver(at(0), readRequest(500, 3000))
		s.expect(at(0), readFirst(500, 0), readMiddle(501, 1024), readLast(502, 2048, 952))
		s.deliver(at(us), readRequest(501, 3000-1024).to(memory+1024))
		s.expect(at(us), readFirst(501, 1024), readLast(502, 2048, 952))
	}},
	{"of a READ, larger", "IBA 9.7.5.1.5", "what the original did not read is not read: dropped", func(s *script) {
		s.deliver(at(0), readRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 8))
		s.deliver(at(us), readRequest(500, 12))
		s.expect(at(us))
		s.inState(ib.StateRTS)
	}},
	{"of a READ, elsewhere", "IBA 9.7.5.1.5", "dropped", func(s *script) {
		s.deliver(at(0), readRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 8))
		s.deliver(at(us), readRequest(500, 8).to(results))
		s.expect(at(us))
	}},
	{"of a READ, before its begin", "IBA 9.7.5.1.5", "dropped", func(s *script) {
		s.deliver(at(0), readRequest(500, 8).to(memory+8))
		s.expect(at(0), readOnly(500, 8, 8))
		s.deliver(at(us), readRequest(500, 8).to(memory+4))
		s.expect(at(us))
	}},
	{"of a READ, more responses than PSNs", "IBA 9.7.5.1.5", "they would be taken for answers to what followed: dropped", func(s *script) {
		s.deliver(at(0), readRequest(500, 2048))
		s.expect(at(0), readFirst(500, 0), readLast(501, 1024, 1024))
		s.deliver(at(us), readRequest(501, 2048))
		s.expect(at(us))
	}},
	{"of a READ, resumed with a new PSN", "IBA 9.7.5.1.1", "from the first response that was lost, though the original was answered", func(s *script) {
		s.deliver(at(0), readRequest(500, 5000).to(memory+8), writeOnly(505, 8).to(results))
		s.expect(at(0), readFirst(500, 8), readMiddle(501, 1032), readMiddle(502, 2056), readMiddle(503, 3080), readLast(504, 4104, 904), ack(505).msn(2))
		s.deliver(at(us), readRequest(503, 5000-3*1024).to(memory+8+3*1024))
		s.expect(at(us), readFirst(503, 3080).msn(2), readLast(504, 4104, 904).msn(2))
		s.deliver(at(2*us), readRequest(504, 904).to(memory+8+4*1024))
		s.expect(at(2*us), readOnly(504, 4104, 904).msn(2))
	}},
	{"of a READ, bytes of another PSN", "IBA 9.7.5.1.1", "a response's PSN says which bytes it carries: others are dropped", func(s *script) {
		s.deliver(at(0), readRequest(500, 3000))
		s.expect(at(0), readFirst(500, 0), readMiddle(501, 1024), readLast(502, 2048, 952))
		s.deliver(at(us), readRequest(500, 1024).to(memory+1024), readRequest(501, 1024), readRequest(501, 1024).to(memory+1032),
			readRequest(502, 8).to(memory+1024))
		s.expect(at(us))
		s.deliver(at(2*us), readRequest(501, 1024).to(memory+1024))
		s.expect(at(2*us), readOnly(501, 1024, 1024))
	}},
	{"of a READ, another key", "IBA 9.7.5.1.5", "dropped", func(s *script) {
		k := s.register(allRights).RKey
		s.deliver(at(0), readRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 8))
		s.deliver(at(us), readRequest(500, 8).key(k))
		s.expect(at(us))
	}},
	{"READ where an atomic was", "IBA 9.7.5.1.5", "dropped", func(s *script) {
		s.deliver(at(0), fetchAddRequest(500, 0))
		s.expect(at(0), atomicAck(500, s.word(memory)))
		s.deliver(at(us), readRequest(500, 8), readRequest(500, 0).key(0).to(0))
		s.expect(at(us))
	}},
	{"of a READ behind a WRITE", "IBA 9.7.5.1.5", "the READ is answered, the ACK of the WRITE comes after it", func(s *script) {
		s.deliver(at(0), readRequest(500, 8), writeOnly(501, 8).to(results))
		s.expect(at(0), readOnly(500, 0, 8), ack(501))
		s.deliver(at(us), readRequest(500, 8), writeOnly(501, 8).to(results))
		s.expect(at(us), readOnly(500, 0, 8).msn(2), ack(501).msn(2))
	}},
	{"of a READ whose region is gone", "IBA 9.7.5.1.5", "a NAK for who waits, and the connection lives", func(s *script) {
		s.deliver(at(0), readRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 8))
		s.table.Remove(s.mr)
		s.deliver(at(us), readRequest(500, 8))
		s.expect(at(us), nak(500, wire.NakRemoteAccess))
		s.inState(ib.StateRTS)
	}},
	{"of ATOMIC WRITE", "A19", "acknowledged, not stored again", func(s *script) {
		s.deliver(at(0), atomicWriteRequest(500, []byte("8 octets")), writeOnly(501, 8).carries([]byte("new data")))
		s.expect(at(0), ack(501))
		s.deliver(at(us), atomicWriteRequest(500, []byte("8 octets")))
		s.expect(at(us), ack(501).msn(2))
		s.holds(memory, []byte("new data"))
	}},
	{"of FLUSH", "A19", "answered again", func(s *script) {
		s.deliver(at(0), flushRequest(500, 8))
		s.expect(at(0), readOnly(500, 0, 0))
		s.deliver(at(us), flushRequest(500, 8))
		s.expect(at(us), readOnly(500, 0, 0))
	}},
	{"does not repair a gap", "IBA 9.7.4", "the NAK is not given again", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8), writeOnly(502, 8))
		s.expect(at(0), ack(500), nak(501, wire.NakSequence))
		s.deliver(at(us), writeOnly(500, 8), writeOnly(502, 8))
		s.expect(at(us), ack(500))
	}},
}
