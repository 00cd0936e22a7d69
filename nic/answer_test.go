package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/cq"
)

// answering is an application that answers while it is told of a message.
type answering func()

func (a answering) Notify(uint64, uint32) { a() }

// The acknowledgement of a message and what its application answers leave in one round, also where a device does not wait
// in virtual time.
func TestAnswerLeavesWithAcknowledgement(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers bool
		frames  int
	}{{"an answer", true, 2}, {"none", false, 1}} {
		t.Run(c.name, func(t *testing.T) {
			w, a, b := newPair(t, nil)
			var y *endpoint
			block := make([]byte, abi.CQBlockSize(64))
			queue, err := b.ctx.CreateCQ(CQConfig{Block: block, Entries: 64, Notifier: answering(func() {
				if c.answers {
					y.postSend(sendWQE(2))
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			r, err := cq.NewReader(block, queue.Capacity())
			if err != nil {
				t.Fatal(err)
			}
			x := a.newQP(t, nil)
			y = b.newQP(t, func(c *QPConfig) { c.RecvCQ = queue })
			x.connect(t, y)
			y.connect(t, x)
			y.postRecv(1)
			x.postRecv(1)
			w.run(time.Millisecond)

			r.ReqNotify(abi.ArmNext)
			x.postSend(sendWQE(1))
			a.dev.Step(w.now)
			b.dev.cfg.Manual = false // it yields and looks, as a device with a goroutine does
			b.dev.Step(w.now)
			b.dev.cfg.Manual = true
			if n := a.dev.shards[0].port.(*cable).waiting; n != c.frames {
				t.Errorf("%d frames left in the round of the message, want %d", n, c.frames)
			}
			w.run(time.Millisecond)
			if n := len(a.poll(t)); n != c.frames {
				t.Errorf("%d completions where the message came from, want %d", n, c.frames)
			}
		})
	}
}
