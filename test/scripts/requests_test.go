package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var requests = []event{
	{"completions are in order", "IBA 10.8.3", "a SEND that was acknowledged waits for the READ before it", func(s *script) {
		s.post(read(10), send(1))
		s.expect(at(0), readRequest(100, 10), sendOnly(101, 1))
		s.completes()
		s.deliver(at(us), readOnly(100, 0, 10))
		s.completes(success(1))
		s.deliver(at(2*us), ack(101))
		s.completes(success(2))
	}},
	{"unsignaled", "man:ibv_post_send", "success makes no entry", func(s *script) {
		s.post(unsignaled(send(1)), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), ack(101))
		s.completes(success(2))
		same(s, "sends that ended in silence", s.qp.silent, 1)
	}},
	{"unsignaled failure", "IBA 10.8.3", "an error is told, signaled or not", func(s *script) {
		s.post(unsignaled(send(1)), unsignaled(send(2)))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), nak(100, wire.NakRemoteOperation))
		s.completes(failure(1, ib.WCRemOpErr), failure(2, ib.WCWRFlushErr))
	}},
	{"fence behind a READ", "IBA 10.8.3.3", "a fenced SEND waits for the READ's data", func(s *script) {
		s.post(read(10), flagged(send(1), ib.SendFence))
		s.expect(at(0), readRequest(100, 10))
		s.deliver(at(us), readOnly(100, 0, 10))
		s.expect(at(us), sendOnly(101, 1))
		s.deliver(at(2*us), ack(101))
		s.completes(success(1), success(2))
	}},
	{"fence behind an atomic", "IBA 10.8.3.3", "a fenced WRITE waits for the atomic's result", func(s *script) {
		s.post(fetchAdd(1), flagged(write(1), ib.SendFence))
		s.expect(at(0), fetchAddRequest(100, 1))
		s.deliver(at(us), atomicAck(100, 0))
		s.expect(at(us), writeOnly(101, 1))
		s.deliver(at(2*us), ack(101))
		s.completes(success(1), success(2))
	}},
	{"fence behind SENDs", "IBA 10.8.3.3", "a fence does not wait for SENDs and WRITEs", func(s *script) {
		s.post(send(1), write(2), flagged(send(3), ib.SendFence))
		s.expect(at(0), sendOnly(100, 1), writeOnly(101, 2), sendOnly(102, 3))
		s.deliver(at(us), ack(102))
		s.completes(success(1), success(2), success(3))
	}},
	{"fence holds what is behind it", "IBA 10.8.3.3", "nothing overtakes a fenced request", func(s *script) {
		s.post(read(10), flagged(send(1), ib.SendFence), send(2))
		s.expect(at(0), readRequest(100, 10))
		s.deliver(at(us), readOnly(100, 0, 10))
		s.expect(at(us), sendOnly(101, 1), sendOnly(102, 2))
		s.deliver(at(2*us), ack(102))
		s.completes(success(1), success(2), success(3))
	}},
	{"no fence", "IBA 10.8.3.3", "a SEND behind a READ does not wait without one", func(s *script) {
		s.post(read(10), send(1))
		s.expect(at(0), readRequest(100, 10), sendOnly(101, 1))
		s.deliver(at(us), readOnly(100, 0, 10), ack(101))
		s.completes(success(1), success(2))
	}},
	{"max_rd_atomic", "IBA 9.7.3.1", "one READ more than agreed waits, and what is behind it", func(s *script) {
		s.with(initiatorDepth(1))
		s.post(read(10), read(20), send(1))
		s.expect(at(0), readRequest(100, 10))
		s.deliver(at(us), readOnly(100, 0, 10))
		s.expect(at(us), readRequest(101, 20), sendOnly(102, 1))
		s.deliver(at(2*us), readOnly(101, 0, 20), ack(102))
		s.completes(success(1), success(2), success(3))
	}},
	{"max_rd_atomic counts atomics", "IBA 9.7.3.1", "READs and atomics share the limit", func(s *script) {
		s.with(initiatorDepth(2))
		s.post(read(10), fetchAdd(1), compareSwap(1, 2))
		s.expect(at(0), readRequest(100, 10), fetchAddRequest(101, 1))
		s.deliver(at(us), readOnly(100, 0, 10))
		s.expect(at(us), compareSwapRequest(102, 1, 2))
		s.deliver(at(2*us), atomicAck(101, 0), atomicAck(102, 0))
		s.completes(success(1), success(2), success(3))
	}},
	{"max_rd_atomic and retry", "IBA 9.7.2.1", "a READ that is asked for again does not count twice", func(s *script) {
		s.with(initiatorDepth(2))
		s.post(read(10), read(20))
		s.expect(at(0), readRequest(100, 10), readRequest(101, 20))
		s.deliver(at(us), nak(100, wire.NakSequence))
		s.expect(at(us), readRequest(100, 10), readRequest(101, 20))
		s.deliver(at(2*us), readOnly(100, 0, 10), readOnly(101, 0, 20))
		s.completes(success(1), success(2))
	}},
	{"max_rd_atomic 0", "man:ibv_post_send", "where no READ was agreed on, one is LOC_QP_OP_ERR", func(s *script) {
		s.with(initiatorDepth(0))
		s.post(read(10))
		s.completes(failure(1, ib.WCLocQPOpErr))
		s.inState(ib.StateErr)
	}},
	{"gather with a bad key", "IBA 10.6.3", "LOC_PROT_ERR, and nothing is sent", func(s *script) {
		s.post(request(ib.WRSend, ib.SGE{Addr: memory, Length: 8, LKey: s.mr.LKey ^ 0x5500}))
		s.completes(failure(1, ib.WCLocProtErr))
		s.inState(ib.StateErr)
	}},
	{"gather out of range", "IBA 10.6.3", "LOC_PROT_ERR, and nothing is sent", func(s *script) {
		s.post(request(ib.WRRDMAWrite, ib.SGE{Addr: memoryEnd - 4, Length: 8}))
		s.completes(failure(1, ib.WCLocProtErr))
	}},
	{"result without LOCAL_WRITE", "IBA 10.6.3", "a READ into memory that may not be written is LOC_PROT_ERR", func(s *script) {
		mr := s.register(ib.AccessRemoteRead)
		s.post(request(ib.WRRDMARead, ib.SGE{Addr: results, Length: 8, LKey: mr.LKey}))
		s.completes(failure(1, ib.WCLocProtErr))
		s.untouched(results, 8)
	}},
	{"atomic result of four bytes", "man:ibv_post_send", "LOC_LEN_ERR", func(s *script) {
		s.post(request(ib.WRAtomicFetchAdd, result(4)))
		s.completes(failure(1, ib.WCLocLenErr))
	}},
	{"malformed work request", "man:ibv_post_send", "LOC_QP_OP_ERR", func(s *script) {
		s.qp.malformed = map[uint64]bool{1: true}
		s.post(send(1))
		s.completes(failure(1, ib.WCLocQPOpErr))
		s.inState(ib.StateErr)
	}},
	{"local error waits its turn", "IBA 10.8.3", "requests before it complete first, those behind are flushed", func(s *script) {
		s.post(send(1), request(ib.WRSend, ib.SGE{Addr: 1, Length: 8}), send(2))
		s.expect(at(0), sendOnly(100, 1))
		s.completes()
		s.deliver(at(us), ack(100))
		s.completes(success(1), failure(2, ib.WCLocProtErr), failure(3, ib.WCWRFlushErr))
	}},
	{"key gone before the retry", "IBA 9.7.2.1", "a retry gathers anew: LOC_PROT_ERR if the region is gone", func(s *script) {
		s.post(send(8))
		s.expect(at(0), sendOnly(100, 8))
		s.table.Remove(s.mr)
		s.deliver(at(us), nak(100, wire.NakSequence))
		s.completes(failure(1, ib.WCLocProtErr))
	}},
	{"retry sends what memory holds", "IBA 9.7.2.1", "payload is read again", func(s *script) {
		s.post(send(8))
		s.expect(at(0), sendOnly(100, 8).at(0))
		copy(s.memory(), "changed!")
		s.deliver(at(us), nak(100, wire.NakSequence))
		s.expect(at(us), sendOnly(100, 8).carries([]byte("changed!")))
		s.deliver(at(2*us), ack(100))
		s.completes(success(1))
	}},
}
