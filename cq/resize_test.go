package cq

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
)

// resize does both halves' part of a resize.
func (p *pair) resize(capacity uint32) error {
	memory := make([]byte, abi.CQBlockSize(capacity))
	if err := p.reader.Follow(memory, capacity); err != nil {
		return err
	}
	err := p.Resize(memory, capacity)
	if err != nil {
		p.reader.Unfollow()
	}
	return err
}

// take wants the next n entries to have these ids, from first on.
func (p *pair) take(t *testing.T, first, n uint64) {
	t.Helper()
	var e abi.CQE
	for i := range n {
		if !p.reader.Next(&e) || e.WRID != first+i {
			t.Fatalf("entry %d of %d has wr_id %d, want %d", i, n, e.WRID, first+i)
		}
	}
	p.reader.Release()
}

// Field bugs B15 and B16: a full ring, whose entries stay; growing, shrinking, several times before the reader has moved once.
func TestResize(t *testing.T) {
	for _, start := range []uint32{0, 1<<32 - 64, 1<<32 - 100, 1<<32 - 1} {
		t.Run(fmt.Sprintf("%#x", start), func(t *testing.T) {
			p := newPair(t, 64)
			p.startAt(start)
			for i := range uint64(64) {
				p.post(i)
			}
			check := func(capacity uint32, waiting int, rings int) {
				t.Helper()
				if p.Capacity() != capacity || p.Occupancy() != uint32(waiting) || p.reader.Rings() != rings {
					t.Fatalf("capacity %d, occupancy %d, %d rings; want %d, %d, %d",
						p.Capacity(), p.Occupancy(), p.reader.Rings(), capacity, waiting, rings)
				}
				if n := p.reader.Peek(1 << 30); n != waiting {
					t.Fatalf("peek %d, want %d", n, waiting)
				}
			}
			if err := p.resize(192); err != nil {
				t.Fatal(err)
			}
			check(192, 64, 2)
			for i := range uint64(64) {
				p.post(64 + i)
			}
			if err := p.resize(128); err != nil { // exactly what waits
				t.Fatal(err)
			}
			check(128, 128, 3)
			for _, c := range []uint32{64, 0, 100} {
				if err := p.resize(c); !errors.Is(err, syscall.EINVAL) {
					t.Fatalf("%d places for 128 entries: %v", c, err)
				}
				check(128, 128, 3)
			}
			p.take(t, 0, 10)
			for i := range uint64(10) {
				if !p.post(128 + i) {
					t.Fatalf("post %d: %v", 128+i, p.Err())
				}
			}
			check(128, 128, 3)
			p.take(t, 10, 118)
			check(128, 10, 2)
			p.take(t, 128, 10)
			check(128, 0, 1)
			if err := p.resize(64); err != nil {
				t.Fatal(err)
			}
			// Enforced exactly, also by a queue that remembers to have been longer.
			for i := range uint64(65) {
				if posted := p.post(138 + i); posted != (i < 64) {
					t.Fatalf("entry %d of a queue of 64: posted %v", i, posted)
				}
			}
			p.take(t, 138, 64)
			if _, err := p.reader.Poll(make([]abi.CQE, 1)); !errors.Is(err, ErrOverrun) {
				t.Fatalf("poll: %v", err)
			}
			if err := p.resize(128); !errors.Is(err, ErrOverrun) {
				t.Errorf("resize of a dead queue: %v", err)
			}
			if p.HighWater() != 128 {
				t.Errorf("high-water mark %d", p.HighWater())
			}
		})
	}
}

// Arming outlives the move: armed before, it fires once for the first entry after.
func TestResizeArmed(t *testing.T) {
	p := newPair(t, 64)
	p.reader.ReqNotify(abi.ArmNext)
	if err := p.resize(128); err != nil {
		t.Fatal(err)
	}
	if p.reader.ReqNotify(abi.ArmSolicited) {
		t.Error("something is there")
	}
	p.post(1)
	p.post(2)
	if p.events != 1 {
		t.Errorf("%d events", p.events)
	}
	if !p.reader.ReqNotify(abi.ArmNext) {
		t.Error("entries in the new ring are not seen")
	}
}

