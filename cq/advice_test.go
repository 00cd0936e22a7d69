package cq

import (
	"fmt"
	"testing"
)

func TestAdvise(t *testing.T) {
	for _, c := range []struct {
		name    string
		e       Evidence
		verdict Verdict
		entries uint64
	}{
		{"nothing is known", Evidence{Capacity: 4096}, Fits, 0},
		// 100 connections of 64 sends and 64 receives.
		{"the worst case fits to the entry", Evidence{Capacity: 12800, HighWater: 12800, Demand: 12800}, Fits, 12800},
		{"one granule less overran", Evidence{Capacity: 12736, HighWater: 12736, Overruns: 64, Demand: 12800}, TooSmall, 12800},
		{"one granule less has not overrun yet", Evidence{Capacity: 12736, HighWater: 9000, Demand: 12800}, TooSmall, 12800},
		{"hardly used, and one pause is enough", Evidence{Capacity: 256, HighWater: 3, Demand: 12800}, TooSmall, 12800},
		{"never full is no reason to have less", Evidence{Capacity: 12800, HighWater: 3, Demand: 12800}, Fits, 12800},
		{"less than twice", Evidence{Capacity: 25536, HighWater: 12800, Demand: 12800}, Fits, 12800},
		{"twice", Evidence{Capacity: 25600, HighWater: 12800, Demand: 12800}, TooLarge, 12800},
		{"far too large", Evidence{Capacity: 1 << 20, HighWater: 60, Demand: 128}, TooLarge, 128},
		{"the smallest there is", Evidence{Capacity: 64, HighWater: 1, Demand: 2}, Fits, 64},
		{"rounded up", Evidence{Capacity: 128, HighWater: 60, Demand: 65}, Fits, 128},
		{"queue pairs that are gone now had more", Evidence{Capacity: 512, HighWater: 500, Demand: 32}, Fits, 512},
		{"overran, and its queue pairs are gone", Evidence{Capacity: 512, HighWater: 512, Overruns: 200}, TooSmall, 768},
		{"nobody attached, much seen", Evidence{Capacity: 512, HighWater: 500}, Fits, 512},
		// The same connections where slots come back on completion.
		{"completion: 16,000 overran", Evidence{Capacity: 16000, HighWater: 16000, Overruns: 3200, Demand: 12800, ReclaimOnCompletion: true}, TooSmall, 19200},
		{"completion: 20,000 held", Evidence{Capacity: 20032, HighWater: 19200, Demand: 12800, ReclaimOnCompletion: true}, Fits, 19200},
		{"completion: full to the entry is luck", Evidence{Capacity: 19200, HighWater: 19200, Demand: 12800, ReclaimOnCompletion: true}, TooSmall, 24000},
		{"completion: below what can be posted at once", Evidence{Capacity: 6400, HighWater: 100, Demand: 12800, ReclaimOnCompletion: true}, TooSmall, 12800},
		{"completion: nothing seen yet", Evidence{Capacity: 12800, Demand: 12800, ReclaimOnCompletion: true}, Fits, 12800},
		{"completion: twice what was seen", Evidence{Capacity: 38400, HighWater: 19200, Demand: 12800, ReclaimOnCompletion: true}, TooLarge, 19200},
		{"completion: nothing is known", Evidence{Capacity: 64, ReclaimOnCompletion: true}, Fits, 0},
	} {
		a := Advise(c.e)
		if a.Verdict != c.verdict || a.Entries != c.entries || a.Reason == "" {
			t.Errorf("%s: %v (%d), want %v (%d)", c.name, a, a.Entries, c.verdict, c.entries)
		}
	}
}

// Who takes the advice is not advised again, unless nothing bounds the queue.
func TestAdviceSettles(t *testing.T) {
	for _, capacity := range []uint64{64, 640, 6400, 64000, 640000} {
		for _, demand := range []uint64{0, 1, 64, 65, 5000, 12800} {
			for _, high := range []uint64{0, 1, capacity / 2, capacity} {
				for _, lost := range []uint64{0, 1, 100} {
					e := Evidence{Capacity: capacity, HighWater: high, Overruns: lost, Demand: demand}
					if lost > 0 {
						e.HighWater = capacity
					}
					first := Advise(e)
					if first.Verdict == Fits {
						continue
					}
					e.HighWater, e.Overruns, e.Capacity = e.HighWater+e.Overruns, 0, first.Entries
					if again := Advise(e); again.Verdict != Fits || again.Entries != first.Entries {
						t.Errorf("%+v: %v, and then %v", e, first, again)
					}
				}
			}
		}
	}
}

func ExampleAdvise() {
	// 100 connections of 64 sends and 64 receives complete into one queue.
	fmt.Println(Advise(Evidence{Capacity: 4096, HighWater: 900, Demand: 100 * (64 + 64)}))
	// Output: too small, take 12800: 12800 requests can be posted at once; 900 entries at most waited so far
}
