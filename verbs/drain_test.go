package verbs_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/fault"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// stuck posts receives 0 to n-1 and sends 100 to 100+n-1, none of which can complete: no acknowledgement arrives.
func stuck(t *testing.T, n int) (a, b *side) {
	t.Helper()
	a, b, _ = newFaultyPair(t, fault.Plan{Rules: []fault.Rule{{Action: fault.Drop}}})
	for i := range uint64(n) {
		check(t, a.qp.PostRecv(a.recv(i, 0, 8)))
		check(t, a.qp.PostSend(a.send(100+i, 8)))
	}
	return a, b
}

// After the first error everything else is flushed: in order in each queue, each once, signaled or not.
func TestFlush(t *testing.T) {
	a, b := newPair(t)
	check(t, b.qp.PostRecv(b.recv(0, 0, 8)))
	for i := range uint64(8) {
		check(t, a.qp.PostRecv(a.recv(i, 0, 8)))
	}
	list := []verbs.SendWR{a.send(100, 8), a.rdma(ib.WRRDMAWrite, 101, 8, b, 0x100)}
	for i := range uint64(8) {
		wr := a.send(102+i, 8)
		if i%2 == 0 {
			wr.Flags = 0
		}
		list = append(list, wr)
	}
	check(t, a.qp.PostSend(list...))
	a.expect(100, ib.WCSuccess)
	wantError(a, 101, ib.WCRemAccessErr)
	sends, recvs := uint64(102), uint64(0)
	for sends < 110 || recvs < 8 {
		wc := a.next()
		want := &recvs
		if wc.WRID >= 100 {
			want = &sends
		}
		if wc.WRID != *want || wc.Status != ib.WCWRFlushErr {
			t.Fatalf("completion of %d: %v, want %d flushed", wc.WRID, wc.Status, *want)
		}
		*want++
	}
	time.Sleep(5 * time.Millisecond)
	if n := must(a.cq.Peek(10)); n != 0 {
		t.Errorf("%d completions more", n)
	}
}

// Drain by itself: it hands over everything, queues that are full included, and then the queues are empty.
func TestDrain(t *testing.T) {
	for _, n := range []int{0, 3, 16} {
		a, _ := stuck(t, n)
		var sends, recvs []uint64
		err := a.qp.Drain(within(t, 5*time.Second), func(wc *verbs.WC) {
			if wc.Status != ib.WCWRFlushErr {
				t.Errorf("%d: %v", wc.WRID, wc.Status)
			}
			if wc.WRID >= 100 {
				sends = append(sends, wc.WRID-100)
			} else {
				recvs = append(recvs, wc.WRID)
			}
		})
		check(t, err)
		want := make([]uint64, n)
		for i := range want {
			want[i] = uint64(i)
		}
		if !slices.Equal(sends, want) || !slices.Equal(recvs, want) {
			t.Errorf("sends %v, receives %v, want 0 to %d", sends, recvs, n-1)
		}
		if left := must(a.cq.Peek(10)); left != 0 {
			t.Errorf("%d completions are left", left)
		}
		// Again, and afterwards the queue pair can be used as any other in the error state.
		check(t, a.qp.Drain(within(t, 5*time.Second), func(wc *verbs.WC) { t.Errorf("completion %+v", *wc) }))
		check(t, a.qp.PostRecv(a.recv(7, 0, 8)))
		a.expect(7, ib.WCWRFlushErr)
	}
}

// While others poll, Drain only waits: when it returns they have polled everything.
func TestDrainBeside(t *testing.T) {
	a, _ := stuck(t, 16)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	polled := 0
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var wc [3]verbs.WC
			for {
				n, err := a.cq.Wait(ctx, wc[:])
				if err != nil {
					return
				}
				mu.Lock()
				polled += n
				mu.Unlock()
			}
		})
	}
	check(t, a.qp.Drain(within(t, 5*time.Second), nil))
	cancel()
	wg.Wait()
	if polled != 32 {
		t.Errorf("%d completions were polled, want 32", polled)
	}
}

// Drain ends when it cannot succeed.
func TestDrainFails(t *testing.T) {
	a, _ := stuck(t, 3)
	if err := a.qp.Drain(within(t, 10*time.Millisecond), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody polls: %v", err)
	}
	// The marker of before is one, and not the application's.
	for range 6 {
		if wc := a.next(); wc.Status != ib.WCWRFlushErr {
			t.Errorf("%+v", wc)
		}
	}
	check(t, a.qp.Close())
	if err := a.qp.Drain(within(t, time.Second), nil); err == nil {
		t.Error("a closed queue pair was drained")
	}

	// Its queue overruns.
	cap := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}
	s := newSide(t, openDevice(t, embedded.Options{}), 64, cap)
	check(t, s.qp.ConnectRC(s.end, s.end, verbs.RCAttr{}))
	for i := range uint64(100) {
		check(t, s.qp.PostRecv(s.recv(i, 0, 8)))
	}
	if err := s.qp.Drain(within(t, 5*time.Second), nil); !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("the queue overruns: %v", err)
	}
	fresh := newSide(t, s.ctx, 64, cap)
	check(t, fresh.qp.Drain(within(t, time.Second), nil))
}
