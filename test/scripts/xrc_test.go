package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// The extended reliable connection: where its halves differ from the plain one, which the other chapters are about.
var extended = []event{
	{"XRCETH", "A14", "in every packet of a request, directly behind the BTH", func(s *script) {
		s.with(initiator)
		s.post(naming(ours, send(2500)), naming(others, write(3)), naming(ours, fetchAdd(1)))
		s.expect(at(0), sendFirst(100, 1024).naming(ours), sendMiddle(101, 1024).naming(ours), sendLast(102, 452).naming(ours),
			writeOnly(103, 3).naming(others).to(memory), fetchAddRequest(104, 1).naming(ours))
		s.deliver(at(us), inXRC(ack(103)), inXRC(atomicAck(104, 9)))
		s.completes(success(1), success(2), success(3))
	}},
	{"XRCETH of a retry", "A14", "the packet that is sent again names the queue again", func(s *script) {
		s.with(initiator)
		s.post(naming(ours, send(2500)))
		s.expect(at(0), sendFirst(100, 1024).naming(ours), sendMiddle(101, 1024).naming(ours), sendLast(102, 452).naming(ours))
		s.deliver(at(us), inXRC(nak(101, wire.NakSequence)))
		s.expect(at(us), sendMiddle(101, 1024).naming(ours), sendLast(102, 452).naming(ours))
		s.deliver(at(2*us), inXRC(ack(102)))
		s.completes(success(1))
	}},
	{"responses", "A14", "are of the group of XRC and name no queue", func(s *script) {
		s.with(target)
		s.postRecv(8)
		s.deliver(at(0), inXRC(sendOnly(500, 8)), inXRC(readRequest(501, 8)))
		s.expect(at(0), inXRC(ack(500)).msn(1), inXRC(readOnly(501, 0, 8)).msn(2))
		s.receives(received(1001, 8))
	}},
	{"queue of another domain", "A14", "NAK remote access error, the error state, and those who have the target open are told", func(s *script) {
		s.with(target)
		s.postRecv(8)
		s.deliver(at(0), sendOnly(500, 8).naming(nobody))
		s.expect(at(0), inXRC(nak(500, wire.NakRemoteAccess)))
		s.raises(ib.EventQPAccessErr)
		s.inState(ib.StateErr)
		same(s, "resp_remote_access_errors", s.counters.RespRemoteAccessErrors, 1)
	}},
	{"another queue within a message", "A14", "a message is for one queue: NAK remote access error", func(s *script) {
		s.with(target)
		s.deliver(at(0), writeFirst(500, 1024).naming(ours).length(1032), writeLast(501, 8).naming(others))
		s.expect(at(0), inXRC(nak(501, wire.NakRemoteAccess)))
		s.raises(ib.EventQPAccessErr)
		s.holds(memory, theirs(0, 1024))
		s.untouched(memory+1024, 8)
	}},
	{"keys", "A14", "are those of the protection domain of the queue that is named", func(s *script) {
		s.with(target)
		s.deliver(at(0), writeOnly(500, 8).naming(ours))
		s.expect(at(0), inXRC(ack(500)))
		s.holds(memory, theirs(0, 8))
		s.deliver(at(us), writeOnly(501, 8).naming(others).to(memory+8))
		s.expect(at(us), inXRC(nak(501, wire.NakRemoteAccess)))
		s.raises(ib.EventQPAccessErr)
		s.untouched(memory+8, 8)
	}},
	{"receives of another protection domain", "A14", "a receive's keys are the queue's, too: NAK remote operational error", func(s *script) {
		s.with(target)
		s.postRecv(8)
		s.deliver(at(0), sendOnly(500, 8).naming(others))
		s.expect(at(0), inXRC(nak(500, wire.NakRemoteOperation)))
		s.receives(failure(1001, ib.WCLocProtErr))
	}},
	{"WRITE of nothing to no queue", "A14", "the queue is named in every request, whether or not it is used", func(s *script) {
		s.with(target)
		s.deliver(at(0), writeOnly(500, 0).naming(nobody))
		s.expect(at(0), inXRC(nak(500, wire.NakRemoteAccess)))
		s.raises(ib.EventQPAccessErr)
	}},
	{"empty queue", "IBA 9.7.5.2.8", "RNR NAK, and the message comes again", func(s *script) {
		s.with(target)
		s.deliver(at(0), inXRC(sendOnly(500, 8)))
		s.expect(at(0), inXRC(rnrNak(500, 12)))
		s.postRecv(8)
		s.deliver(at(us), inXRC(sendOnly(500, 8)))
		s.expect(at(us), inXRC(ack(500)))
		s.receives(received(1001, 8))
	}},
	{"duplicate to another queue", "IBA 9.7.5.1.5", "acknowledged: nobody looks at what was executed", func(s *script) {
		s.with(target)
		s.deliver(at(0), writeOnly(500, 8).naming(ours))
		s.expect(at(0), inXRC(ack(500)))
		s.deliver(at(us), writeOnly(500, 8).naming(nobody))
		s.expect(at(us), inXRC(ack(500)))
		s.inState(ib.StateRTS)
	}},
	{"duplicate READ", "IBA 9.7.5.1.5", "answered from the protection domain that it was executed in", func(s *script) {
		s.with(target)
		s.deliver(at(0), readRequest(500, 8).naming(ours))
		s.expect(at(0), inXRC(readOnly(500, 0, 8)))
		s.deliver(at(us), writeOnly(501, 0).naming(others), readRequest(500, 8).naming(ours))
		s.expect(at(us), inXRC(readOnly(500, 0, 8)), inXRC(ack(501)))
	}},
	{"atomics", "A14", "executed once, the saved value comes again", func(s *script) {
		s.with(target)
		s.setWord(memory, 5)
		s.deliver(at(0), inXRC(fetchAddRequest(500, 1)))
		s.expect(at(0), inXRC(atomicAck(500, 5)))
		s.deliver(at(us), inXRC(fetchAddRequest(500, 1)))
		s.expect(at(us), inXRC(atomicAck(500, 5)))
		same(s, "word", s.word(memory), 6)
	}},
	{"credits", "IBA 9.7.7.2", "none are given: receives are shared", func(s *script) {
		s.with(target)
		s.deliver(at(0), inXRC(writeOnly(500, 8)))
		s.expect(at(0), inXRC(nak(500, wire.AckSyndrome)))
		same(s, "credit code", uint8(wire.AckSyndrome)&31, 31)
	}},
	{"initiator hears no requests", "A14", "it has no responder: dropped", func(s *script) {
		s.with(initiator)
		s.deliver(at(0), inXRC(writeOnly(500, 8)), inXRC(readRequest(500, 8)))
		s.expect(at(0))
		s.untouched(memory, 8)
	}},
	{"target hears no responses", "A14", "it has no requester: dropped", func(s *script) {
		s.with(target)
		s.deliver(at(0), inXRC(ack(100)), inXRC(nak(100, wire.NakRemoteAccess)))
		s.expect(at(0))
		s.inState(ib.StateRTS)
	}},
	{"packets of another service", "IBA 9.6", "dropped by either half", func(s *script) {
		s.with(target)
		s.deliver(at(0), writeOnly(500, 8), inUC(writeOnly(500, 8)))
		s.expect(at(0))
		s.untouched(memory, 8)
		s.with(initiator)
		s.post(naming(ours, send(1)))
		s.expect(at(0), sendOnly(100, 1).naming(ours))
		s.deliver(at(us), ack(100))
		s.completes()
		s.deliver(at(us), inXRC(ack(100)))
		s.completes(success(1))
	}},
}
