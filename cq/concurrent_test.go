package cq

import (
	"sync"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
)

// channel is a completion channel between goroutines: events are counted and none is dropped.
type channel chan struct{}

func (c channel) Notify(uint64, uint32) { c <- struct{}{} }

// Two devices' shards post, one application polls, arms and sleeps. Each sleep ends; every poster's entries come in
// order; nothing is lost or doubled.
func TestPostersAndSleeper(t *testing.T) {
	const posters, each, capacity = 2, 20_000, 128
	memory := make([]byte, abi.CQBlockSize(capacity))
	events := make(channel, posters*each)
	q, _ := New(Config{Block: memory, Capacity: capacity, Notifier: events})
	r, _ := NewReader(memory, capacity)

	credits := make(chan struct{}, capacity) // so that nobody overruns
	for range capacity {
		credits <- struct{}{}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for p := range posters {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				select {
				case <-credits:
				case <-stop:
					return
				}
				if !q.Post(0, &abi.CQE{WRID: uint64(i), QPN: uint32(p), Timestamp: ^uint64(i)}, false) {
					t.Errorf("post: %v", q.Err())
					return
				}
			}
		}()
	}

	var next [posters]uint64
	e := make([]abi.CQE, 16)
	sleeps := 0
	for taken := 0; taken < posters*each; {
		n, err := r.Poll(e)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			c := &e[i]
			if c.WRID != next[c.QPN] || c.Timestamp != ^c.WRID {
				t.Fatalf("poster %d: entry %d (%#x), want %d", c.QPN, c.WRID, c.Timestamp, next[c.QPN])
			}
			next[c.QPN]++
		}
		taken += n
		for range n {
			credits <- struct{}{}
		}
		if n == 0 && !r.ReqNotify(abi.ArmNext) {
			sleeps++
			select {
			case <-events:
			case <-time.After(2 * time.Second):
				t.Fatalf("asleep with %d of %d taken", taken, posters*each)
			}
		}
	}
	t.Logf("%d sleeps, %d events", sleeps, q.Events())
	if q.HighWater() > capacity {
		t.Errorf("high-water mark %d", q.HighWater())
	}
}
