package verbs_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/softnic/softnicd/verbs"
)

// A goroutine that polls does not keep the only processor of its program from others until sysmon takes it away, 10 ms later.
func TestPollLetsOthersRun(t *testing.T) {
	a, _ := newPair(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const turns, perTurn = 100, 64
	var had atomic.Int32
	go func() {
		for range turns {
			had.Add(1)
			runtime.Gosched()
		}
	}()
	var wc [1]verbs.WC
	polls := 0
	for had.Load() < turns {
		if polls++; polls > turns*perTurn {
			t.Fatalf("another goroutine had %d turns in %d empty polls", had.Load(), polls)
		}
		must(a.cq.Poll(wc[:]))
	}
}
