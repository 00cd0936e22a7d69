package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
)

const tenGigabit = 10e9 / 8

// The first CNP halves the rate, since alpha is 1; five steps of fast recovery give all but a thirty-second back.
func TestDCQCNCutsAndRecovers(t *testing.T) {
	var d dcqcn
	if d.rate(5) != 0 {
		t.Fatal("a rate without a CNP")
	}
	d.notify(0, tenGigabit)
	if r := d.rate(0); r != tenGigabit/2 {
		t.Fatalf("rate %d after the first CNP", r)
	}
	for i, want := range []float64{0.75, 0.875, 0.9375, 0.96875, 0.984375} {
		if r := d.rate(clock.Time(rateTimer) * clock.Time(i+1)); float64(r) < want*tenGigabit-2 || float64(r) > want*tenGigabit+2 {
			t.Errorf("step %d: rate %d, want %.0f", i+1, r, want*tenGigabit)
		}
	}
	if r := d.rate(clock.Time(100 * time.Millisecond)); r != 0 {
		t.Errorf("rate %d after a tenth of a second without a CNP", r)
	}
}

// CNPs in a row bring the rate down to the least, and never to nothing.
func TestDCQCNUnderManyCNPs(t *testing.T) {
	var d dcqcn
	now := clock.Time(0)
	for range 1000 {
		d.notify(now, tenGigabit)
		now += clock.Time(50 * time.Microsecond)
	}
	if r := d.rate(now); r != leastRate {
		t.Errorf("rate %d", r)
	}
	if d.alpha < alphaOne*9/10 || d.alpha > alphaOne {
		t.Errorf("alpha %d of %d", d.alpha, alphaOne)
	}
	// Fast recovery leads nowhere from there; additive increase adds 40 Mbit/s each 55 us.
	at := now + clock.Time(105*rateTimer)
	if r := float64(d.rate(at)) * 8; r < 3.8e9 || r > 4.2e9 {
		t.Errorf("%.0f bit/s after 100 additive steps", r)
	}
	if r := d.rate(now + clock.Time(time.Second)); r != 0 {
		t.Errorf("rate %d a second later", r)
	}
}

// Alpha is small on a way that is rarely congested: a CNP then takes little.
func TestDCQCNRemembersCalm(t *testing.T) {
	var d dcqcn
	d.notify(0, tenGigabit)
	now := clock.Time(100 * time.Millisecond)
	d.notify(now, tenGigabit)
	if r := d.rate(now); r < tenGigabit*99/100 {
		t.Errorf("rate %d after a CNP in calm", r)
	}
	// However long the calm, it is worked out at once.
	start := time.Now()
	d.notify(clock.Time(300*24*time.Hour), tenGigabit)
	if took := time.Since(start); took > 10*time.Millisecond {
		t.Errorf("%v for 300 days", took)
	}
}

// Bytes raise the rate as time does, and both together fast.
func TestDCQCNByteSteps(t *testing.T) {
	var d dcqcn
	for range 100 {
		d.notify(0, tenGigabit)
	}
	d.count(rateBytes - 1)
	if d.bytes != 0 {
		t.Error("a step too early")
	}
	d.count(1 + 6*rateBytes)
	if d.bytes != 7 || d.target != leastRate+2*additiveRaise {
		t.Errorf("%d steps, target %d", d.bytes, d.target)
	}
	before := d.target
	d.rate(clock.Time(6 * rateTimer)) // six by time as well: the last of them is hyper increase
	if d.target != before+5*additiveRaise+hyperRaise {
		t.Errorf("target %d, want %d more", d.target-before, uint64(5*additiveRaise+hyperRaise))
	}
}
