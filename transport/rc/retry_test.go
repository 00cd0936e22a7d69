package rc

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// rows reads a table of the specification, without its head.
func rows(t *testing.T, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return all[1:]
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// IBA 9.7.6.1.3, every exponent: the timer fires between T = 4.096 us * 2^t and 4T; ours at T. 0 is no timer.
func TestEveryAckTimeout(t *testing.T) {
	for exp := range uint8(32) {
		t.Run(fmt.Sprint(exp), func(t *testing.T) {
			s := newScript(t, ackTimeout(exp, 1))
			s.post(send(1))
			s.expect(at(0), sendOnly(100, 1))
			if exp == 0 {
				if s.e.Deadline() != clock.Never {
					t.Fatal("there is a deadline without a timer")
				}
				s.expect(at(24 * time.Hour))
				s.modify(ib.StateReset, 0)
				return
			}
			T := 4096 * time.Nanosecond << exp
			s.expect(at(T - 1))
			s.expect(at(T), sendOnly(100, 1))
			s.expect(at(2*T - 1))
			s.completes()
			s.run(at(2 * T))
			s.completes(failed(1, ib.WCRetryExcErr))
			s.counts("timeouts", s.counters.LocalAckTimeoutErr, 2)
			s.counts("retries exceeded", s.counters.RetryExceededErr, 1)
			s.counts("packets sent again", s.counters.Retransmissions, 1)
			s.inState(ib.StateErr)
		})
	}
}

// IBA 9.9.2.4.2: 1 + retry_cnt attempts, then RETRY_EXC_ERR on the oldest request. 7 is seven retries, not for ever.
func TestEveryRetryCount(t *testing.T) {
	for n := range uint8(8) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newScript(t, ackTimeout(10, n))
			T := ib.AckTimeout(10)
			s.post(send(1), write(2))
			for i := range time.Duration(n) + 1 {
				s.expect(at(i*T), sendOnly(100, 1), writeOnly(101, 2))
			}
			s.run(at(time.Duration(n+1)*T - 1))
			s.completes()
			s.run(at(time.Duration(n+1) * T))
			s.qp.vendor(0, transport.VendorTimeout)
			s.completes(failed(1, ib.WCRetryExcErr), failed(2, ib.WCWRFlushErr))
			if s.e.Deadline() != clock.Never {
				t.Fatal("a timer runs in the error state")
			}
		})
	}
}

// A host that stalls for longer than the ACK timeout asks for has a floor: a value of the device, shown to users.
func TestAckFloor(t *testing.T) {
	s := newScript(t, ackTimeout(1, 7), func(c *setup) { c.cfg.Limits.AckFloor = 4 * ms })
	s.post(send(1))
	s.expect(at(0), sendOnly(100, 1))
	s.expect(at(4*ms - 1))
	s.expect(at(4*ms), sendOnly(100, 1))
	s.deliver(at(4*ms+us), ack(100))
	s.completes(success(1))

	s = newScript(t, ackTimeout(14, 7), func(c *setup) { c.cfg.Limits.AckFloor = 4 * ms })
	s.post(send(1))
	s.expect(at(0), sendOnly(100, 1))
	s.expect(at(ib.AckTimeout(14)), sendOnly(100, 1)) // a timeout above the floor counts as it is
	s.deliver(s.now, ack(100))
	s.completes(success(1))
}

// IBA 9.7.6.1.3: the timer is restarted by progress, and by nothing else; it stops when nothing is outstanding.
func TestAckTimerFollowsProgress(t *testing.T) {
	s := newScript(t, ackTimeout(10, 7))
	T := ib.AckTimeout(10)
	s.post(send(1), send(2), send(3))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
	s.deliver(at(T-1), ack(100))
	s.completes(success(1))
	s.deliver(at(2*T-3), ack(99), ack(110)) // ghosts
	s.expect(at(2*T - 2))
	s.expect(at(2*T-1), sendOnly(101, 2), sendOnly(102, 3))
	s.deliver(s.now, ack(102))
	s.completes(success(2), success(3))
	if s.e.Deadline() != clock.Never {
		t.Fatal("a timer runs with nothing outstanding")
	}
	s.expect(at(time.Hour))
	s.post(send(4))
	s.expect(at(time.Hour), sendOnly(103, 4))
	s.expect(at(time.Hour+T), sendOnly(103, 4))
	s.deliver(s.now, ack(103))
	s.completes(success(4))
}

