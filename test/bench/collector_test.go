package main

import (
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// The collector of a daemon does not run while messages flow, however many: they allocate nothing.
func TestNoCollectionUnderTraffic(t *testing.T) {
	if testing.Short() {
		t.Skip("two seconds of messages")
	}
	s, err := newSuite(2*time.Second, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var said progtest.Buffer
	s.errors = &said
	// The daemon says when it collects, and does for each hundredth of the heap that is allocated.
	s.env = []string{"GODEBUG=gctrace=1", "GOGC=1"}
	d, err := s.daemon(s.fresh())
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	var counts [2]chan int
	for i := range counts {
		counts[i] = make(chan int, 1)
		// Queue pairs are made before, and destroyed after: in between there is nothing but messages.
		defer time.AfterFunc(s.length*time.Duration(i+1)/2, func() { counts[i] <- strings.Count("\n"+said.String(), "\ngc ") }).Stop()
	}
	r, err := (&pair{s, d, d}).perf("msg-rate")
	if err != nil {
		t.Fatal(err)
	}
	collections := [2]int{<-counts[0], <-counts[1]}
	if collections[0] == 0 {
		t.Fatal("collections are not seen")
	}
	t.Logf("%.2g messages a second; %d collections before, %d at the end", r.Msg, collections[0], collections[1])
	if n := collections[1] - collections[0]; n > 0 {
		t.Errorf("%d collections while messages flowed", n)
	}
}
