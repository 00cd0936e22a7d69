package clock

import (
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	now := Time(1000)
	later := now.Add(time.Microsecond)
	if later != 2000 || later.Sub(now) != time.Microsecond || !later.After(now) || !now.Before(later) || now.After(now) {
		t.Errorf("%d and a microsecond: %d", now, later)
	}
	if Never.Add(time.Hour) != Never || Never.Add(-time.Hour) != Never || !Never.After(later) {
		t.Error("never stays never")
	}
}

func TestMonotonic(t *testing.T) {
	var source Source = Monotonic
	a := source()
	if b := source(); b < a {
		t.Errorf("%d, then %d", a, b)
	}
}
