package main

import (
	"strings"
	"sync"
	"testing"
	"time"
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
	t.Setenv("GODEBUG", "gctrace=1") // a line for each collection
	t.Setenv("GOGC", "1")            // for each hundredth of the heap that is allocated
	var said log
	s.errors = &said
	d, err := s.daemon(s.fresh())
	if err != nil {
		t.Fatal(err)
	}
	defer d.stop()
	var collections [2]int
	for i := range collections {
		// Queue pairs are made before, and destroyed after: in between there is nothing but messages.
		defer time.AfterFunc(s.length*time.Duration(i+1)/2, func() { collections[i] = said.lines() }).Stop()
	}
	r, err := (&pair{s, d, d}).perf("msg-rate")
	if err != nil {
		t.Fatal(err)
	}
	if collections[0] == 0 {
		t.Fatal("collections are not seen")
	}
	t.Logf("%.2g messages a second; %d collections before, %d at the end", r.Msg, collections[0], collections[1])
	if n := collections[1] - collections[0]; n > 0 {
		t.Errorf("%d collections while messages flowed", n)
	}
}

// log counts lines.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count("\n"+l.text.String(), "\ngc ")
}
