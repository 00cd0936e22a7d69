package nic

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
)

// channel is a completion channel in memory.
type channel struct{ events []uint64 }

func (c *channel) Notify(cookie uint64, _ uint32) { c.events = append(c.events, cookie) }

func TestCompletionEvents(t *testing.T) {
	w, a, b := newPair(t, nil)
	ch := &channel{}
	block := make([]byte, abi.CQBlockSize(64))
	q, err := a.ctx.CreateCQ(CQConfig{Block: block, Entries: 64, Notifier: ch, Cookie: 42})
	if err != nil {
		t.Fatal(err)
	}
	r, err := cq.NewReader(block, 64)
	if err != nil {
		t.Fatal(err)
	}
	x, y := a.newQP(t, func(c *QPConfig) { c.SendCQ = q }), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	send := func(n int) {
		for range n {
			y.postRecv(1)
			x.postSend(sendWQE(1))
		}
	}
	send(1)
	w.run(time.Millisecond)
	if len(ch.events) != 0 {
		t.Errorf("%d events without arming", len(ch.events))
	}
	r.ReqNotify(abi.ArmNext)
	send(3)
	w.run(time.Millisecond)
	if !slices.Equal(ch.events, []uint64{42}) {
		t.Errorf("events %v, want one of cookie 42", ch.events)
	}

	// Moderation holds the event back for its period, which the shard's timers end.
	if err := a.ctx.ModerateCQ(q, 0, 500); err != nil {
		t.Fatal(err)
	}
	ch.events = nil
	r.ReqNotify(abi.ArmNext)
	send(1)
	w.run(100 * time.Microsecond)
	if len(ch.events) != 0 {
		t.Error("an event before its period was over")
	}
	w.run(450 * time.Microsecond)
	if len(ch.events) != 1 {
		t.Errorf("%d events when the period is over", len(ch.events))
	}
	if len(a.dev.shards[0].held) != 0 {
		t.Error("the shard still holds an event")
	}
	if err := a.ctx.ModerateCQ(q, 65536, 0); errno(err) != syscall.EINVAL {
		t.Errorf("count 65536: %v, want EINVAL", err)
	}
	// One that is destroyed while it holds an event is forgotten.
	r.ReqNotify(abi.ArmNext)
	send(1)
	a.dev.Step(w.now)
	b.dev.Step(w.now)
	a.dev.Step(w.now)
	if len(a.dev.shards[0].held) != 1 {
		t.Fatal("no event is held")
	}
	if err := a.ctx.DestroyQP(x.qp); err != nil {
		t.Fatal(err)
	}
	if err := a.ctx.DestroyCQ(q); err != nil {
		t.Fatal(err)
	}
	w.run(time.Second)
	if len(ch.events) != 1 {
		t.Error("an event of a queue that is gone")
	}
}

func TestCommEstablished(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.modify(t, initAttr(), initMask)
	y.modify(t, rtrAttr(x.addr, x.qp.QPN()), rtrMask)
	y.postRecv(1)
	x.postSend(sendWQE(1))
	w.run(time.Millisecond)
	if got, want := y.take(), []event{{ib.EventCommEst, 7}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// A shard unlocks the queue that it has locked while it deals with packets, whichever queue that was, and locks none that has
// events or is another shard's as well.
func TestQueuesAreUnlocked(t *testing.T) {
	w, h := newLoops(t, 2, nil)
	s := h.dev.shards[0]
	q, _ := h.newCQ(t, 256)
	loud, err := h.ctx.CreateCQ(CQConfig{Block: make([]byte, abi.CQBlockSize(256)), Entries: 256, Notifier: &channel{}})
	if err != nil {
		t.Fatal(err)
	}
	alone := func(c *QPConfig) { c.SendCQ = q }
	for _, edit := range []func(*QPConfig){alone, func(c *QPConfig) { c.SendCQ = loud }} {
		x, y := h.newQP(t, edit), h.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		for range 20 {
			y.postRecv(1)
			x.postSend(sendWQE(1))
		}
		w.run(time.Millisecond)
		if s.inBatch || s.locked != nil || len(s.touched) > 0 {
			t.Error("the batch has no end")
		}
	}
	if n := q.queue.Occupancy() + loud.queue.Occupancy(); n != 40 {
		t.Errorf("%d entries wait, want 40", n)
	}
	if p := q.poster.Load(); p == nil || p == several || loud.poster.Load() != nil {
		t.Errorf("shards: %p %p", p, loud.poster.Load())
	}
	for range 2 { // on both shards
		x, y := h.newQP(t, alone), h.newQP(t, nil)
		h.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		y.postRecv(1)
		x.postSend(sendWQE(1))
	}
	w.run(time.Millisecond)
	if q.poster.Load() != several || s.soleIn(q) || h.dev.shards[1].soleIn(q) {
		t.Error("a queue of two shards belongs to one")
	}
}
