package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var naks = []event{
	{"sequence NAK", "IBA 9.7.5.1.1", "the requester goes on at the PSN of the NAK", func(s *script) {
		s.post(send(3000))
		s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952)) // psn, bytes
		s.deliver(at(10*us), nak(101, wire.NakSequence))
		s.expect(at(10*us), sendMiddle(101, 1024).at(1024), sendLast(102, 952).at(2048))
		s.deliver(at(20*us), ack(102))
		s.completes(success(1)) // wr_id
	}},
	{"sequence NAK acknowledges", "IBA 9.7.5.1.1", "what is before its PSN has arrived", func(s *script) {
		s.post(send(1), send(2), send(3))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
		s.deliver(at(us), nak(102, wire.NakSequence))
		s.completes(success(1), success(2))
		s.expect(at(us), sendOnly(102, 3))
		s.deliver(at(2*us), ack(102))
		s.completes(success(3))
	}},
	{"sequence NAK at a READ", "IBA 9.7.5.1.1", "the READ is asked for again, whole", func(s *script) {
		s.post(send(1), read(3000))
		s.expect(at(0), sendOnly(100, 1), readRequest(101, 3000))
		s.deliver(at(us), nak(101, wire.NakSequence))
		s.completes(success(1))
		s.expect(at(us), readRequest(101, 3000).to(memory))
		s.deliver(at(2*us), readFirst(101, 0), readMiddle(102, 1024), readLast(103, 2048, 952))
		s.completes(success(2))
	}},
	{"sequence NAK twice", "IBA 9.7.2.1", "the second for one hole starts no second repetition", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), nak(100, wire.NakSequence), nak(100, wire.NakSequence))
		s.expect(at(us), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(2*us), ack(101))
		s.completes(success(1), success(2))
	}},
	{"sequence NAKs use up retry_cnt", "IBA 9.9.2.4.2", "RETRY_EXC_ERR when there was no progress", func(s *script) {
		s.with(retryCnt(0))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), nak(100, wire.NakSequence))
		s.completes(failure(1, ib.WCRetryExcErr), failure(2, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"invalid request", "IBA 9.7.5.2", "NAK 0x61 is REM_INV_REQ_ERR", func(s *script) {
		s.post(send(1), send(2), send(3))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
		s.deliver(at(us), nak(101, wire.NakInvalidRequest))
		s.completes(success(1), failure(2, ib.WCRemInvReqErr), failure(3, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"remote access error", "IBA 9.7.5.2", "NAK 0x62 is REM_ACCESS_ERR", func(s *script) {
		s.post(write(1), send(2))
		s.expect(at(0), writeOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), nak(100, wire.NakRemoteAccess))
		s.completes(failure(1, ib.WCRemAccessErr), failure(2, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"remote operational error", "IBA 9.7.5.2", "NAK 0x63 is REM_OP_ERR", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), nak(100, wire.NakRemoteOperation))
		s.completes(failure(1, ib.WCRemOpErr))
		s.inState(ib.StateErr)
	}},
	{"NAK of a READ", "IBA 9.7.5.2", "a refusal comes in an ACKNOWLEDGE", func(s *script) {
		s.post(read(8))
		s.expect(at(0), readRequest(100, 8))
		s.deliver(at(us), nak(100, wire.NakRemoteAccess))
		s.completes(failure(1, ib.WCRemAccessErr))
		s.untouched(results, 8)
	}},
	{"NAK of an atomic", "IBA 9.7.5.2", "a refusal comes in an ACKNOWLEDGE", func(s *script) {
		s.post(fetchAdd(8))
		s.expect(at(0), fetchAddRequest(100, 8))
		s.deliver(at(us), nak(100, wire.NakInvalidRequest))
		s.completes(failure(1, ib.WCRemInvReqErr))
	}},
	{"NAK in the middle of a READ", "IBA 9.7.5.2", "memory that goes away is refused at the response it spoils", func(s *script) {
		s.post(read(3000), send(1))
		s.expect(at(0), readRequest(100, 3000), sendOnly(103, 1))
		s.deliver(at(us), readFirst(100, 0), nak(101, wire.NakRemoteOperation))
		s.completes(failure(1, ib.WCRemOpErr), failure(2, ib.WCWRFlushErr))
	}},
	{"NAK behind an unanswered READ", "IBA 9.7.5.1.1", "the READ comes first: its response was lost", func(s *script) {
		s.post(read(10), write(1))
		s.expect(at(0), readRequest(100, 10), writeOnly(101, 1))
		s.deliver(at(us), nak(101, wire.NakRemoteAccess))
		s.completes()
		s.expect(at(us), readRequest(100, 10), writeOnly(101, 1))
		s.deliver(at(2*us), readOnly(100, 0, 10), nak(101, wire.NakRemoteAccess))
		s.completes(success(1), failure(2, ib.WCRemAccessErr))
	}},
	{"vendor_err tells the syndrome", "man:ibv_poll_cq", "of a refused request", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), nak(100, wire.NakRemoteAccess))
		same(s, "vendor_err", s.qp.sendDone[0].VendorErr, transport.VendorNAK+0x62)
		s.completes(failure(1, ib.WCRemAccessErr))
	}},
	{"gap", "IBA 9.7.4", "a NAK with the expected PSN, nothing executed", func(s *script) {
		s.deliver(at(0), writeOnly(501, 8))
		s.expect(at(0), nak(500, wire.NakSequence).msn(0))
		s.untouched(memory, 8)
		s.inState(ib.StateRTS)
	}},
	{"one NAK a gap", "IBA 9.7.4", "what follows is dropped without a word", func(s *script) {
		s.deliver(at(0), writeOnly(501, 8))
		s.expect(at(0), nak(500, wire.NakSequence))
		s.deliver(at(us), writeOnly(502, 8), writeOnly(503, 8))
		s.expect(at(us))
	}},
	{"gap repaired", "IBA 9.7.4", "then the next gap is a NAK again", func(s *script) {
		s.deliver(at(0), writeOnly(501, 8))
		s.expect(at(0), nak(500, wire.NakSequence))
		s.deliver(at(us), writeOnly(500, 8))
		s.expect(at(us), ack(500).msn(1))
		s.deliver(at(2*us), writeOnly(502, 8))
		s.expect(at(2*us), nak(501, wire.NakSequence).msn(1))
	}},
	{"gap within a message", "IBA 9.7.4", "the message goes on where it was", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(2056), writeLast(502, 8))
		s.expect(at(0), nak(501, wire.NakSequence))
		s.deliver(at(us), writeMiddle(501, 1024), writeLast(502, 8))
		s.expect(at(us), ack(502).msn(1))
	}},
	{"NAK does not overtake a READ", "IBA 9.7.5", "answers leave in the order of their PSNs", func(s *script) {
		s.deliver(at(0), readRequest(500, 2000), writeOnly(503, 8))
		s.expect(at(0), readFirst(500, 0), readLast(501, 1024, 976), nak(502, wire.NakSequence))
	}},
	{"NAK that was not asked for", "IBA 9.7.5", "an error is told whether A was set or not", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).key(1).silent())
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"ACK before the NAK", "IBA 9.7.5", "what was executed is acknowledged first", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8), writeOnly(501, 8).key(1))
		s.expect(at(0), ack(500).msn(1), nak(501, wire.NakRemoteAccess).msn(1))
		s.raises(ib.EventQPAccessErr)
		s.inState(ib.StateErr)
	}},
}
