package rc

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// The window closes after so many packets, and the last of them asks.
func TestWindowClosesWithAQuestion(t *testing.T) {
	s := newScript(t, windowOf(3))
	s.post(send(5 * 1024))
	s.expect(at(0), sendFirst(100, 1024).asking(false), sendMiddle(101, 1024).asking(false),
		sendMiddle(102, 1024).asking(true))
	s.deliver(at(us), ack(101))
	s.expect(at(us), sendMiddle(103, 1024), sendLast(104, 1024).asking(true))
	s.deliver(at(2*us), ack(104))
	s.completes(success(1))
}

// The numbers of a READ's responses count: what it asked for is on its way.
func TestReadFillsTheWindow(t *testing.T) {
	s := newScript(t, windowOf(4))
	s.post(read(6*1024), send(1))
	s.expect(at(0), readRequest(100, 0, 6*1024))
	s.deliver(at(us), readFirst(100, 0, 1024), readMiddle(101, 1024, 1024))
	s.quiet()
	s.deliver(at(2*us), readMiddle(102, 2048, 1024))
	s.expect(at(2*us), sendOnly(106, 1))
	s.deliver(at(3*us), readMiddle(103, 3072, 1024), readMiddle(104, 4096, 1024), readLast(105, 5120, 1024), ack(106))
	s.completes(success(1), success(2))
}

// A loss halves the window, each full window acknowledged adds a packet, and it never falls below the least.
func TestWindowHalvesOnLossAndGrows(t *testing.T) {
	s := newScript(t, windowOf(16))
	s.post(send(40 * 1024))
	if n := len(s.skip(at(0))); n != 16 {
		t.Fatalf("%d packets in the first window, want 16", n)
	}
	s.deliver(at(us), nak(104, wire.NakSequence)) // 4 acknowledged, the fifth lost
	got := s.skip(at(us))
	if len(got) != 8 || got[0].psn() != 104 || got[7].psn() != 111 || !got[7].bth().AckReq() {
		t.Fatalf("after a loss: %v, want psn 104 to 111, the last asking", got)
	}
	s.deliver(at(2*us), ack(111))
	if got = s.skip(at(2 * us)); len(got) != 9 || got[0].psn() != 112 || got[8].psn() != 120 {
		t.Fatalf("after a full window: %v, want 9 packets", got)
	}
	for range 5 {
		s.deliver(s.now.Add(us), nak(s.e.req.una.Next(), wire.NakSequence))
		got = s.skip(s.now)
	}
	if len(got) != minWindow {
		t.Fatalf("after many losses: %d packets, want %d", len(got), minWindow)
	}
	s.modify(ib.StateReset, 0)
}

func TestWindowNeverExceedsItsLimit(t *testing.T) {
	w := newWindow(8)
	w.shrink()
	for range 1000 {
		w.grow(8)
	}
	if w.size != 8 {
		t.Fatalf("window of %d, limit 8", w.size)
	}
	w = newWindow(8)
	w.shrink()
	if w.grow(9); w.size != 6 { // one for the window of 4, one for that of 5
		t.Fatalf("window of %d, want 6", w.size)
	}
	if w = newWindow(2); w.size != 2 {
		t.Fatalf("window of %d, want 2", w.size)
	}
	if w.shrink(); w.size != 2 {
		t.Fatalf("window of %d below the least of a small limit, want 2", w.size)
	}
}

// A long message asks every so often.
func TestAsksEveryFewPackets(t *testing.T) {
	s := newScript(t, askEvery(3))
	s.post(send(8 * 1024))
	s.expect(at(0), sendFirst(100, 1024).asking(false), sendMiddle(101, 1024).asking(false), sendMiddle(102, 1024).asking(true),
		sendMiddle(103, 1024).asking(false), sendMiddle(104, 1024).asking(false), sendMiddle(105, 1024).asking(true),
		sendMiddle(106, 1024).asking(false), sendLast(107, 1024).asking(true))
	s.deliver(at(us), ack(107))
	s.completes(success(1))
}

// A burst that ends in the middle of a message ends with a question: nobody knows when the next one goes.
func TestBudgetEndsWithAQuestion(t *testing.T) {
	s := newScript(t)
	s.budget = 2500
	s.post(send(5 * 1024))
	s.expect(at(0), sendFirst(100, 1024).asking(false), sendMiddle(101, 1024).asking(false), sendMiddle(102, 1024).asking(true),
		sendMiddle(103, 1024).asking(false), sendLast(104, 1024).asking(true))
	s.deliver(at(us), ack(104))
	s.completes(success(1))
}

func TestFullBurstEndsWithAQuestion(t *testing.T) {
	s := newScript(t)
	s.burst = wire.NewBurst(2)
	s.post(send(3 * 1024))
	s.expect(at(0), sendFirst(100, 1024).asking(false), sendMiddle(101, 1024).asking(true), sendLast(102, 1024).asking(true))
	s.deliver(at(us), ack(102))
	s.completes(success(1))
}

// Transmit says whether more could go now; waiting for a packet is not that.
func TestMoreMeansNow(t *testing.T) {
	s := newScript(t, windowOf(3))
	s.post(send(5 * 1024))
	if _, more := s.e.Transmit(0, s.burst, 1); !more || s.burst.Len() != 1 {
		t.Fatalf("with a small budget: more %v, %d frames", more, s.burst.Len())
	}
	if n, more := s.e.Transmit(0, s.burst, 0); !more || n != 0 {
		t.Fatalf("with no budget: more %v, %d bytes", more, n)
	}
	if _, more := s.e.Transmit(0, s.burst, 1<<20); more || s.burst.Len() != 3 {
		t.Fatalf("with the window closed: more %v, %d frames", more, s.burst.Len())
	}
	s.burst.Consume(3)
	s.modify(ib.StateReset, 0)
}