// Field bug B15: one goroutine posts, one polls, one resizes up and down: every entry comes once and in order. On a busy machine
// the traffic waits for resizes.
func TestResizeUnderTraffic(t *testing.T) {
	const enough = 10 // resizes
	entries := uint64(40_000)
	if testing.Short() {
		entries = 5000
	}
	p := newPair(t, 64)
	var wg sync.WaitGroup
	var mu sync.Mutex // of the reader
	credits := make(chan struct{}, 64)
	for range 64 {
		credits <- struct{}{}
	}
	done := make(chan struct{})
	wg.Go(func() {
		for i := uint64(0); ; i++ {
			select {
			case <-credits:
			case <-done:
				return
			case <-time.After(5 * time.Second):
				t.Error("no room for ever")
				return
			}
			if !p.post(i) {
				t.Errorf("post %d: %v", i, p.Err())
				return
			}
		}
	})
	var resizes atomic.Int32
	wg.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for {
			select {
			case <-done:
				return
			default:
			}
			capacity := 64 * (1 + r.Uint32N(8))
			memory := make([]byte, abi.CQBlockSize(capacity))
			mu.Lock()
			p.reader.Follow(memory, capacity)
			mu.Unlock()
			if err := p.Resize(memory, capacity); err != nil {
				t.Errorf("resize to %d: %v", capacity, err)
				return
			}
			resizes.Add(1)
			for rings := 2; rings > 1; { // so that not everything becomes a chain
				mu.Lock()
				rings = p.reader.Rings()
				mu.Unlock()
				runtime.Gosched() // there may be one processor for all three
				if r.Uint32N(4) == 0 {
					break
				}
			}
		}
	})
	e := make([]abi.CQE, 16)
	end := time.Now().Add(20 * time.Second)
	for next := uint64(0); (next < entries || resizes.Load() < enough) && time.Now().Before(end); {
		mu.Lock()
		n, err := p.reader.Poll(e)
		mu.Unlock()
		if n == 0 {
			runtime.Gosched()
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if e[i].WRID != next {
				t.Fatalf("entry %d has wr_id %d", next, e[i].WRID)
			}
			next++
			credits <- struct{}{}
		}
	}
	close(done)
	wg.Wait()
	if n := resizes.Load(); n < enough {
		t.Errorf("%d resizes", n)
	}
}

// resized is a world whose queue will be moved to a ring that the reader knows.
func resized(posts int) func(*world) {
	return func(w *world) {
		fill(posts)(w)
		w.second = make([]byte, abi.CQBlockSize(128))
		if err := w.reader.Follow(w.second, 128); err != nil {
			w.Failf("%v", err)
		}
	}
}

// postAround posts some entries, resizes, and posts others.
func postAround(first, before, after int) func(*world) {
	return func(w *world) {
		for i := range before + after {
			if i == before {
				if err := w.queue.Resize(w.second, 128); err != nil {
					w.Failf("resize: %v", err)
				}
			}
			w.queue.Post(0, &abi.CQE{WRID: uint64(first + i)}, false)
		}
	}
}

// A resize anywhere between posting, taking, arming and sleeping: nothing is lost, and nobody sleeps on.
func TestNoOrderLosesAnEntryInAResize(t *testing.T) {
	for name, s := range map[string]scenario{
		"empty":     {before: resized(0), bodies: [threads]func(*world){postAround(1, 0, 1), consume(1, abi.ArmNext)}},
		"one there": {before: resized(1), bodies: [threads]func(*world){postAround(2, 0, 1), consume(2, abi.ArmNext)}},
		"between":   {before: resized(0), bodies: [threads]func(*world){postAround(1, 1, 1), consume(2, abi.ArmNext)}},
		"full":      {before: resized(64), bodies: [threads]func(*world){postAround(65, 0, 1), consume(65, abi.ArmNext)}},
	} {
		t.Run(name, func(t *testing.T) {
			orders, err := s.explore()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d orders", orders)
			if orders < 2 {
				t.Errorf("%d orders: the explorer does not explore", orders)
			}
		})
	}
	// A device that posts before it says that it has moved is found out.
	s := scenario{before: resized(0), bodies: [threads]func(*world){func(w *world) {
		ring, _ := abi.NewCQBlock(w.second, 128)
		old := w.queue.ring
		w.queue.ring, w.queue.capacity = ring, 128
		w.queue.Post(0, &abi.CQE{WRID: 1}, false)
		w.queue.touch(wordMoved)
		old.SetMoved(0)
	}, consume(1, abi.ArmNext)}}
	if orders, err := s.explore(); err == nil {
		t.Errorf("%d orders, and none found that the ring was left too late", orders)
	}
}

func TestResizeFaults(t *testing.T) {
	p := newPair(t, 64)
	p.post(1)
	p.Queue.step = func(w word) {
		if w == wordMoved {
			panic("fault")
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the fault was swallowed")
			}
		}()
		p.resize(128)
	}()
	p.Queue.step = nil
	p.reader.Unfollow()
	if p.Capacity() != 64 || !p.post(2) {
		t.Fatal("the queue has changed")
	}
	p.take(t, 1, 2)
}

// What a resize takes: clearing the new ring, whose memory is touched for the first time.
func BenchmarkResize(b *testing.B) {
	for _, n := range []uint32{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPair(b, 64)
			for range b.N {
				b.StopTimer()
				memory := make([]byte, abi.CQBlockSize(n))
				b.StartTimer()
				if err := p.Resize(memory, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
