package trace

import (
	"fmt"
	"testing"
)

func event(i int) Event {
	return Event{Time: 1000, QPN: 0x11, PSN: 5, Length: uint32(i), Kind: Sent, Opcode: 4, Syndrome: 0x1f, Verdict: Accepted}
}

func TestRing(t *testing.T) {
	for asked, size := range map[int]int{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 8: 8, 9: 16} {
		r := NewRing(asked)
		for n := range 3 * size {
			got := r.Snapshot(nil)
			first := max(0, n-size)
			if len(got) != n-first || r.Total() != uint64(n) {
				t.Fatalf("ring of %d: %d events after %d", size, len(got), n)
			}
			for i, e := range got {
				if e != event(first+i) {
					t.Fatalf("ring of %d after %d: event %d is %v", size, n, i, e)
				}
			}
			r.Add(event(n))
		}
	}
	var none *Ring
	none.Add(event(1))
	if none.Total() != 0 || none.Snapshot(nil) != nil || none.Hash() != NewRing(1).Hash() {
		t.Error("a nil ring records nothing")
	}
}

// TestRingHash changes one field at a time: every one counts, and so does the order. The size of the ring does not.
func TestRingHash(t *testing.T) {
	hash := func(size int, events ...Event) uint64 {
		r := NewRing(size)
		for _, e := range events {
			r.Add(e)
		}
		return r.Hash()
	}
	base := event(1)
	seen := map[uint64]string{hash(4): "nothing", hash(4, base): "one", hash(4, base, base): "two"}
	for name, change := range map[string]func(*Event){
		"time":     func(e *Event) { e.Time++ },
		"QPN":      func(e *Event) { e.QPN++ },
		"PSN":      func(e *Event) { e.PSN++ },
		"length":   func(e *Event) { e.Length++ },
		"kind":     func(e *Event) { e.Kind++ },
		"opcode":   func(e *Event) { e.Opcode++ },
		"syndrome": func(e *Event) { e.Syndrome++ },
		"verdict":  func(e *Event) { e.Verdict++ },
	} {
		other := base
		change(&other)
		for what, events := range map[string][]Event{name: {other}, name + " first": {other, base}, name + " second": {base, other}} {
			h := hash(4, events...)
			if was, ok := seen[h]; ok {
				t.Errorf("%s hashes as %s", what, was)
			}
			seen[h] = what
		}
	}
	if hash(1, base, event(2), event(3)) != hash(64, base, event(2), event(3)) {
		t.Error("what was overwritten counts as well")
	}
}

func TestRingAllocatesNothing(t *testing.T) {
	r := NewRing(64)
	buf := make([]Event, 0, 64)
	i := 0
	if n := testing.AllocsPerRun(200, func() {
		r.Add(event(i))
		i++
		_ = r.Snapshot(buf)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFormat(t *testing.T) {
	names := Names{
		Opcode:      func(uint8) string { return "RC_ACKNOWLEDGE" },
		Syndrome:    func(uint8) string { return "ACK" },
		HasSyndrome: func(uint8) bool { return true },
	}
	e := Event{Time: 1_234_567, QPN: 0x11, PSN: 5, Kind: Received, Opcode: 0x11, Syndrome: 0x1f, Verdict: Duplicate}
	for _, c := range []struct{ got, want string }{
		{names.Format(e), "1.235 ms qp 0x000011 received RC_ACKNOWLEDGE psn 0x000005 ACK (duplicate)"},
		{e.String(), "1.235 ms qp 0x000011 received opcode 0x11 psn 0x000005 (duplicate)"},
		{Event{QPN: 2, Kind: Completed, Opcode: 12}.String(), "0.000 ms qp 0x000002 completed transport retry counter exceeded"},
		{Event{QPN: 2, Kind: Entered, Opcode: 6}.String(), "0.000 ms qp 0x000002 entered ERR"},
		{Event{QPN: 2, Kind: Timeout, PSN: 9}.String(), "0.000 ms qp 0x000002 timeout psn 0x000009"},
		{Event{QPN: 2, Kind: Sent, Opcode: 4, Length: 7}.String(), "0.000 ms qp 0x000002 sent opcode 0x04 psn 0x000000 7 B"},
		{fmt.Sprint(Kind(200), Verdict(200)), "Kind(200) Verdict(200)"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	r := NewRing(4096)
	e := event(1)
	for b.Loop() {
		r.Add(e)
	}
}
