package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var notReady = []event{
	{"RNR NAK", "IBA 9.7.5.2.8", "the requester waits at least the time in the NAK", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), rnrNak(100, 14)) // 1.28 ms
		s.expect(at(us + 1280*us - 1))
		s.expect(at(us+1280*us), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"RNR timer code 0", "IBA 9.7.5.2.8", "the longest wait, 655.36 ms, not none", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(0), rnrNak(100, 0))
		s.expect(at(655360*us - 1))
		s.expect(at(655360*us), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"RNR timer code 31", "IBA 9.7.5.2.8", "491.52 ms", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(0), rnrNak(100, 31))
		s.expect(at(491520*us), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"nothing overtakes", "IBA 9.7.5.2.8", "what is posted during the wait goes out behind", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(0), rnrNak(100, 1))
		s.post(send(2))
		s.expect(at(10*us), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(1), success(2))
	}},
	{"RNR NAK acknowledges", "IBA 9.7.5.2.8", "what is before its PSN has arrived", func(s *script) {
		s.post(write(1), send(2))
		s.expect(at(0), writeOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(0), rnrNak(101, 1))
		s.completes(success(1))
		s.expect(at(10*us), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(2))
	}},
	{"rnr_retry 0", "IBA 9.7.5.2.8", "the first RNR NAK is RNR_RETRY_EXC_ERR", func(s *script) {
		s.with(rnrRetry(0))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), rnrNak(100, 1))
		s.completes(failure(1, ib.WCRNRRetryExcErr), failure(2, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"rnr_retry 1", "IBA 9.7.5.2.8", "two attempts", func(s *script) {
		s.with(rnrRetry(1))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(0), rnrNak(100, 1))
		s.expect(at(10*us), sendOnly(100, 1))
		s.deliver(at(10*us), rnrNak(100, 1))
		s.completes(failure(1, ib.WCRNRRetryExcErr))
	}},
	{"rnr_retry 7", "IBA 9.7.5.2.8", "is for ever", func(s *script) {
		s.with(rnrRetry(7), retryCnt(0))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		for range 50 {
			s.deliver(s.now, rnrNak(100, 1))
			s.expect(s.now.Add(10*us), sendOnly(100, 1))
		}
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"counters are apart", "IBA 9.7.5.2.8", "RNR NAKs use no retry_cnt, timeouts no rnr_retry", func(s *script) {
		s.with(timeout(10, 1), rnrRetry(1))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(tick), sendOnly(100, 1))
		s.deliver(s.now, rnrNak(100, 1))
		s.expect(at(tick+10*us), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"ACK timer rests", "IBA 9.7.5.2.8", "no timeout during the wait, however short it is", func(s *script) {
		s.with(timeout(1, 0))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), rnrNak(100, 14))
		s.expect(at(1281*us), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"sequence NAK during the wait", "IBA 9.7.5.2.8", "rxe sends one for the burst behind: it starts nothing", func(s *script) {
		s.with(retryCnt(0))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(0), rnrNak(100, 1), nak(100, wire.NakSequence))
		s.expect(at(10*us), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(1), success(2))
	}},
	{"ACK during the wait", "IBA 9.7.5.2.8", "the RNR NAK was an old one: there is nothing to wait for", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), rnrNak(100, 0), ack(100))
		s.completes(success(1))
		s.expect(at(us), sendOnly(101, 2))
		s.deliver(at(2*us), ack(101))
		s.completes(success(2))
	}},
	{"no receive for a SEND", "IBA 9.7.5.2.8", "RNR NAK with min_rnr_timer; PSN and MSN stay", func(s *script) {
		s.with(minRNRTimer(14))
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), rnrNak(500, 14).msn(0))
		same(s, "rq_psn", s.query().RQPSN, 500)
		s.inState(ib.StateRTS)
	}},
	{"burst behind an RNR NAK", "IBA 9.7.5.2.8", "is dropped, without a NAK for the gap", func(s *script) {
		s.deliver(at(0), sendOnly(500, 8), writeOnly(501, 8))
		s.expect(at(0), rnrNak(500, 12))
		s.deliver(at(us), writeOnly(502, 8))
		s.expect(at(us))
		s.untouched(memory, 8)
	}},
	{"again not ready", "IBA 9.7.5.2.8", "each attempt has its RNR NAK", func(s *script) {
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), rnrNak(500, 12))
		s.deliver(at(us), sendOnly(500, 8))
		s.expect(at(us), rnrNak(500, 12))
		s.postRecv(8)
		s.deliver(at(2*us), sendOnly(500, 8))
		s.expect(at(2*us), ack(500).msn(1))
		s.receives(received(1001, 8))
	}},
	{"no receive for a WRITE with immediate", "IBA 9.7.5.2.8", "RNR NAK, and nothing is stored", func(s *script) {
		s.deliver(at(0), writeOnlyImm(500, 8, 7))
		s.expect(at(0), rnrNak(500, 12))
		s.untouched(memory, 8)
	}},
	{"no receive at the end of a WRITE with immediate", "IBA 9.7.5.2.8", "the receive is needed at the last packet, not before", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1032), writeLastImm(501, 8, 7))
		s.expect(at(0), rnrNak(501, 12))
		s.postRecv(0)
		s.deliver(at(us), writeLastImm(501, 8, 7))
		s.expect(at(us), ack(501).msn(1))
		s.receives(writtenImm(1001, 1032, 7))
	}},
	{"RNR NAK does not overtake a READ", "IBA 9.7.5", "answers leave in the order of their PSNs", func(s *script) {
		s.deliver(at(0), readRequest(500, 2000), sendOnly(502, 8))
		s.expect(at(0), readFirst(500, 0), readLast(501, 1024, 976), rnrNak(502, 12))
	}},
	{"min_rnr_timer changed", "IBA 9.7.5.2.8", "the NAK has the timer of the last modify", func(s *script) {
		s.change(ib.QPAttrMinRNRTimer, func(a *ib.QPAttr) { a.MinRNRTimer = 31 })
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), rnrNak(500, 31))
	}},
	{"READ not ready", "IBA 9.7.5.2.8", "an RNR NAK is obeyed whatever it answers", func(s *script) {
		s.post(read(8))
		s.expect(at(0), readRequest(100, 8))
		s.deliver(at(0), rnrNak(100, 1))
		s.expect(at(10*us), readRequest(100, 8))
		s.deliver(s.now, readOnly(100, 0, 8))
		s.completes(success(1))
	}},
}
