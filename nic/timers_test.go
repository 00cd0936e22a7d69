package nic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
)

// Against a model, from nanoseconds to years: a queue pair comes out no earlier than what was entered and less than a tick
// after its deadline, and once for one entry; and who sleeps until next comes to each deadline in a few turns.
func TestTimers(t *testing.T) {
	const tick = clock.Time(1) << wheelTick
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		far := func() clock.Time { return clock.Time(r.Uint64() >> (2 + r.IntN(62))) }
		var w timers
		qps := make([]*QP, 30)
		due, entered := map[*QP]clock.Time{}, map[*QP]clock.Time{}
		for i := range qps {
			qps[i] = &QP{timer: timer{slot: -1}}
		}
		now := far() >> r.IntN(3)
		fire := func() {
			for q := w.due(now); q != nil; q = w.due(now) {
				if d, ok := entered[q]; !ok || d.After(now) {
					t.Fatalf("seed %d: fired at %d for %d, %v", seed, now, d, ok)
				}
				delete(entered, q)
				if d, ok := due[q]; ok && d.After(now) {
					w.set(q, d) // early, as deadlines that moved later are: entered anew
					entered[q] = d
				} else {
					delete(due, q)
				}
			}
			for _, d := range due {
				if now >= d+tick-1 {
					t.Fatalf("seed %d: a deadline at %d was not fired by %d", seed, d, now)
				}
			}
		}
		for range 1000 {
			q := qps[r.IntN(len(qps))]
			switch r.IntN(6) {
			case 0, 1:
				d := now + min(far(), clock.Never-tick-now)
				if w.set(q, d); q.timer.at == d {
					entered[q] = d
				}
				due[q] = d
			case 2:
				w.remove(q)
				delete(due, q)
				delete(entered, q)
			case 3:
				w.set(q, clock.Never)
				delete(due, q)
			case 4:
				now += min(far(), (clock.Never-now)/8)
				fire()
			case 5:
				for range 2 * wheelLevels * len(qps) {
					if len(due) == 0 {
						break
					}
					if now = max(now, w.next()); now == clock.Never {
						t.Fatalf("seed %d: nothing entered, %d due", seed, len(due))
					}
					fire()
				}
				if len(due) > 0 {
					t.Fatalf("seed %d: %d are waited for in vain", seed, len(due))
				}
			}
			for _, d := range due {
				if n := w.next(); n >= d+tick {
					t.Fatalf("seed %d: next says %d, but one is due at %d", seed, n, d)
				}
			}
			n := 0
			for level := range w.slots {
				for slot, q := range w.slots[level] {
					if used := w.used[level]>>slot&1 != 0; used != (q != nil) || used && w.levels>>level&1 == 0 {
						t.Fatalf("seed %d: level %d slot %d: %v, used %v, levels %b", seed, level, slot, q != nil, used, w.levels)
					}
					for before := (*QP)(nil); q != nil; before, q = q, q.timer.next {
						if n++; q.timer.prev != before || int(q.timer.slot) != level<<wheelDigit|slot {
							t.Fatalf("seed %d: wrong links in level %d slot %d", seed, level, slot)
						}
					}
				}
			}
			if n != w.n || n != len(entered) {
				t.Fatalf("seed %d: %d in the wheel, which counts %d, of %d", seed, n, w.n, len(entered))
			}
		}
	}
}

// BenchmarkTimers enters and fires the deadlines of 6,000 queue pairs, some 60 of them at a time.
func BenchmarkTimers(b *testing.B) {
	qps := make([]*QP, 6000)
	for i := range qps {
		qps[i] = &QP{timer: timer{slot: -1}}
	}
	var w timers
	r := rand.New(rand.NewPCG(1, 1))
	now := clock.Time(time.Hour)
	for i := 0; b.Loop(); {
		for range 60 {
			w.set(qps[i%len(qps)], now+clock.Time(67*time.Millisecond)+clock.Time(r.IntN(1<<20)))
			i++
		}
		now += clock.Time(670 * time.Microsecond)
		for q := w.due(now); q != nil; q = w.due(now) {
		}
	}
}
