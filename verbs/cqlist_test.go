package verbs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// A queue's status follows what happens to it, and the list has every queue of the device.
func TestCQStatus(t *testing.T) {
	apart(t)
	a, b := newPair(t)
	status := func() verbs.CQStatus { return must(a.cq.Status()) }
	if s := status(); s.Capacity != 256 || s.HighWater != 0 || s.Demand != 32 || s.Queues != 2 || !s.Channel || s.Armed != verbs.NotArmed {
		t.Errorf("at first: %+v", s)
	}
	for i := range uint64(3) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 8)))
		check(t, a.qp.PostSend(a.send(i, 8)))
	}
	for range 3 {
		b.next()
	}
	// Polled, for Wait would have armed the queue.
	for want := uint64(0); want < 3; {
		var wc [1]verbs.WC
		if must(a.cq.Poll(wc[:])) == 1 {
			if wc[0].WRID != want || wc[0].Status != ib.WCSuccess {
				t.Fatalf("completion %+v", wc[0])
			}
			want++
		}
	}
	must(a.cq.ReqNotify(true))
	s := status()
	if s.HighWater < 1 || s.HighWater > 3 || s.Occupancy != 0 || s.Armed != verbs.ArmedSolicited || s.Overrun || s.Overruns != 0 {
		t.Errorf("after three sends: %+v", s)
	}
	if list := must(a.ctx.CQs()); len(list) != 1 || list[0] != s {
		t.Errorf("the list is %+v", list)
	}
	second := must(a.ctx.CreateCQ(1))
	if list := must(a.ctx.CQs()); len(list) != 2 || list[1] != must(second.Status()) || list[1].Handle == s.Handle {
		t.Errorf("the list is %+v", list)
	}
	check(t, second.Close())
	if _, err := second.Status(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("status of a queue that was closed: %v", err)
	}
}

// How deep a completion queue has to be, by what can be posted and by what it has seen.
func ExampleCQ_Status() {
	dev := must(embedded.New(embedded.Options{}))
	defer dev.Close()
	ctx := must(dev.Open())
	defer ctx.Close()
	pd := must(ctx.AllocPD())
	q := must(ctx.CreateCQ(64))
	for range 4 {
		must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: q, RecvCQ: q,
			Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	}

	s := must(q.Status())
	advice := cq.Advise(cq.Evidence{
		Capacity: uint64(s.Capacity), HighWater: uint64(s.HighWater), Overruns: s.Overruns, Demand: uint64(s.Demand),
		ReclaimOnCompletion: s.ReclaimOnCompletion,
	})
	fmt.Println(advice.Verdict, advice.Entries)
	// Output: too small 384
}
