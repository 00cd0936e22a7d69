package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// The unreliable connection. Nothing is ever answered, so the packets that are expected are this side's requests alone.
var unreliableConnection = []event{
	{"SEND of many packets", "IBA 9.8.2", "FIRST, MIDDLE, LAST, none of which asks", func(s *script) {
		s.with(overUC)
		s.post(send(2500))
		s.expect(at(0), inUC(sendFirst(100, 1024)).silent(), inUC(sendMiddle(101, 1024)).silent(), inUC(sendLast(102, 452)).silent())
		s.completes(success(1))
	}},
	{"SEND of nothing", "IBA 9.8.2", "an ONLY without payload, and a receive at the other end", func(s *script) {
		s.with(overUC)
		s.post(send(0))
		s.expect(at(0), inUC(sendOnly(100, 0)))
		s.completes(success(1))
	}},
	{"WRITE", "IBA 9.8.2", "RETH in the first packet only", func(s *script) {
		s.with(overUC)
		s.post(write(1030), writeImm(3, 0xcafe))
		s.expect(at(0), inUC(writeFirst(100, 1024)).to(memory).length(1030), inUC(writeLast(101, 6)), inUC(writeOnlyImm(102, 3, 0xcafe)))
		s.completes(success(1), success(2))
	}},
	{"SE", "IBA 9.2", "in the last packet of what asked for it and takes a receive", func(s *script) {
		s.with(overUC)
		s.post(flagged(send(1025), ib.SendSolicited), flagged(write(4), ib.SendSolicited))
		s.expect(at(0), inUC(sendFirst(100, 1024)).notSE(), inUC(sendLast(101, 1)).se(), inUC(writeOnly(102, 4)).notSE())
		s.completes(success(1), success(2))
	}},
	{"completion", "IBA 9.8.2", "when the last packet has left: nobody waits for the peer", func(s *script) {
		s.with(overUC)
		s.post(send(1), send(2))
		s.expect(at(0), inUC(sendOnly(100, 1)), inUC(sendOnly(101, 2)))
		s.completes(success(1).as(ib.WCSend, 1), success(2).as(ib.WCSend, 2))
		s.expect(at(ms))
	}},
	{"receive", "IBA 9.8.2", "in order, without an answer, though the peer asks", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendFirst(500, 1024)).at(0), inUC(sendLast(501, 10)).at(1024).asks())
		s.expect(at(0))
		s.receives(received(1001, 1034))
		s.holds(buffers, theirs(0, 1034))
	}},
	{"a gap drops the rest of the message", "IBA 9.8.2", "MIDDLE and LAST behind it belong to nothing", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendFirst(500, 1024)), inUC(sendMiddle(502, 1024)), inUC(sendMiddle(503, 1024)), inUC(sendLast(504, 10)))
		s.receives()
		same(s, "messages dropped", s.counters.MessagesDropped, 1)
		s.deliver(at(0), inUC(sendOnly(505, 8)).at(8))
		s.receives(received(1001, 8)) // the same receive, from its beginning
		s.holds(buffers, theirs(8, 8))
	}},
	{"FIRST resynchronises", "IBA 9.8.2", "its PSN is taken whatever it is", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendFirst(9000, 1024)), inUC(sendLast(9001, 1)))
		s.receives(received(1001, 1025))
		same(s, "out_of_sequence", s.counters.OutOfSequence, 1)
	}},
	{"ONLY resynchronises", "IBA 9.8.2", "older numbers, too: nobody knows what was repeated", func(s *script) {
		s.with(overUC)
		s.postRecv(8, 8, 8)
		s.deliver(at(0), inUC(sendOnly(700, 8)), inUC(sendOnly(500, 8)), inUC(sendOnly(500, 8)))
		s.receives(received(1001, 8), received(1002, 8), received(1003, 8))
	}},
	{"FIRST within a message", "IBA 9.8.2", "the open message is given up, its receive begins anew", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendFirst(500, 1024)), inUC(sendFirst(501, 1024)).at(64), inUC(sendLast(502, 4)).at(64+1024))
		s.receives(received(1001, 1028))
		s.holds(buffers, theirs(64, 1028))
		same(s, "messages dropped", s.counters.MessagesDropped, 1)
	}},
	{"MIDDLE without FIRST", "IBA 9.8.2", "dropped, though its PSN is the expected one", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendMiddle(500, 1024)), inUC(sendLast(501, 4)))
		s.receives()
		s.inState(ib.StateRTS)
	}},
	{"LAST of another operation", "IBA 9.8.2", "ends nothing: the message is given up", func(s *script) {
		s.with(overUC)
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendFirst(500, 1024)), inUC(writeLast(501, 4)), inUC(sendLast(502, 4)))
		s.receives()
		s.untouched(memory, 8)
	}},
	{"no receive", "IBA 9.8.2", "the whole message is dropped, without RNR", func(s *script) {
		s.with(overUC)
		s.deliver(at(0), inUC(sendFirst(500, 1024)))
		s.postRecv(4096)
		s.deliver(at(0), inUC(sendLast(501, 4)))
		s.expect(at(0))
		s.receives()
		same(s, "out_of_buffer", s.counters.OutOfBuffer, 1)
	}},
	{"too long for the receive", "IBA 9.8.2", "dropped; the receive is there for the next", func(s *script) {
		s.with(overUC)
		s.postRecv(8)
		s.deliver(at(0), inUC(sendOnly(500, 9)), inUC(sendOnly(501, 8)))
		s.receives(received(1001, 8))
		same(s, "resp_local_length_error", s.counters.RespLocalLengthError, 1)
	}},
	{"MTU excess", "IBA 9.8.2", "a packet longer than the path MTU, or a MIDDLE that is shorter, ends its message", func(s *script) {
		s.with(overUC)
		s.postRecv(8192)
		s.deliver(at(0), inUC(sendOnly(500, 1025)), inUC(sendFirst(501, 1024)), inUC(sendMiddle(502, 1000)), inUC(sendLast(503, 4)))
		s.receives()
		same(s, "messages dropped", s.counters.MessagesDropped, 2)
	}},
	{"WRITE arrives", "IBA 9.8.2", "where its first packet said; with immediate a receive ends", func(s *script) {
		s.with(overUC)
		s.postRecv(0)
		s.deliver(at(0), inUC(writeFirst(500, 1024)).at(0).length(1032), inUC(writeLastImm(501, 8, 5)).at(1024))
		s.receives(writtenImm(1001, 1032, 5))
		s.holds(memory, theirs(0, 1032))
	}},
	{"WRITE with a bad key", "IBA 9.8.2", "dropped; nobody is told", func(s *script) {
		s.with(overUC)
		s.deliver(at(0), inUC(writeOnly(500, 8)).key(1))
		s.expect(at(0))
		s.untouched(memory, 8)
		s.raises()
		s.inState(ib.StateRTS)
		same(s, "resp_remote_access_errors", s.counters.RespRemoteAccessErrors, 1)
	}},
	{"WRITE that is not allowed here", "IBA 9.8.2", "without REMOTE_WRITE of the queue pair: dropped", func(s *script) {
		s.with(overUC, without(ib.AccessRemoteWrite))
		s.deliver(at(0), inUC(writeOnly(500, 8)))
		s.untouched(memory, 8)
		s.inState(ib.StateRTS)
	}},
	{"WRITE that is cut", "IBA 9.8.2", "what came before the gap stays written", func(s *script) {
		s.with(overUC)
		s.deliver(at(0), inUC(writeFirst(500, 1024)).at(0).length(3000), inUC(writeLast(502, 952)).at(2048))
		s.holds(memory, theirs(0, 1024))
		s.untouched(memory+1024, 1976)
	}},
	{"WRITE of another length than announced", "IBA 9.8.2", "dropped at the packet that does not fit", func(s *script) {
		s.with(overUC)
		s.deliver(at(0), inUC(writeOnly(500, 8)).length(9), inUC(writeOnly(501, 9)).length(8))
		s.untouched(memory, 16)
		same(s, "messages dropped", s.counters.MessagesDropped, 2)
	}},
	{"WRITE of nothing", "IBA 9.8.2", "names no memory: its key is not read", func(s *script) {
		s.with(overUC)
		s.postRecv(0)
		s.deliver(at(0), inUC(writeOnlyImm(500, 0, 5)).key(1).to(0))
		s.receives(writtenImm(1001, 0, 5))
	}},
	{"aborted message of a shared queue", "IBA 10.2.9", "its receive was taken, and says so", func(s *script) {
		s.with(overSharedUC)
		s.postRecv(4096, 4096)
		s.deliver(at(0), inUC(sendFirst(500, 1024)), inUC(sendOnly(501, 8)))
		s.receives(failure(1001, ib.WCRemAbortErr), received(1002, 8))
		s.inState(ib.StateRTS)
	}},
	{"receive with a bad key", "IBA 10.3.1", "LOC_PROT_ERR, and the error state: the receive is this side's mistake", func(s *script) {
		s.with(overUC)
		s.postList(ib.SGE{Addr: buffers, Length: 8, LKey: 1})
		s.deliver(at(0), inUC(sendOnly(500, 8)))
		s.receives(failure(1001, ib.WCLocProtErr))
		s.inState(ib.StateErr)
	}},
	{"local error", "IBA 10.3.1", "the send queue stops in SQE, what is behind is flushed, receives go on", func(s *script) {
		s.with(overUC)
		bad := send(8)
		bad.SGE[0].LKey = 1
		s.post(send(1), bad, send(2))
		s.expect(at(0), inUC(sendOnly(100, 1)))
		s.completes(success(1), failure(2, ib.WCLocProtErr), failure(3, ib.WCWRFlushErr))
		s.inState(ib.StateSQE)
		s.postRecv(8)
		s.deliver(at(us), inUC(sendOnly(500, 8)))
		s.receives(received(1001, 8))
		s.choice.attr.State = ib.StateRTS
		s.e.Modify(s.now, &s.choice.attr, ib.QPAttrState, nil)
		s.post(send(3))
		s.expect(at(us), inUC(sendOnly(101, 3)))
		s.completes(success(4))
	}},
	{"READ and atomics", "man:ibv_post_send", "are not of this service: LOC_QP_OP_ERR", func(s *script) {
		for _, r := range []func() transport.Request{
			func() transport.Request { return read(8) }, func() transport.Request { return fetchAdd(1) },
			func() transport.Request { return sendInv(8, 1) },
		} {
			s.with(overUC)
			s.post(r())
			s.completes(failure(1, ib.WCLocQPOpErr))
			s.inState(ib.StateSQE)
		}
	}},
	{"BIND_MW and LOCAL_INV", "man:ibv_post_send", "performed in their turn, without a packet", func(s *script) {
		s.with(overUC)
		w := s.window(ib.MWType2)
		key := w.RKey().Inc()
		s.post(s.bind(w, key, 8, ib.AccessRemoteWrite), send(1))
		s.expect(at(0), inUC(sendOnly(100, 1)))
		s.completes(success(1).as(ib.WCBindMW, 0), success(2))
		s.deliver(at(us), inUC(writeOnly(500, 8)).key(key))
		s.holds(memory, theirs(0, 8))
		s.post(localInv(key))
		s.completes(success(3).as(ib.WCLocalInv, 0))
		s.deliver(at(2*us), inUC(writeOnly(501, 8)).at(8).key(key))
		s.holds(memory, theirs(0, 8))
	}},
	{"packets of another service", "IBA 9.6", "dropped", func(s *script) {
		s.with(overUC)
		s.postRecv(8)
		s.deliver(at(0), sendOnly(500, 8), inXRC(sendOnly(500, 8)), of(wire.UDSendOnly, 500, 8), ack(100))
		s.receives()
		s.expect(at(0))
	}},
	{"COMM_EST", "man:ibv_get_async_event", "with the first packet in RTR, once", func(s *script) {
		s.with(overUC, only(ib.StateRTR))
		s.deliver(at(0), inUC(writeOnly(500, 8)), inUC(writeOnly(501, 8)))
		s.raises(ib.EventCommEst)
	}},
}
