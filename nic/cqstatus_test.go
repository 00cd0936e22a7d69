package nic

import (
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/cq"
)

func everybody(uint64) bool { return true }

// allCQs walks the pages of a list, and checks that each continues where the last one ended.
func allCQs(t *testing.T, d *Device, visible func(uint64) bool, page int) (all []CQStatus) {
	t.Helper()
	list := make([]CQStatus, page)
	for after := (CQCursor{}); ; after = all[len(all)-1].Cursor() {
		n := d.CQs(after, visible, list)
		for i := range list[:n] {
			at := list[i].Cursor()
			if at.Context < after.Context || at.Context == after.Context && at.Handle <= after.Handle {
				t.Fatalf("%+v comes after %+v", at, after)
			}
			after = at
		}
		if all = append(all, list[:n]...); n == 0 {
			return all
		}
	}
}

// Pages of any size hold every queue once, those of other tenants only for who may see them.
func TestCQsPages(t *testing.T) {
	_, a, _ := newPair(t, nil) // tenant 1000, with one queue
	var others [3]app
	for i := range others {
		others[i].open(t, a.dev, ContextConfig{Tenant: 2000, Owner: true, Process: 40 + i}, a.addr)
		for h := range uint32(5) {
			// Not in the order of their handles.
			block := make([]byte, abi.CQBlockSize(64))
			if _, err := others[i].ctx.CreateCQ(CQConfig{Block: block, Entries: 1, Handle: 7 + 3*h%5}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for page := 1; page < 25; page++ {
		all := allCQs(t, a.dev, everybody, page)
		if len(all) != 1+3*6 {
			t.Fatalf("pages of %d: %d queues, want 19", page, len(all))
		}
		foreign := allCQs(t, a.dev, func(id uint64) bool { return id == 2000 }, page)
		if len(foreign) != 3*6 || foreign[0].Tenant != 2000 || foreign[0].Process != 40 || foreign[17].Process != 42 {
			t.Fatalf("pages of %d: %d queues of the other tenant: %+v", page, len(foreign), foreign)
		}
	}
	// A page continues behind a queue that is gone by then.
	list := make([]CQStatus, 3)
	a.dev.CQs(CQCursor{}, everybody, list)
	others[0].ctx.Close()
	if n := a.dev.CQs(list[2].Cursor(), everybody, list); n != 3 || list[0].Process != 41 {
		t.Errorf("after the end of a context: %d queues, %+v", n, list[0])
	}
}

// What a status says is what the queue has seen.
func TestCQStatus(t *testing.T) {
	w, a, b := newPair(t, nil)
	block := make([]byte, abi.CQBlockSize(64))
	q, err := a.ctx.CreateCQ(CQConfig{Block: block, Entries: 10, Handle: 100})
	if err != nil {
		t.Fatal(err)
	}
	r, err := cq.NewReader(block, 64)
	if err != nil {
		t.Fatal(err)
	}
	x := a.newQP(t, func(c *QPConfig) {
		c.SendCQ = q
		c.Cap.MaxSendWR = 33 // the real depth is 64
	})
	y := b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	for i := range uint64(5) {
		y.postRecv(i, y.sge(0, 8))
		x.postSend(sendWQE(i), x.sge(0, 8))
	}
	w.run(1e9)
	var entries [2]abi.CQE
	for i := range entries {
		if !r.Next(&entries[i]) {
			t.Fatal("no completion")
		}
	}
	r.Release()
	all := allCQs(t, a.dev, everybody, 8)
	want := CQStatus{
		Context: 1, Tenant: 1000, Handle: 100, Capacity: 64, Occupancy: 3, HighWater: 5, Queues: 1, Demand: 64,
	}
	if s := all[len(all)-1]; s != want {
		t.Errorf("%+v\nwant %+v", s, want)
	}
	_ = x.qp.ctx.DestroyQP(x.qp)
	if s := q.status(); s.Queues != 0 || s.Demand != 0 || s.HighWater != 5 {
		t.Errorf("without queue pairs: %+v", s)
	}
}

// A shared receive queue counts once for each completion queue, whatever the number of its queue pairs.
func TestCQDemandOfSharedReceives(t *testing.T) {
	_, a, _ := newPair(t, nil)
	srq, err := a.ctx.CreateSRQ(SRQConfig{PD: a.pd, MaxWR: 128, MaxSGE: 1, Handle: 5,
		Block: func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil }})
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, abi.CQBlockSize(64))
	other, err := a.ctx.CreateCQ(CQConfig{Block: block, Entries: 64, Handle: 100})
	if err != nil {
		t.Fatal(err)
	}
	var qps []*QP
	for i := range 3 {
		qps = append(qps, a.newQP(t, func(c *QPConfig) {
			c.SRQ, c.Cap.MaxSendWR = srq, 16
			if i == 2 {
				c.RecvCQ = other
			}
		}).qp)
	}
	want := func(queue, demand uint64) {
		t.Helper()
		if got := a.cq.status().Demand; got != queue {
			t.Errorf("demand %d, want %d", got, queue)
		}
		if got := other.status().Demand; got != demand {
			t.Errorf("demand of the other queue %d, want %d", got, demand)
		}
	}
	want(3*16+128, 128)
	_ = a.ctx.DestroyQP(qps[0])
	want(2*16+128, 128)
	_ = a.ctx.DestroyQP(qps[1])
	want(16, 128)
	_ = a.ctx.DestroyQP(qps[2])
	want(0, 0)
}
