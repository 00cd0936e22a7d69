package rc

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

func boundedBy(f *transport.InFlight) func(*setup) {
	return func(c *setup) {
		c.cfg.Outstanding = new(transport.Outstanding)
		c.cfg.Outstanding.Enter(f)
	}
}

// Under a bound that others have used up a requester sends one packet, and goes on when there is room again.
func TestBoundOfThePort(t *testing.T) {
	const full = 1024 + packetOverhead
	port := transport.InFlight{Limit: 3 * full}
	s := newScript(t, boundedBy(&port))
	s.post(send(5 * 1024))
	s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendMiddle(102, 1024).asking(true))
	if !port.Refused || port.Used() != 3*full {
		t.Fatalf("refused %v, %d bytes outstanding", port.Refused, port.Used())
	}
	s.deliver(at(us), ack(100))
	s.expect(at(us), sendMiddle(103, 1024).asking(true))
	s.deliver(at(2*us), ack(103))
	if port.Used() != 0 {
		t.Fatalf("%d bytes outstanding after everything was acknowledged", port.Used())
	}
	var others transport.Outstanding
	others.Enter(&port)
	others.Add(10 * full)
	s.expect(at(2*us), sendLast(104, 1024))
	s.post(send(100))
	s.quiet() // has something outstanding
	s.deliver(at(3*us), ack(104))
	s.expect(at(3*us), sendOnly(105, 100))
	s.deliver(at(4*us), ack(105))
	s.completes(success(1), success(2))
	if port.Used() != 10*full {
		t.Fatalf("%d bytes outstanding", port.Used()-10*full)
	}
}

// The responses that a READ asks for count until they are here, no more than a window of them at a time.
func TestReadsCountTheirResponses(t *testing.T) {
	const full = 1024 + packetOverhead
	var port transport.InFlight
	s := newScript(t, boundedBy(&port), windowOf(4))
	s.post(read(6 * 1024))
	s.expect(at(0), readRequest(100, 0, 6*1024))
	for _, step := range []struct {
		p    packet
		want int
	}{
		{readFirst(100, 0, 1024), 4}, {readMiddle(101, 1024, 1024), 4}, {readMiddle(102, 2048, 1024), 3},
		{readMiddle(103, 3072, 1024), 2}, {readMiddle(104, 4096, 1024), 1}, {readLast(105, 5120, 1024), 0},
	} {
		s.deliver(at(us), step.p)
		if port.Used() != step.want*full {
			t.Errorf("after %v %d bytes are outstanding, want %d packets", step.p, port.Used(), step.want)
		}
	}
	s.completes(success(1))
}

// What was given up for lost counts no more; what is sent again counts once.
func TestLostPacketsAreNotOutstanding(t *testing.T) {
	const full = 1024 + packetOverhead
	var port transport.InFlight
	s := newScript(t, boundedBy(&port), ackTimeout(8, 1))
	s.post(send(4 * 1024))
	s.skip(at(0))
	s.deliver(at(us), nak(101, wire.NakSequence))
	if port.Used() != 0 {
		t.Errorf("%d bytes after a loss", port.Used())
	}
	s.skip(at(us))
	if port.Used() != 3*full {
		t.Errorf("%d bytes after three packets were sent again", port.Used())
	}
	s.deliver(at(2*us), ack(103))
	s.completes(success(1))
	if port.Used() != 0 {
		t.Errorf("%d bytes at the end", port.Used())
	}
	s.post(send(1024), send(1024))
	s.skip(at(ms))
	s.modify(ib.StateErr, 0)
	if port.Used() != 0 {
		t.Errorf("%d bytes in the error state", port.Used())
	}
	s.completes(flushed(2, 3)...)
}
