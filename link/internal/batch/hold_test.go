package batch

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
)

// came returns messages of these sizes.
func came(sizes ...int) []Message {
	m := make([]Message, len(sizes))
	for i, n := range sizes {
		m[i].n = uint32(n)
	}
	return m
}

// What is held leaves oldest first: as much as is too much or too many, and all of it when nothing large has come for a while, or
// when the sender is ahead.
func TestHolding(t *testing.T) {
	const kib = 1 << 10
	var now clock.Time
	h := holding{limit: 300 * kib}
	add := func(sizes ...int) { h.add(now, came(sizes...), len(sizes)+1, 64*kib, h.flags(now)) }
	add(100, 100)
	if h.count != 0 || h.flags(now) != 0 {
		t.Fatalf("small messages alone are held: %d, flags %#x", h.count, h.flags(now))
	}
	add(60*kib, 60*kib)
	if h.count != 0 || h.flags(now) == 0 {
		t.Fatalf("after plain receives %d messages are held, flags %#x", h.count, h.flags(now))
	}
	for i := range 100 {
		now = now.Add(50 * time.Microsecond)
		add(60*kib, 64*kib, 20*kib+i, 100)
		before, count := h.bytes, h.count
		n := h.surplus(now, 8)
		h.forget(n)
		if h.bytes > h.limit || n > 0 && h.bytes < h.limit-64*kib || h.count != count-n || h.bytes > before {
			t.Fatalf("%d of %d messages left, and %d of %d bytes stay", n, count, h.bytes, before)
		}
	}
	now = now.Add(holdTime)
	add(100)
	if n := h.surplus(now, 8); n != 0 {
		t.Errorf("%d messages leave too early", n)
	}
	if n := h.surplus(now, heldMessages); n != h.count || n == 0 {
		t.Errorf("%d of %d messages leave for as many as can be held", n, h.count)
	}
	now = now.Add(1)
	if n := h.surplus(now, 8); n != h.count || h.flags(now) != 0 {
		t.Errorf("%d of %d messages leave after a while, flags %#x", n, h.count, h.flags(now))
	}
	h.forget(h.count)
	if h.bytes != 0 || h.count != 0 {
		t.Errorf("%d bytes of %d messages are left of nothing", h.bytes, h.count)
	}
	add(64 * kib)
	for range 5 {
		now = now.Add(holdTime / 4)
		h.add(now, came(64*kib, 64*kib), 2, 64*kib, h.flags(now))
	}
	if n := h.surplus(now, 8); h.count == 0 || n != h.count || h.flags(now) != 0 {
		t.Errorf("%d of %d messages leave when there is always more to receive, flags %#x", n, h.count, h.flags(now))
	}
	h = holding{}
	add(64*kib, 64*kib)
	if h.flags(now) != 0 {
		t.Error("a socket without a limit holds")
	}
}
