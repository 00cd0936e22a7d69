package rc

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// newProber makes a script with probes after 100 us at the least, a local ACK timeout of 67 ms, and a round trip of 10 us
// that is known. Its next packet is 101.
func newProber(t *testing.T, choices ...func(*setup)) *script {
	t.Helper()
	probing := func(c *setup) { c.cfg.Limits.Probe = 100 * us }
	s := newScript(t, append([]func(*setup){ackTimeout(14, 7), probing}, choices...)...)
	s.post(send(10))
	s.expect(at(0), sendOnly(100, 10))
	s.deliver(at(10*us), ack(100))
	s.completes(success(1))
	s.run(at(20 * us))
	return s
}

// After silence the oldest packet goes once more, alone. An answer to all says that only an answer was lost.
func TestProbeWhenAnAnswerWasLost(t *testing.T) {
	s := newProber(t)
	s.post(send(3 * 1024))
	s.expect(at(20*us), sendFirst(101, 1024), sendMiddle(102, 1024), sendLast(103, 1024))
	s.run(at(119 * us))
	s.quiet()
	s.expect(at(120*us), sendFirst(101, 1024).asking(true))
	s.deliver(at(130*us), ack(103))
	s.completes(success(2))
	if s.e.req.window.size != s.e.req.window.limit {
		t.Errorf("the window is %d: nothing was lost", s.e.req.window.size)
	}
	s.counts("timeouts", s.counters.LocalAckTimeoutErr, 0)
}

// An answer to the probe alone says that what is behind it was lost as well.
func TestProbeFillsAHole(t *testing.T) {
	s := newProber(t)
	s.post(send(3 * 1024))
	s.expect(at(20*us), sendFirst(101, 1024), sendMiddle(102, 1024), sendLast(103, 1024))
	s.expect(at(120*us), sendFirst(101, 1024))
	s.deliver(at(130*us), ack(101))
	s.expect(at(130*us), sendMiddle(102, 1024), sendLast(103, 1024))
	s.deliver(at(140*us), ack(103))
	s.completes(success(2))
	if s.e.req.window.size != s.e.req.window.limit/2 {
		t.Errorf("the window is %d of %d after a loss", s.e.req.window.size, s.e.req.window.limit)
	}
}

// Probes wait longer and longer, use up no retries, and do not put off the ACK timer.
func TestProbesAreNoRetries(t *testing.T) {
	s := newProber(t, retryCnt(0))
	s.post(send(10))
	s.expect(at(20*us), sendOnly(101, 10))
	want := at(20 * us)
	for i := range 9 {
		want = want.Add(100 * us << i)
		s.expect(want, sendOnly(101, 10))
		s.counts("timeouts", s.counters.LocalAckTimeoutErr, 0)
	}
	timeout := at(20 * us).Add(ib.AckTimeout(14))
	s.run(timeout.Add(-1))
	s.completes()
	s.run(timeout)
	s.completes(failed(2, ib.WCRetryExcErr))
	if s.e.Deadline() != clock.Never {
		t.Errorf("a deadline is left: %v", time.Duration(s.e.Deadline()))
	}
}

// A NAK for what the probe brought goes back as ever, though one for the same hole had been heard before.
func TestProbeAfterALostRetransmission(t *testing.T) {
	s := newProber(t)
	s.post(send(3 * 1024))
	s.expect(at(20*us), sendFirst(101, 1024), sendMiddle(102, 1024), sendLast(103, 1024))
	s.deliver(at(30*us), nak(102, wire.NakSequence))
	s.expect(at(30*us), sendMiddle(102, 1024), sendLast(103, 1024)) // 102 is lost again, and the peer is silent
	s.expect(at(130*us), sendMiddle(102, 1024))
	s.deliver(at(140*us), ack(102))
	s.expect(at(140*us), sendLast(103, 1024))
	s.deliver(at(150*us), ack(103))
	s.completes(success(2))
}

// A READ is asked for again from where its responses stopped.
func TestProbeResumesARead(t *testing.T) {
	s := newProber(t)
	s.post(read(3*1024), send(10))
	s.expect(at(20*us), readRequest(101, 0, 3*1024), sendOnly(104, 10))
	s.deliver(at(30*us), readFirst(101, 0, 1024))
	s.expect(at(130*us), readRequest(102, 1024, 2*1024))
	s.deliver(at(140*us), readFirst(102, 1024, 1024), readLast(103, 2048, 1024), ack(104))
	s.completes(success(2), success(3))
}

// Who was asked to wait does not probe; neither does who knows no round trip, or has no ACK timer.
func TestNoProbe(t *testing.T) {
	s := newProber(t)
	s.post(send(10))
	s.expect(at(20*us), sendOnly(101, 10))
	s.deliver(at(30*us), rnrNak(101, 14)) // 1.28 ms
	s.run(at(1309 * us))
	s.quiet()
	s.expect(at(1310*us), sendOnly(101, 10))
	s.deliver(at(1320*us), ack(101))
	s.completes(success(2))

	s = newScript(t, ackTimeout(14, 7), func(c *setup) { c.cfg.Limits.Probe = 100 * us })
	s.post(send(10))
	s.expect(at(0), sendOnly(100, 10))
	s.run(at(60 * ms))
	s.quiet()
	s.deliver(s.now, ack(100))
	s.completes(success(1))

	s = newScript(t, func(c *setup) { c.cfg.Limits.Probe = 100 * us })
	s.post(send(10))
	s.skip(at(0))
	s.deliver(at(10*us), ack(100))
	s.run(at(20 * us))
	s.post(send(10))
	s.expect(at(20*us), sendOnly(101, 10))
	s.run(at(time.Minute))
	s.quiet()
	s.deliver(s.now, ack(101))
	s.completes(success(1), success(2))
}
