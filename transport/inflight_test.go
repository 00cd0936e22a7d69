package transport

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
)

func TestInFlight(t *testing.T) {
	port := InFlight{Limit: 100}
	var a, b, free Outstanding
	a.Enter(&port)
	b.Enter(&port)
	a.Add(120)
	if a.Allows() || !port.Refused {
		t.Error("beyond the limit")
	}
	port.Refused = false
	if !b.Allows() || port.Refused {
		t.Error("who has nothing outstanding may send")
	}
	b.Add(10)
	if b.Allows() || port.Room() != -30 {
		t.Errorf("room for %d", port.Room())
	}
	a.Sub(31)
	if !b.Allows() || port.Room() != 1 {
		t.Errorf("room for %d", port.Room())
	}
	b.Clear()
	b.Sub(50) // late, of what was given up
	if port.Used() != 89 {
		t.Errorf("%d outstanding", port.Used())
	}
	a.Clear()
	if port.Used() != 0 {
		t.Errorf("%d outstanding", port.Used())
	}
	free.Add(1 << 30)
	if !free.Allows() {
		t.Error("the zero value is bounded")
	}
	port.Limit = 0
	a.Add(1 << 30)
	if !a.Allows() {
		t.Error("no limit is one")
	}
}

// A pacer keeps its rate over any time, however late it is asked.
func TestPacerKeepsItsRate(t *testing.T) {
	for _, late := range []time.Duration{0, time.Microsecond, 70 * time.Microsecond, 190 * time.Microsecond} {
		var p Pacer
		p.SetRate(50e6)
		sent := 0
		var now clock.Time
		for now < clock.Time(time.Second) {
			for p.Open(now) {
				p.Sent(now, 1000)
				sent += 1000
			}
			now = p.Due().Add(late)
		}
		// A second's worth, the slack at its beginning, and one packet.
		if sent < 50e6-20000 || sent > 50e6+50e6/5000+1000 {
			t.Errorf("%v late: %d bytes in a second, want 50,000,000", late, sent)
		}
	}
	var p Pacer
	p.Sent(5, 1<<20)
	if !p.Open(0) || p.Rate() != 0 {
		t.Error("the zero value has a rate")
	}
	p.SetRate(1)
	p.Sent(0, 1<<20)
	if p.Open(clock.Time(time.Hour)) {
		t.Error("a megabyte at a byte a second takes days")
	}
	p.SetRate(0)
	if !p.Open(0) {
		t.Error("no rate, and it waits")
	}
}

func TestPacerAllocatesNothing(t *testing.T) {
	var p Pacer
	var port InFlight
	var o Outstanding
	p.SetRate(1e9)
	o.Enter(&port)
	if n := testing.AllocsPerRun(100, func() { p.Open(3); p.Sent(3, 5); o.Allows(); o.Add(3); o.Sub(3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
