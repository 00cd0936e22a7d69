package rc

import (
	"reflect"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Whole cycles, from the doorbell to the completion, with losses and timers, allocate nothing.
func TestRequesterAllocatesNothing(t *testing.T) {
	cycles := []struct {
		name    string
		request transport.Request
		answers []packet // by distance from the request's first number
		naked   bool     // a sequence NAK comes first
		late    bool     // the timer fires first
	}{
		{name: "SEND", request: send(3000), answers: []packet{ack(2)}},
		{name: "inline", request: inline("some bytes"), answers: []packet{ack(0)}},
		{name: "WRITE_IMM", request: writeImm(100, 1), answers: []packet{ack(0)}},
		{name: "READ", request: read(2000), answers: []packet{readFirst(0, 0, 1024), readLast(1, 1024, 976)}},
		{name: "FAA", request: fetchAdd(1), answers: []packet{atomicAck(0, 1)}},
		{name: "SEND_INV", request: sendInv(3000, 1), answers: []packet{ack(2)}},
		{name: "ATOMIC_WRITE", request: atomicWrite(1), answers: []packet{ack(0)}},
		{name: "FLUSH", request: flush(1), answers: []packet{readOnly(0, 0, 0)}},
		{name: "sequence NAK", request: send(3000), naked: true, answers: []packet{ack(2)}},
		{name: "timeout", request: send(3000), late: true, answers: []packet{ack(2)}},
		{name: "RNR", request: send(10), answers: []packet{rnrNak(0, 1), ack(0)}},
	}
	for _, c := range cycles {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, ackTimeout(10, 7), func(c *setup) { c.cfg.Trace = trace.NewRing(64) })
			s.qp.forget = true
			for i := range c.request.SGE {
				c.request.SGE[i].LKey = s.mr.LKey
			}
			made := make([]wire.Packet, len(c.answers))
			for i := range c.answers {
				c.answers[i].make(&made[i])
			}
			again := nak(0, wire.NakSequence)
			var hole wire.Packet
			again.make(&hole)
			one := []transport.Request{c.request}
			now := clock.Time(0)
			sendAll := func() {
				_, _ = s.e.Transmit(now, s.burst, 1<<20)
				s.burst.Consume(s.burst.Len())
			}
			n := testing.AllocsPerRun(100, func() {
				first := s.e.req.nxt
				one[0].Index = s.qp.posted
				s.qp.posted++
				s.qp.sends = one
				sendAll()
				if c.late {
					now = s.e.Deadline()
					s.e.Expire(now)
					sendAll()
				}
				if c.naked {
					hole.BTH().SetPSN(first)
					s.e.Receive(now, &hole)
					sendAll()
				}
				for i := range made {
					made[i].BTH().SetPSN(first.Add(uint32(c.answers[i].psn)))
					s.e.Receive(now, &made[i])
					if d := s.e.Deadline(); d != clock.Never && i+1 < len(made) {
						now = d
						s.e.Expire(now)
						sendAll()
					}
				}
			})
			if n != 0 {
				t.Fatalf("%v allocations a cycle", n)
			}
			if s.qp.ended != s.qp.posted || s.qp.posted < 100 {
				t.Fatalf("%d posted, %d ended", s.qp.posted, s.qp.ended)
			}
		})
	}
}

// 10,000 idle queue pairs are to be small: an entry is lean, and there are none before RTS.
func TestIdleQueuePairsAreSmall(t *testing.T) {
	if n := reflect.TypeFor[work]().Size(); n > 80 {
		t.Errorf("an entry has %d bytes", n)
	}
	s := newScript(t)
	e := New(s.e.cfg)
	if e.req.q.entries != nil || e.req.q.lists != nil || e.req.q.inline.B != nil {
		t.Error("the ring is there before RTS")
	}
}
