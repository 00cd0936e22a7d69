package scripts

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// tick is the local ACK timeout of these scripts: 4.096 us * 2^10.
const tick = 4096 * time.Nanosecond << 10

var retry = []event{
	{"timeout", "IBA 9.7.6.1.3", "what is not acknowledged in 4.096 us * 2^t goes out again", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.expect(at(tick - 1))
		s.expect(at(tick), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(1), success(2))
	}},
	{"timeout 0", "IBA 9.7.6.1.3", "there is no timer", func(s *script) {
		s.with(timeout(0, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(24 * time.Hour))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"timeout 31", "IBA 9.7.6.1.3", "two hours and a half", func(s *script) {
		s.with(timeout(31, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(4096*time.Nanosecond<<31), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"progress restarts the timer", "IBA 9.7.6.1.3", "an ACK gives what is left a whole timeout", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(tick/2), ack(100))
		s.completes(success(1))
		s.expect(at(tick + tick/2 - 1))
		s.expect(at(tick+tick/2), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(2))
	}},
	{"ghosts do not restart the timer", "IBA 9.7.6.1.3", "only progress does", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(tick/2), ack(99), ack(200))
		s.expect(at(tick), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"sending does not restart the timer", "IBA 9.7.6.1.3", "it belongs to the oldest packet", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.run(at(tick / 2))
		s.post(send(2))
		s.expect(at(tick/2), sendOnly(101, 2))
		s.expect(at(tick), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(1), success(2))
	}},
	{"timer stops", "IBA 9.7.6.1.3", "with nothing outstanding there is no deadline", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
		same(s, "deadline", s.e.Deadline(), clock.Never)
	}},
	{"retry_cnt 0", "IBA 9.9.2.4.2", "the first timeout is RETRY_EXC_ERR", func(s *script) {
		s.with(timeout(10, 0))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.run(at(tick))
		s.completes(failure(1, ib.WCRetryExcErr), failure(2, ib.WCWRFlushErr))
		s.inState(ib.StateErr)
	}},
	{"retry_cnt 2", "IBA 9.9.2.4.2", "three attempts, then RETRY_EXC_ERR", func(s *script) {
		s.with(timeout(10, 2))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(tick), sendOnly(100, 1))
		s.expect(at(2*tick), sendOnly(100, 1))
		s.run(at(3*tick - 1))
		s.completes()
		s.run(at(3 * tick))
		s.completes(failure(1, ib.WCRetryExcErr))
	}},
	{"retry_cnt 7", "IBA 9.9.2.4.2", "is seven retries, not for ever", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		for i := range time.Duration(8) {
			s.expect(at(i*tick), sendOnly(100, 1))
		}
		s.run(at(8 * tick))
		s.completes(failure(1, ib.WCRetryExcErr))
	}},
	{"progress reloads retry_cnt", "IBA 9.9.2.4.2", "what is left has all its retries", func(s *script) {
		s.with(timeout(10, 1))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.expect(at(tick), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
		s.expect(at(2*tick), sendOnly(101, 2))
		s.deliver(s.now, ack(101))
		s.completes(success(2))
	}},
	{"WRITE goes on from its middle", "IBA 9.7.2.1", "same PSNs and opcodes, no second RETH", func(s *script) {
		s.post(writeImm(3000, 9))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), writeLastImm(102, 952, 9))
		s.deliver(at(us), nak(101, wire.NakSequence))
		s.expect(at(us), writeMiddle(101, 1024).at(1024), writeLastImm(102, 952, 9).at(2048))
		s.deliver(at(2*us), ack(102))
		s.completes(success(1))
	}},
	{"lost last packet", "IBA 9.7.6.1.3", "nobody misses it: the timer repeats from there", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(2000))
		s.expect(at(0), sendFirst(100, 1024), sendLast(101, 976))
		s.deliver(at(us), ack(100))
		s.expect(at(us+tick), sendLast(101, 976).at(1024))
		s.deliver(s.now, ack(101))
		s.completes(success(1))
	}},
	{"lost atomic response", "IBA 9.7.2.1", "the identical packet goes out again", func(s *script) {
		s.with(timeout(10, 7))
		s.post(compareSwap(3, 4))
		s.expect(at(0), compareSwapRequest(100, 3, 4))
		s.expect(at(tick), compareSwapRequest(100, 3, 4))
		s.deliver(s.now, atomicAck(100, 3))
		s.completes(success(1))
	}},
	{"retry repeats no LOCAL_INV", "IBA 9.7.2.1", "local operations are performed once", func(s *script) {
		s.with(timeout(10, 7))
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, ib.AccessRemoteRead), send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(tick), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1), success(2))
	}},
	{"probe", "IBA 9.7.6.1.3", "with probes on a silent peer is asked before the timer fires, which costs no retry", func(s *script) {
		s.with(timeout(14, 0), probing(100*us))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(10*us), ack(100)) // a round trip is 10 us
		s.completes(success(1))
		s.post(send(2))
		s.expect(at(10*us), sendOnly(101, 2))
		s.expect(at(110*us), sendOnly(101, 2))
		s.deliver(at(120*us), ack(101))
		s.completes(success(2))
		same(s, "timeouts", s.counters.LocalAckTimeoutErr, 0)
	}},
	{"no probe by default", "IBA 9.7.6.1.3", "with probes off a silent peer is asked again by the timer alone", func(s *script) {
		s.with(timeout(14, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.expect(at(ib.AckTimeout(14) - 1))
		s.expect(at(ib.AckTimeout(14)), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
}
