package cq

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

func TestNoAllocations(t *testing.T) {
	p := newPair(t, 64)
	p.SetModeration(2, 100)
	e := abi.CQE{WRID: 1}
	dst, wc := make([]abi.CQE, 32), make([]ib.WC, 32)
	if n := testing.AllocsPerRun(1000, func() {
		p.reader.ReqNotify(abi.ArmNext)
		for range 4 {
			p.Post(0, &e, false)
		}
		p.Expire(1 << 40)
		p.reader.Peek(32)
		p.reader.PollWC(wc[:2])
		p.reader.Poll(dst)
		p.reader.Poll(dst)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Posting to a queue whose reader keeps up, nobody armed.
func BenchmarkPost(b *testing.B) {
	p := newPair(b, 1024)
	e := abi.CQE{WRID: 1}
	b.ReportAllocs()
	for i := range b.N {
		if i%512 == 0 {
			p.block.SetConsumed(p.produced)
		}
		p.Post(0, &e, false)
	}
}

func BenchmarkPostArmed(b *testing.B) {
	p := newPair(b, 1024)
	e := abi.CQE{WRID: 1}
	for i := range b.N {
		if i%512 == 0 {
			p.block.SetConsumed(p.produced)
		}
		p.block.StoreArm(abi.ArmWord(uint32(i+1), abi.ArmNext))
		p.Post(0, &e, false)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	p := newPair(b, 1024)
	dst := make([]abi.CQE, 32)
	for range b.N {
		p.reader.Poll(dst)
	}
}

// Polling n entries at a time; the ring is refilled off the clock.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{1, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			const capacity = 1 << 14
			p := newPair(b, capacity)
			dst := make([]abi.CQE, n)
			for left := b.N; left > 0; {
				b.StopTimer()
				for i := range capacity {
					p.post(uint64(i))
				}
				b.StartTimer()
				for taken := 0; taken < capacity; taken += n {
					p.reader.Poll(dst)
				}
				left -= capacity
			}
			// b.N counts entries, up to the last ring's rounding.
		})
	}
}

// Posting to a queue whose reader polls on another processor.
func BenchmarkPostToPoller(b *testing.B) {
	p := newPair(b, 256)
	e := abi.CQE{WRID: 1}
	var taken atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		dst := make([]abi.CQE, 16)
		for total := uint64(0); total < uint64(b.N); {
			n, _ := p.reader.Poll(dst)
			if total += uint64(n); n > 0 {
				taken.Store(total)
			}
		}
	}()
	for i := range uint64(b.N) {
		for i-taken.Load() > 200 {
			runtime.Gosched()
		}
		p.Post(0, &e, false)
	}
	<-done
}
