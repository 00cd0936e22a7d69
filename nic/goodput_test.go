package nic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// link is one direction of a wire with a rate, a delay and losses, in virtual time. It is the port of the device that
// sends into it; that device receives from back.
type link struct {
	*cable
	back     *link
	rand     *rand.Rand
	loss     float64
	rate     float64 // bytes a second
	delay    time.Duration
	free     clock.Time // when the wire has taken what it has
	flying   []flying   // oldest first
	buffers  [][]byte
	received [][]byte // given out by the last Recv
}

type flying struct {
	due clock.Time
	b   []byte
	p   *wire.Path
}

func newLinks(rate float64, delay time.Duration, loss float64) (a, b *link) {
	mk := func(seed uint64) *link {
		return &link{cable: newCable(1), rand: rand.New(rand.NewPCG(seed, 9)), loss: loss, rate: rate, delay: delay}
	}
	a, b = mk(1), mk(2)
	a.back, b.back = b, a
	return a, b
}

// queued is how long packets wait for the wire at the most.
const queued = 500 * time.Microsecond

func (l *link) Send(now clock.Time, frames []wire.Frame) (int, error) {
	for i := range frames {
		l.free = max(l.free, now)
		if l.free.Sub(now) > queued {
			return i, nil
		}
		l.free = l.free.Add(time.Duration(float64(frames[i].Len()+60) / l.rate * 1e9))
		if l.rand.Float64() < l.loss {
			continue
		}
		var b []byte
		if n := len(l.buffers); n > 0 {
			b, l.buffers = l.buffers[n-1][:0], l.buffers[:n-1]
		}
		b, err := frames[i].AppendTo(b, 0)
		if err != nil {
			return i, &FrameFault{err}
		}
		l.flying = append(l.flying, flying{l.free.Add(l.delay), b, frames[i].Path})
	}
	return len(frames), nil
}

func (l *link) Recv(now clock.Time, packets []wire.Packet) (n int) {
	from := l.back
	from.buffers = append(from.buffers, l.received...)
	l.received = l.received[:0]
	for n < len(packets) && len(from.flying) > 0 && !from.flying[0].due.After(now) {
		f := from.flying[0]
		from.flying = from.flying[1:]
		l.received = append(l.received, f.b)
		if wire.Parse(&packets[n], &wire.Datagram{Bytes: f.b, Source: f.p.Source, Dest: f.p.Dest, SourcePort: f.p.SourcePort,
			TrafficClass: f.p.TrafficClass, HopLimit: f.p.HopLimit, IDKnown: true}) == wire.Accepted {
			n++
		}
	}
	return n
}

// Deadline is when something arrives.
func (l *link) Deadline() clock.Time {
	if len(l.back.flying) == 0 {
		return never
	}
	return l.back.flying[0].due
}

// goodput returns the bits per second that one stream of WRITEs of 64 KiB moves over a wire of 10 Gbit/s and 50 us there
// and back.
func goodput(t *testing.T, loss float64, op ib.WROpcode) float64 {
	t.Helper()
	la, lb := newLinks(10e9/8, 25*time.Microsecond, loss)
	on := func(p Port) func(*Config) {
		return func(c *Config) { c.Port, c.Limits.AckFloor = p, 0 }
	}
	a := newHost(t, "softnic0", "10.0.0.1", la.cable, on(la))
	b := newHost(t, "softnic1", "10.0.0.2", lb.cable, on(lb))
	w := &world{devs: []*Device{a.dev, b.dev}}
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	const size, span = 64 << 10, 100 * time.Millisecond
	posted, done := 0, 0
	for w.now < clock.Time(span) {
		for posted-done < 16 {
			x.postSend(abi.SendWQE{Opcode: uint8(op), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()),
				RemoteAddr: 0x10000}, x.sge(0, size))
			posted++
		}
		w.run(100 * time.Microsecond)
		for _, c := range x.poll(t) {
			if c.Status != 0 {
				t.Fatalf("loss %v: completion %+v", loss, c)
			}
			done++
		}
	}
	t.Logf("%s, loss %.1f %%: %.2f Gbit/s, %d retransmissions, %d timeouts", op, loss*100, float64(done)*size*8/span.Seconds()/1e9,
		a.counter("retransmissions"), a.counter("local_ack_timeout_err"))
	return float64(done) * size * 8 / span.Seconds()
}

// Goodput under loss does not collapse: a loss costs a round trip.
func TestGoodputUnderLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("gigabytes in virtual time")
	}
	for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead} {
		for loss, least := range map[float64]float64{0: 0.95, 0.001: 0.85, 0.01: 0.4, 0.02: 0.25, 0.05: 0.09} {
			if got := goodput(t, loss, op); got < least*10e9 {
				t.Errorf("%s at a loss of %.1f %%: %.2f Gbit/s, want %.2f at least", op, 100*loss, got/1e9, 10*least)
			}
		}
	}
}
