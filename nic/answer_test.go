package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
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
			if heard := b.dev.shards[0].reply.until != 0; heard != (c.answers > 0 && c.messages == 1) {
				t.Errorf("it waits for a reply: %v", heard)
			}
			if n := a.dev.shards[0].port.(*cable).waiting; n != c.frames || moments != c.moments {
				t.Errorf("%d frames left after %d moments, want %d and %d", n, moments, c.frames, c.moments)
			}
		})
	}
}

// An answer that comes while the shard looks leaves in one round with the acknowledgement, nobody yields for it, and the port is left
// alone for a moment.
func TestSwiftAnswer(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	w.run(time.Millisecond)
	s := b.dev.shards[0]
	s.moment = func() { t.Error("the shard yields") }
	x.postRecv(1)
	y.postRecv(1)
	y.postRecv(2)
	x.postSend(sendWQE(1))
	b.dev.Step(w.now) // takes the bell of the receives
	a.dev.Step(w.now)
	b.dev.cfg.Manual = false // a device that lives in virtual time does not wait
	looks := 0
	b.dev.cfg.Now = func() clock.Time {
		if looks++; looks == 10 {
			y.postSend(sendWQE(2))
		}
		return w.now
	}
	b.dev.Step(w.now)
	b.dev.cfg.Manual = true
	if n := a.dev.shards[0].port.(*cable).waiting; n != 2 || looks < 10 {
		t.Fatalf("%d frames left after %d looks at the clock, want acknowledgement and answer", n, looks)
	}
	x.postSend(sendWQE(3))
	a.dev.Step(w.now) // acknowledges the answer and sends another
	for _, c := range []struct {
		after time.Duration
		takes bool
	}{{3 * time.Microsecond, false}, {5 * time.Microsecond, true}} {
		before := b.dev.shards[0].port.(*cable).waiting
		b.dev.Step(w.now.Add(c.after))
		if took := b.dev.shards[0].port.(*cable).waiting < before; took != c.takes {
			t.Errorf("after %v the port is asked: %v", c.after, took)
		}
	}
}

// A shard looks for answers without yielding as long as they come so, and tries again now and then when they do not.
func TestEager(t *testing.T) {
	var e eager
	attempts := func(messages int, came bool) (n int) {
		for range messages {
			if e.tries() {
				n++
				e.learn(came)
			}
		}
		return n
	}
	if n := attempts(500, true); n != 500 {
		t.Errorf("answers come: it looks for %d of 500", n)
	}
	if n := attempts(eagerMisses+10*(eagerRest+1), false); n != eagerMisses+10 {
		t.Errorf("none come: it looks for %d, want %d at first and one of %d then", n, eagerMisses, eagerRest+1)
	}
	for !e.tries() {
	}
	e.learn(true)
	if n := attempts(10, true); n != 10 {
		t.Errorf("they come again: it looks for %d of 10", n)
	}
}

// A shard that has sent an answer waits for the reply without yielding, for so long, as long as replies come.
func TestReplyWait(t *testing.T) {
	var w replyWait
	now := clock.Time(time.Second)
	exchange := func(came bool) (waited bool) {
		w.begin(now)
		if waited = w.lasts(now.Add(replyTime - 1)); came {
			w.end(true)
		}
		if w.lasts(now.Add(replyTime)) {
			t.Error("it lasts longer than a reply takes")
		}
		return waited
	}
	for i := range 100 {
		if !exchange(true) {
			t.Fatalf("replies come: no wait after %d", i)
		}
	}
	for i := range eagerMisses {
		if !exchange(false) {
			t.Fatalf("no wait after %d that did not come", i)
		}
	}
	for range eagerRest {
		w.end(true) // a message that nobody waited for
		if exchange(false) {
			t.Fatal("it waits, though none come")
		}
	}
	if !exchange(true) {
		t.Error("no other attempt")
	}
}
