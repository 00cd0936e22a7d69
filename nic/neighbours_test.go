package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
)

// A shard with one processor stops yielding beside who does not, for a while, and is not misled by a single long yield.
func TestNeighbours(t *testing.T) {
	var n neighbours
	now := clock.Time(time.Second)
	pass := func(d time.Duration) {
		t.Helper()
		if !n.yield(now) {
			t.Fatalf("at %v it does not yield", time.Duration(now))
		}
		began := now
		now = now.Add(d)
		n.judge(began, now)
	}
	for range 10 {
		for range hogs - 1 {
			pass(hogged)
		}
		pass(hogged - 1)
	}
	for range hogs {
		pass(hogged)
	}
	if n.yield(now) || n.yield(now.Add(withoutYield-1)) {
		t.Fatal("it yields beside who does not")
	}
	now = now.Add(withoutYield)
	pass(time.Microsecond) // it is tried again, and counted from the beginning
	for range hogs - 1 {
		pass(hogged)
	}
	if !n.yield(now) {
		t.Error("the yields before the pause count")
	}
}