// Later packets do not put off the timer of the oldest.
func TestSendingDoesNotRestartTheTimer(t *testing.T) {
	s := newScript(t, ackTimeout(10, 7))
	T := ib.AckTimeout(10)
	s.post(send(1))
	s.expect(at(0), sendOnly(100, 1))
	s.run(at(T / 2))
	s.post(send(2))
	s.expect(at(T/2), sendOnly(101, 2))
	s.expect(at(T), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(s.now, ack(101))
	s.completes(success(1), success(2))
}

// IBA 9.9.2.4.2: both counters are reloaded when an acknowledgement makes progress.
func TestProgressReloadsRetries(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1))
	T := ib.AckTimeout(10)
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.expect(at(T), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(T+1), ack(100))
	s.expect(at(2*T+1), sendOnly(101, 2))
	s.completes(success(1))
	s.run(at(3*T + 1))
	s.completes(failed(2, ib.WCRetryExcErr))
}

// Field bugs B6 and B7, IBA 9.7.5.2.8, every row of the table: the requester waits at least the time in the NAK (code 0 is
// 655.36 ms), although its ACK timeout is shorter, and then sends again.
func TestEveryRNRTimer(t *testing.T) {
	for _, row := range rows(t, "rnr_timers.csv") {
		t.Run(row[0], func(t *testing.T) {
			code, wait := uint8(number(t, row[0])), time.Duration(number(t, row[3]))*us
			s := newScript(t, ackTimeout(1, 0))
			s.post(send(3000), send(1))
			s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952), sendOnly(103, 1))
			s.deliver(at(us), nak(100, wire.Syndrome(number(t, row[2]))))
			if s.e.req.retry.rnrDeadline != at(us+ib.RNRTimer(code)) {
				t.Fatalf("code %d: waits until %v", code, s.e.req.retry.rnrDeadline)
			}
			s.post(send(2)) // nothing overtakes
			s.expect(at(us + wait - 1))
			s.expect(at(us+wait), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952), sendOnly(103, 1),
				sendOnly(104, 2))
			s.deliver(s.now, ack(104))
			s.completes(success(1), success(2), success(3))
			s.counts("timeouts", s.counters.LocalAckTimeoutErr, 0)
			s.counts("RNR NAKs", s.counters.RNRNakRetryErr, 1)
		})
	}
}

// IBA 9.7.5.2.8: 1 + rnr_retry attempts, then RNR_RETRY_EXC_ERR; 7 is for ever (rdma-unit-test SendRnrInfiniteRetries).
func TestEveryRNRRetry(t *testing.T) {
	for n := range uint8(8) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newScript(t, rnrRetry(n), retryCnt(0))
			s.post(send(1), send(2))
			s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
			attempts := int(n)
			if n == 7 {
				attempts = 100
			}
			for range attempts {
				s.deliver(s.now.Add(us), rnrNak(100, 1))
				s.expect(s.now.Add(10*us), sendOnly(100, 1), sendOnly(101, 2))
			}
			if n == 7 {
				s.deliver(s.now, ack(101))
				s.completes(success(1), success(2))
				return
			}
			s.deliver(s.now.Add(us), rnrNak(100, 1))
			s.qp.vendor(0, transport.VendorRNR)
			s.completes(failed(1, ib.WCRNRRetryExcErr), failed(2, ib.WCWRFlushErr))
			s.counts("RNR retries exceeded", s.counters.RNRRetryExceededErr, 1)
			s.inState(ib.StateErr)
		})
	}
}

// IBA 9.7.5.2.8: RNR NAKs and losses have counters of their own.
func TestRNRAndRetryCountApart(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1), rnrRetry(1))
	T := ib.AckTimeout(10)
	s.post(send(1))
	s.expect(at(0), sendOnly(100, 1))
	s.expect(at(T), sendOnly(100, 1)) // retry_cnt used up
	s.deliver(s.now, rnrNak(100, 1))  // rnr_retry used up
	s.expect(s.now.Add(10*us), sendOnly(100, 1))
	s.deliver(s.now, ack(100))
	s.completes(success(1))
}

