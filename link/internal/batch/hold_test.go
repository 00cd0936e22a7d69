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

// What is held leaves oldest first: when it is too much or too many, all of it when something small is to be received plainly, or
// when nothing has come for a while.
func TestHolding(t *testing.T) {
	const kib = 1 << 10
	h := holding{limit: 300 * kib}
	h.add(0, came(60*kib, 60*kib), 64*kib, h.flags())
	if h.count != 0 || !h.bulk {
		t.Fatalf("after plain receives %d messages are held, bulk %v", h.count, h.bulk)
	}
	var now clock.Time
	for i := range 100 {
		now = now.Add(50 * time.Microsecond)
		h.add(now, came(60*kib, 64*kib, 20*kib+i), 64*kib, h.flags())
		before, count := h.bytes, h.count
		n := h.surplus(now, 8)
		h.forget(n)
		if h.bytes > h.limit || n > 0 && h.bytes+64*kib <= h.limit-64*kib || h.count != count-n || h.bytes > before {
			t.Fatalf("%d of %d messages left, and %d of %d bytes stay", n, count, h.bytes, before)
		}
	}
	if n := h.surplus(now.Add(holdTime), 8); n != 0 {
		t.Errorf("%d messages leave too early", n)
	}
	if n := h.surplus(now.Add(holdTime+1), 8); n != h.count || n == 0 {
		t.Errorf("%d of %d messages leave after a while", n, h.count)
	}
	if n := h.surplus(now, heldMessages); n != h.count {
		t.Errorf("%d of %d messages leave for as many as can be held", n, h.count)
	}
	h.add(now, came(100, 100), 64*kib, h.flags())
	if n := h.surplus(now, 8); h.bulk || n != h.count {
		t.Errorf("after small messages %d of %d leave, bulk %v", n, h.count, h.bulk)
	}
	h.forget(h.count)
	if h.bytes != 0 || h.flags() != 0 {
		t.Errorf("%d bytes of nothing, flags %d", h.bytes, h.flags())
	}
}
