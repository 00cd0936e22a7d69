package nic

import (
	"math/rand/v2"
	"testing"

	"github.com/softnic/softnicd/clock"
)

// Against a model: a queue pair comes out no later than its deadline, and each at most once for one entry.
func TestTimers(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		var h timers
		qps := make([]*QP, 30)
		due := map[*QP]clock.Time{}
		for i := range qps {
			qps[i] = &QP{timerAt: -1}
		}
		now := clock.Time(0)
		for range 3000 {
			q := qps[r.IntN(len(qps))]
			switch r.IntN(5) {
			case 0, 1:
				d := now + clock.Time(r.IntN(100))
				h.set(q, d)
				due[q] = d
			case 2:
				h.remove(q)
				delete(due, q)
			case 3:
				h.set(q, clock.Never)
				delete(due, q)
			case 4:
				now += clock.Time(r.IntN(20))
				for q := h.due(now); q != nil; q = h.due(now) {
					if d, ok := due[q]; ok && d.After(now) {
						h.set(q, d) // early, as deadlines that moved later are: entered anew
					} else {
						delete(due, q)
					}
				}
				for _, d := range due {
					if !d.After(now) {
						t.Fatalf("seed %d: a deadline at %d was not fired by %d", seed, d, now)
					}
				}
			}
			if n := h.next(); n != clock.Never {
				for _, d := range due {
					if d < n {
						t.Fatalf("seed %d: next says %d, but one is due at %d", seed, n, d)
					}
				}
			} else if len(due) > 0 {
				t.Fatalf("seed %d: nothing entered, %d due", seed, len(due))
			}
			for i, q := range h.heap {
				if q.timerAt != i {
					t.Fatalf("seed %d: a queue pair at %d believes to be at %d", seed, i, q.timerAt)
				}
			}
		}
	}
}
