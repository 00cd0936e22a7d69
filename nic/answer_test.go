package nic

import (
	"testing"
	"time"
)

// The acknowledgement of a message leaves in one round with what its application answers while the shard gives it a moment,
// and does not wait for one that does not answer.
func TestAnswerLeavesWithAcknowledgement(t *testing.T) {
	for _, c := range []struct {
		name     string
		messages int
		answers  int // at which of the moments
		moments  int
		frames   int
	}{
		{"at once", 1, 1, 1, 2},
		{"later", 1, 3, 3, 2},
		{"not at all", 1, 0, answerLooks, 1},
		{"messages come fast", 2, 1, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, a, b := newPair(t, nil)
			x, y := a.newQP(t, nil), b.newQP(t, nil)
			x.connect(t, y)
			y.connect(t, x)
			w.run(time.Millisecond)
			moments := 0
			b.dev.shards[0].moment = func() {
				if moments++; moments == c.answers {
					y.postSend(sendWQE(2))
				}
			}
			x.postRecv(1)
			for range c.messages {
				y.postRecv(1)
				x.postSend(sendWQE(1))
			}
			b.dev.Step(w.now) // takes the bell of the receives
			a.dev.Step(w.now)
			b.dev.cfg.Manual = false // a device that lives in virtual time does not wait
			b.dev.Step(w.now)
			b.dev.cfg.Manual = true
			if n := a.dev.shards[0].port.(*cable).waiting; n != c.frames || moments != c.moments {
				t.Errorf("%d frames left after %d moments, want %d and %d", n, moments, c.frames, c.moments)
			}
		})
	}
}