func TestProgressReloadsRNRRetries(t *testing.T) {
	s := newScript(t, rnrRetry(1))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), rnrNak(100, 1))
	s.expect(at(11*us), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(12*us), rnrNak(101, 1)) // acknowledges the first: rnr_retry is 1 again
	s.completes(success(1))
	s.expect(at(22*us), sendOnly(101, 2))
	s.deliver(at(23*us), ack(101))
	s.completes(success(2))
}

// Linux rxe answers the burst behind an RNR NAK with a sequence NAK as well; while we wait that starts nothing, nor does
// the same RNR NAK twice.
func TestOtherNaksWhileWaitingForTheReceiver(t *testing.T) {
	s := newScript(t, rnrRetry(1), retryCnt(0))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), rnrNak(100, 1), nak(100, wire.NakSequence), rnrNak(100, 1))
	s.expect(at(11*us - 1))
	s.expect(at(11*us), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(12*us), ack(101))
	s.completes(success(1), success(2))
}

// An acknowledgement of the very packet shows that the NAK was an old one: there is nothing to wait for.
func TestAckEndsTheWaitForTheReceiver(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), rnrNak(100, 0))
	s.deliver(at(2*us), ack(100))
	s.expect(at(2*us), sendOnly(101, 2))
	s.deliver(at(3*us), ack(101))
	s.completes(success(1), success(2))
}

// IBA 9.7.5.1.1: from whichever packet the peer misses, the same packets go out again with the same numbers and opcodes.
func TestGoBackFromEveryPacket(t *testing.T) {
	packets := []packet{sendFirst(100, 1024), sendMiddle(101, 1024), sendMiddle(102, 1024), sendMiddle(103, 1024), sendLast(104, 404)}
	for i := range packets {
		packets[i] = packets[i].holds(pattern(i*1024, packets[i].bytes))
	}
	for i := range packets {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := newScript(t, retryCnt(1))
			s.post(send(4500))
			s.expect(at(0), packets...)
			s.deliver(at(us), nak(100+ib.PSN(i), wire.NakSequence))
			s.expect(at(us), packets[i:]...)
			s.deliver(at(2*us), ack(104))
			s.completes(success(1))
			s.counts("sequence NAKs", s.counters.PacketSeqErr, 1)
			s.counts("packets sent again", s.counters.Retransmissions, uint64(5-i))
		})
	}
}

// A WRITE that goes on from the middle does not name its memory again (IBA 9.7.2.1).
func TestWriteGoesBackWithoutRETH(t *testing.T) {
	s := newScript(t)
	s.post(writeImm(3000, 9))
	s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), of(wire.RCWriteLastImm, 102, 952))
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.expect(at(us), writeMiddle(101, 1024).holds(pattern(1024, 1024)), of(wire.RCWriteLastImm, 102, 952).imme(9))
	s.deliver(at(2*us), ack(102))
	s.completes(success(1))
}

// The loss of each packet of a message in turn, found by the peer, and the loss of the last, found by the timer.
func TestLossOfEachPacket(t *testing.T) {
	for lost := range 5 {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			s := newScript(t, ackTimeout(10, 3))
			s.post(send(4500))
			peer := goBackPeer{expected: 100}
			for _, p := range s.skip(at(0)) {
				if int(p.psn()-100) != lost {
					peer.take(s, p)
				}
			}
			for range 3 {
				s.now = s.now.Add(us)
				for _, p := range s.skip(max(s.now, min(s.e.Deadline(), at(10*ms)))) {
					peer.take(s, p)
				}
			}
			s.completes(success(1))
			if want := uint64(1); lost < 4 && s.counters.PacketSeqErr != want || lost == 4 && s.counters.LocalAckTimeoutErr != want {
				t.Fatalf("repaired by %d NAKs and %d timeouts", s.counters.PacketSeqErr, s.counters.LocalAckTimeoutErr)
			}
			if string(peer.data) != string(pattern(0, 4500)) {
				t.Fatal("the message differs")
			}
		})
	}
}

// goBackPeer is the least responder there can be.
type goBackPeer struct {
	expected ib.PSN
	latched  bool
	data     []byte
}

func (g *goBackPeer) take(s *script, p sentPacket) {
	switch d := p.psn().Diff(g.expected); {
	case d == 0:
		g.data = append(g.data, p.data...)
		g.expected = g.expected.Next()
		g.latched = false
	case d > 0 && !g.latched:
		g.latched = true
		s.deliver(s.now, nak(g.expected, wire.NakSequence))
		return
	case d > 0:
		return
	}
	if p.bth().AckReq() {
		s.deliver(s.now, ack(g.expected.Sub(1)))
	}
}

