package rc

import (
	"math/rand/v2"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// TestAnswersAreBounded turns the queue of answers in every way at random: it never needs more room than grow made, and
// stays in the order of the PSNs.
func TestAnswersAreBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q answers
		resources := rng.IntN(5)
		q.grow(resources)
		room := cap(q.queue)
		psn := ib.PSN(0xfffff0) // over the wrap
		firsts := make([]ib.PSN, resources)
		for range 300 {
			switch c := rng.IntN(8); {
			case c < 3:
				psn = psn.Next()
				q.acknowledge(psn, 0)
			case c < 6 && resources > 0:
				slot := rng.IntN(resources)
				q.remove(slot)
				if firsts[slot] == 0 || rng.IntN(3) > 0 { // a new request, else a repetition
					psn = psn.Next()
					firsts[slot] = psn
				}
				q.insert(answer{kind: returning, slot: slot, psn: firsts[slot]})
			case c == 6 && resources > 0:
				q.remove(rng.IntN(resources))
			case c == 7 && !q.empty():
				q.pop()
			}
			if cap(q.queue) != room {
				t.Fatalf("room for %d answers has become %d", room, cap(q.queue))
			}
			w := q.waiting()
			for i := 1; i < len(w); i++ {
				if w[i].psn.Before(w[i-1].psn) {
					t.Fatalf("answer %v waits behind %v", w[i].psn, w[i-1].psn)
				}
				if w[i].kind == acknowledging && w[i-1].kind == acknowledging {
					t.Fatalf("two ACKs, %v and %v, wait side by side", w[i-1].psn, w[i].psn)
				}
			}
		}
	}
}
