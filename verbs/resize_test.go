package verbs_test

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// flushInto fills a queue with n completions: receives of a queue pair in the error state.
func (s *side) flushInto(n int) {
	s.t.Helper()
	check(s.t, s.qp.Modify(&verbs.QPAttr{State: ib.StateInit, PortNum: 1}, ib.QPAttrState|ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags))
	check(s.t, s.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	for i := range n {
		check(s.t, s.qp.PostRecv(s.recv(uint64(i), 0, 8)))
	}
	for end := time.Now().Add(5 * time.Second); must(s.cq.Peek(1<<20)) < n; {
		if time.Now().After(end) {
			s.t.Fatalf("%d of %d completions", must(s.cq.Peek(1<<20)), n)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (s *side) wantIDs(first, n int) {
	s.t.Helper()
	wc := make([]verbs.WC, n)
	if got := must(s.cq.Poll(wc)); got != n {
		s.t.Fatalf("%d completions, want %d", got, n)
	}
	for i := range wc {
		if wc[i].WRID != uint64(first+i) {
			s.t.Fatalf("completion of %d, want %d", wc[i].WRID, first+i)
		}
	}
}

// Up and down, with completions in the queue, also more than the new ring could have had room for if they were moved.
func TestResizeKeeps(t *testing.T) {
	cap := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1}
	s := newSide(t, openDevice(t, embedded.Options{}), 128, cap)
	s.flushInto(128) // full: there is no room for a marker
	for _, c := range []struct{ entries, capacity int }{{200, 256}, {128, 128}, {1000, 1024}, {129, 192}} {
		check(t, s.cq.Resize(c.entries))
		if s.cq.Capacity() != c.capacity {
			t.Fatalf("%d entries: capacity %d, want %d", c.entries, s.cq.Capacity(), c.capacity)
		}
	}
	attr := must(s.ctx.QueryDevice())
	for _, n := range []int{64, 1, 0, -1, int(attr.MaxCQE) + 1, 1 << 40} {
		wantErrno(t, s.cq.Resize(n), syscall.EINVAL)
		if s.cq.Capacity() != 192 || must(s.cq.Peek(1000)) != 128 {
			t.Fatalf("a resize to %d was refused, and now the capacity is %d", n, s.cq.Capacity())
		}
	}
	s.wantIDs(0, 100)
	check(t, s.cq.Resize(28))
	for i := range 36 {
		check(t, s.qp.PostRecv(s.recv(uint64(128+i), 0, 8)))
	}
	for must(s.cq.Peek(1000)) < 64 {
		time.Sleep(100 * time.Microsecond)
	}
	s.wantIDs(100, 64)
	// What is reported is enforced.
	for i := range 65 {
		check(t, s.qp.PostRecv(s.recv(uint64(i), 0, 8)))
	}
	if e := must(s.ctx.AsyncEvent(within(t, 5*time.Second))); e.Type != ib.EventCQErr || e.CQ != s.cq {
		t.Fatalf("event %+v", e)
	}
	s.wantIDs(0, 64)
	if err := s.cq.Resize(1000); err == nil {
		t.Error("a dead queue was resized")
	}
	check(t, s.qp.Close())
	check(t, s.cq.Close())
	if err := s.cq.Resize(100); err != verbs.ErrClosed {
		t.Errorf("resize of a closed queue: %v", err)
	}
}

// One goroutine sends, two poll, two resize, all the while: every completion comes once and in order.
func TestResizeUnderTraffic(t *testing.T) {
	cap := verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 1, MaxRecvSGE: 1}
	var net embedded.Network
	a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, cap)
	b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, cap)
	connectSides(t, a, b, verbs.RCAttr{})
	messages := uint64(20_000)
	if testing.Short() {
		messages = 2000
	}
	for i := range uint64(32) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 64)))
	}
	var resizes atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	for i, s := range []*side{a, b} {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if err := s.cq.Resize(64 << ((n + i) % 4)); err != nil {
					t.Errorf("resize: %v", err)
					return
				}
				resizes.Add(1)
			}
		})
	}
	// follow polls one side, and wants the ids in order.
	follow := func(s *side, again func(id uint64) error) {
		ctx := within(t, 30*time.Second)
		var wc [8]verbs.WC
		for next := uint64(0); next < messages; {
			n, err := s.cq.Wait(ctx, wc[:])
			if err != nil {
				t.Errorf("after %d: %v", next, err)
				return
			}
			for i := range n {
				if wc[i].WRID != next || wc[i].Status != ib.WCSuccess {
					t.Errorf("completion of %d: %v, want %d", wc[i].WRID, wc[i].Status, next)
					return
				}
				if err := again(next + 32); err != nil {
					t.Errorf("post %d: %v", next+32, err)
					return
				}
				next++
			}
		}
	}
	var traffic sync.WaitGroup
	traffic.Go(func() { follow(b, func(id uint64) error { return b.qp.PostRecv(b.recv(id, 0, 64)) }) })
	traffic.Go(func() {
		follow(a, func(id uint64) error {
			if id >= messages {
				return nil
			}
			return a.qp.PostSend(a.send(id, 8))
		})
	})
	for i := range uint64(32) {
		check(t, a.qp.PostSend(a.send(i, 8)))
	}
	traffic.Wait()
	t.Logf("%d resizes", resizes.Load())
	if resizes.Load() < 20 {
		t.Errorf("%d resizes only", resizes.Load())
	}
}

// The memory of rings that were left is given back.
func TestResizeFrees(t *testing.T) {
	s := newSide(t, openDevice(t, embedded.Options{}), 64, smallCap)
	for range 10 {
		check(t, s.cq.Resize(1<<16)) // 4 MiB
		check(t, s.cq.Resize(64))
	}
	few := func(when string) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); s.ctx.Arenas() > 4; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d memories", when, s.ctx.Arenas())
			}
		}
	}
	few("after 20 resizes")
	// Rings that nobody has left are given back with the queue.
	s.flushInto(16)
	for i := range 6 {
		check(t, s.cq.Resize(1<<16+i))
	}
	check(t, s.qp.Close())
	check(t, s.cq.Close())
	few("after Close")
}

// A resize to 1 Mi entries, of which the most is the first touch of 64 MiB.
func BenchmarkResize(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 20} {
		b.Run(map[int]string{1 << 10: "1Ki", 1 << 20: "1Mi"}[n], func(b *testing.B) {
			s := newSide(b, openDevice(b, embedded.Options{}), 64, smallCap)
			for b.Loop() {
				check(b, s.cq.Resize(n))
				b.StopTimer()
				check(b, s.cq.Resize(64))
				b.StartTimer()
			}
		})
	}
}