// IBA 9.7.5.1.1: one hole gives one retry, however often it is mentioned.
func TestOneRetryForOneHole(t *testing.T) {
	s := newScript(t, retryCnt(1))
	s.post(send(1), send(2), send(3))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.expect(at(us), sendOnly(101, 2), sendOnly(102, 3))
	s.deliver(at(2*us), nak(101, wire.NakSequence), nak(101, wire.NakSequence))
	s.quiet()
	// A later hole is another one, and progress paid for it.
	s.deliver(at(3*us), nak(102, wire.NakSequence))
	s.expect(at(3*us), sendOnly(102, 3))
	s.deliver(at(4*us), ack(102))
	s.completes(success(1), success(2), success(3))
}

// After a timeout the hole may be found again, in the packets sent since.
func TestNakAfterATimeoutCounts(t *testing.T) {
	s := newScript(t, ackTimeout(10, 2))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.expect(at(ib.AckTimeout(10)), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(s.now, nak(100, wire.NakSequence))
	s.expect(s.now, sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(s.now, ack(101))
	s.completes(success(1), success(2))

	s = newScript(t, ackTimeout(10, 3))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	for range 3 { // NAK, timeout, NAK
		s.deliver(s.now, nak(100, wire.NakSequence))
		if s.counters.PacketSeqErr == 2 {
			s.quiet() // the second in a row is about the same hole
			s.expect(s.e.Deadline(), sendOnly(100, 1), sendOnly(101, 2))
			continue
		}
		s.expect(s.now, sendOnly(100, 1), sendOnly(101, 2))
	}
	s.deliver(s.now, ack(101))
	s.completes(success(1), success(2))
}

// An RNR NAK says that the packet at the hole has arrived; the next hole at the same number is a new one.
func TestHoleAfterAnRNRNak(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), nak(100, wire.NakSequence))
	s.expect(at(us), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(2*us), rnrNak(100, 1))
	s.expect(at(12*us), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(13*us), nak(100, wire.NakSequence))
	s.expect(at(13*us), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(14*us), ack(101))
	s.completes(success(1), success(2))
}

// After a stall the timer may fire before the NAK that waits in the socket is read: both are about one loss, which costs
// one retry.
func TestTimeoutAndNakOfOneLossCostOneRetry(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.now = s.e.Deadline()
	s.e.Expire(s.now)
	s.receive(nak(100, wire.NakSequence))
	s.completes()
	s.expect(s.now, sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(s.now, ack(101))
	s.completes(success(1), success(2))
}

// IBA 9.9.2.4.2: sequence NAKs use retry_cnt as well.
func TestSequenceNakWithoutRetriesLeft(t *testing.T) {
	s := newScript(t, retryCnt(0))
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.completes(success(1), failed(2, ib.WCRetryExcErr))
	s.inState(ib.StateErr)
}

// What arrives before the packets go out again shortens what is sent again.
func TestLateAckShortensTheRepetition(t *testing.T) {
	s := newScript(t)
	s.post(send(5*1024), send(1))
	s.skip(at(0))
	s.now = at(us)
	s.receive(nak(101, wire.NakSequence))
	s.receive(ack(103))
	s.expect(at(us), sendLast(104, 1024), sendOnly(105, 1))
	s.deliver(at(2*us), ack(105))
	s.completes(success(1), success(2))
}

// What has ended is never done again. A retry walks what is outstanding on the wire, and a request that makes no sense ends
// once, in its turn.
func TestRetryRepeatsNothingThatEnded(t *testing.T) {
	s := newScript(t)
	s.post(send(1), fetchAdd(1), send(2), transport.Request{Opcode: 10, Flags: ib.SendSignaled}, send(3))
	s.expect(at(0), sendOnly(100, 1), of(wire.RCFetchAdd, 101, 0), sendOnly(102, 2))
	s.deliver(at(us), atomicAck(101, 5), nak(102, wire.NakSequence))
	s.completes(success(1), success(2))
	s.expect(at(us), sendOnly(102, 2))
	s.deliver(at(2*us), ack(102))
	s.completes(success(3), failed(4, ib.WCLocQPOpErr), failed(5, ib.WCWRFlushErr))
}
