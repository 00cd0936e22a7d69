package nic

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/softnic/softnicd/clock"
)

// inbox is how others reach a shard: commands, which run between two rounds. While no goroutine turns the shard, because
// it is a manual one, not started yet or stopped, they run at once, one at a time.
type inbox struct {
	pending atomic.Bool // there may be commands

	mu      sync.Mutex
	running bool
	queue   []*command
}

type command struct {
	run  func(now clock.Time)
	done chan struct{}
}

// do runs f on the shard and returns when it has run. The shard's own goroutine must not call it.
func (s *shard) do(f func(now clock.Time)) {
	s.in.mu.Lock()
	if !s.in.running {
		defer s.in.mu.Unlock()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		s.now = s.time()
		f(s.now)
		return
	}
	c := &command{f, make(chan struct{})}
	s.in.queue = append(s.in.queue, c)
	s.in.pending.Store(true)
	s.in.mu.Unlock()
	s.wake()
	<-c.done
}

// commands runs what is in the inbox and reports whether there was something.
func (s *shard) commands(now clock.Time) bool {
	if !s.in.pending.Load() {
		return false
	}
	s.in.mu.Lock()
	queue := s.in.queue
	s.in.queue = nil
	s.in.pending.Store(false)
	s.in.mu.Unlock()
	for _, c := range queue {
		c.run(now)
		close(c.done)
	}
	return true
}

// step turns a manual shard by one round.
func (s *shard) step(now clock.Time) (next clock.Time, busy bool) {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.running || s.wait.stop {
		return never, false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if s.round(now) {
		return now, true
	}
	return s.next(), false
}

// time is the device's clock; a manual device without one lives at the time of its last step.
func (s *shard) time() clock.Time {
	if s.dev.cfg.Now == nil {
		return s.now
	}
	return s.dev.cfg.Now()
}
