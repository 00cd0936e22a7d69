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

	turn    sync.Mutex // held by who turns the shard while no goroutine of its own does
	mu      sync.Mutex // taken after it, for moments
	running bool
	queue   []*command
}

type command struct {
	run  func(now clock.Time)
	done chan struct{} // nil: nobody waits
}

func (c *command) do(now clock.Time) {
	c.run(now)
	if c.done != nil {
		close(c.done)
	}
}

// do runs f on the shard and returns when it has run. Shards' own goroutines do not call it, or two would wait for each
// other; but see Device.pause.
func (s *shard) do(f func(now clock.Time)) {
	if c := s.begin(f); c != nil {
		<-c.done
	}
}

// begin is do for who waits later. It returns nil if f has run.
func (s *shard) begin(f func(now clock.Time)) *command {
	c := &command{f, make(chan struct{})}
	if !s.in.addIfRunning(c) {
		s.in.turn.Lock()
		defer s.in.turn.Unlock()
		if !s.in.addIfRunning(c) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			s.now = s.time()
			s.commands(s.now)
			f(s.now)
			return nil
		}
	}
	s.wake()
	return c
}

// post runs f on the shard, between two of its rounds. It may be called from another shard's goroutine.
func (s *shard) post(f func(now clock.Time)) {
	s.in.mu.Lock()
	s.in.add(&command{run: f})
	s.in.mu.Unlock()
	s.wake()
}

// others posts f to all other shards.
func (s *shard) others(f func(o *shard, now clock.Time)) {
	for _, o := range s.dev.shards {
		if o != s {
			o.post(func(now clock.Time) { f(o, now) })
		}
	}
}

// addIfRunning queues a command if a goroutine turns the shard.
func (in *inbox) addIfRunning(c *command) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.running {
		in.add(c)
	}
	return in.running
}

// add wants mu held.
func (in *inbox) add(c *command) {
	in.queue = append(in.queue, c)
	in.pending.Store(true)
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
		c.do(now)
	}
	return true
}

// step turns a manual shard by one round.
func (s *shard) step(now clock.Time) (next clock.Time, busy bool) {
	s.in.turn.Lock()
	defer s.in.turn.Unlock()
	if s.in.isRunning() || s.wait.stop {
		return never, false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if s.round(now) || s.roads.stalled {
		return now, true
	}
	return s.next(), false
}

func (in *inbox) isRunning() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.running
}

// time is the device's clock; a manual device without one lives at the time of its last step.
func (s *shard) time() clock.Time {
	if s.dev.cfg.Now == nil {
		return s.now
	}
	return s.dev.cfg.Now()
}
