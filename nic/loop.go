package nic

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/internal/yield"
	"golang.org/x/sys/unix"
)

const (
	// spin is how long a shard looks around after its last work before it sleeps. It yields its processor meanwhile:
	// the application that it waits for may need it. Where a switch between threads takes 6 us, that is two looks, and an
	// answer through two processes comes after four: it looks leastLooks times, but no longer than patience.
	spin       = 50 * time.Microsecond
	leastLooks = 8
	patience   = 4 * spin
	// hogged is longer than a yield takes among threads that yield as well, and less than a slice of the kernel's.
	hogged = time.Millisecond
	// hogs is how many such yields in a row make a shard do without for withoutYield.
	hogs         = 3
	withoutYield = 500 * time.Millisecond
	// nap is the least time worth sleeping.
	nap = 30 * time.Microsecond
	// fine is the longest time that is slept with the precision of nanoseconds; longer ones have milliseconds.
	fine = 10 * time.Millisecond
)

// sleeper is what a shard with a goroutine waits on. The eventfds are watched edge-triggered and never read: who shares
// one could make a read block. The shard's own wake-ups have an eventfd that nobody else holds.
type sleeper struct {
	epoll  int
	wakeFD int
	asleep atomic.Bool
	// atRest says that the shard is in the middle of its sleep: it touches nothing, and neither its burst nor the local
	// ring holds anything.
	atRest atomic.Bool
	stop   bool // the shard's own: leave the loop
	done   chan struct{}
}

func newSleeper() sleeper { return sleeper{epoll: -1, wakeFD: -1} }

// open makes the descriptors. port is the port's, -1 for none.
func (w *sleeper) open(port int) (err error) {
	defer func() {
		if err != nil {
			_ = w.close()
			err = fmt.Errorf("descriptors of the shard: %w", err)
		}
	}()
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.wakeFD, err = newEvent(); err != nil {
		return err
	}
	if err = w.watchEdges(w.wakeFD); err != nil {
		return err
	}
	if port >= 0 {
		return w.watch(port, unix.EPOLLIN)
	}
	return nil
}

func (w *sleeper) watch(fd int, events uint32) error {
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (w *sleeper) watchEdges(fd int) error {
	const edge = 1 << 31 // EPOLLET, which x/sys has as a negative number
	return w.watch(fd, unix.EPOLLIN|edge)
}

func newEvent() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }

// newBell makes an eventfd that wakes the shards that sleep: applications have one for all of them. Which shard is meant,
// the doorbell page says; the others go back to sleep.
func (d *Device) newBell() (int, error) {
	fd, err := newEvent()
	if err != nil {
		return -1, err
	}
	for _, s := range d.shards {
		if err := s.wait.watchEdges(fd); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}

func (w *sleeper) forgetBell(fd int) {
	if w.epoll >= 0 {
		_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

func (w *sleeper) close() error {
	var errs []error
	for _, fd := range []*int{&w.wakeFD, &w.epoll} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// wake ends the shard's sleep, if it sleeps. Who wakes it has published what for.
func (s *shard) wake() {
	if s.wait.asleep.Load() {
		_, _ = unix.Write(s.wait.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// start lets a goroutine turn the shard.
func (s *shard) start() {
	s.in.turn.Lock()
	defer s.in.turn.Unlock()
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.in.running || s.wait.epoll < 0 {
		return
	}
	s.in.running = true
	s.wait.done = make(chan struct{})
	processors(+1)
	go s.run()
}

// processors gives the Go scheduler a processor more, or one less. A shard keeps the one it has while it spins and for a
// moment of its sleep, unseen by the scheduler; without one more for each shard, others would wait for sysmon to notice:
// a message between two embedded devices took 355 us on two processors, and 16 us on four. The kernel divides the real
// ones, which is what yield is for.
func processors(change int) {
	processorsMu.Lock()
	defer processorsMu.Unlock()
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0)+change, 1))
}

var processorsMu sync.Mutex

// stop ends the goroutine. The descriptors stay: another shard may be about to wake this one.
func (s *shard) stop() {
	s.do(func(clock.Time) { s.wait.stop = true })
	s.in.mu.Lock()
	done := s.wait.done
	s.in.mu.Unlock()
	if done != nil {
		<-done
		processors(-1)
	}
}

// run turns the shard until it is stopped.
func (s *shard) run() {
	// Never unlocked: the thread ends with the goroutine, and with it the flag that faults panic.
	runtime.LockOSThread()
	dma.GuardGoroutine()
	defer close(s.wait.done)
	idle := idleness{since: s.time()}
	var neighbours neighbours
	for !s.wait.stop {
		now := s.time()
		switch {
		case s.round(now):
			// Not when the round began: it may have yielded, for longer than spin.
			idle = idleness{since: s.time()}
		case s.reply.lasts(now):
		case idle.looksOn(now) && neighbours.yield(now), s.roads.stalled:
			if s.eagerly() {
				continue
			}
			idle.looks++
			yield.Thread()
			if soleProcessor {
				neighbours.judge(now, s.time())
			}
		default:
			if !s.sleep() || len(s.dev.shards) == 1 {
				idle = idleness{since: s.time()}
			}
			// A bell rings for all shards: who finds nothing to do when it wakes sleeps on.
		}
	}
	// Whoever comes from now on turns the shard himself, and must not while what was left in the inbox runs.
	s.in.turn.Lock()
	defer s.in.turn.Unlock()
	s.in.mu.Lock()
	s.in.running = false
	queue := s.in.queue
	s.in.queue = nil
	s.in.mu.Unlock()
	for _, c := range queue {
		c.do(s.now)
	}
}

// idleness is how long a shard has had nothing to do, and how often it has yielded and looked since.
type idleness struct {
	since clock.Time
	looks int
}

// looksOn reports whether it is too early to sleep.
func (i *idleness) looksOn(now clock.Time) bool {
	idle := now.Sub(i.since)
	return idle < spin || i.looks < leastLooks && idle < patience
}

// soleProcessor says that there is one processor for everybody.
var soleProcessor = runtime.NumCPU() == 1

// neighbours is what a shard knows about who else wants its only processor. An application that looks at its memory until
// it changes, as ib_write_lat does, keeps the processor to the end of its slice, some milliseconds. What comes meanwhile
// makes the kernel take it away at once for a shard that sleeps, but not for one that yielded. Among threads that yield,
// yielding is much quicker than sleeping.
type neighbours struct {
	hogs    int        // yields in a row that took long
	shunned clock.Time // until when they get no more of them
}

// yield tells whether it is worth it.
func (n *neighbours) yield(now clock.Time) bool { return !now.Before(n.shunned) }

// judge is told when a yield began and when it ended.
func (n *neighbours) judge(began, ended clock.Time) {
	if ended.Sub(began) < hogged {
		n.hogs = 0
		return
	}
	if n.hogs++; n.hogs == hogs {
		n.hogs, n.shunned = 0, ended.Add(withoutYield)
	}
}

// sleep waits until something may have happened, and reports whether it did wait. It says that it sleeps first and looks
// once more then: who publishes work after that look sees the word and rings (both sides' order is sequentially
// consistent).
func (s *shard) sleep() bool {
	s.setAsleep(true)
	defer s.setAsleep(false)
	now := s.time()
	if s.round(now) || s.roads.stalled || s.wait.stop {
		return false
	}
	timeout := time.Duration(-1)
	if next := s.next(); next != never {
		if timeout = next.Sub(s.time()); timeout < nap {
			return false
		}
	}
	// The round found the local ring and the lanes empty, or it would have been busy.
	s.wait.atRest.Store(s.burst.Len() == 0)
	s.wait.block(timeout)
	s.wait.atRest.Store(false)
	return true
}

func (s *shard) setAsleep(asleep bool) {
	s.wait.asleep.Store(asleep)
	if s.dev.page != nil {
		s.dev.page.SetSleeping(s.index, asleep)
	}
}

// block waits for a descriptor or the timeout; a negative one is for ever.
func (w *sleeper) block(timeout time.Duration) {
	var events [16]unix.EpollEvent
	if timeout >= 0 && timeout <= fine {
		ts := unix.NsecToTimespec(int64(timeout))
		fds := [1]unix.PollFd{{Fd: int32(w.epoll), Events: unix.POLLIN}}
		if n, _ := unix.Ppoll(fds[:], &ts, nil); n > 0 {
			_, _ = unix.EpollWait(w.epoll, events[:], 0) // takes the edges
		}
		return
	}
	ms := -1
	if timeout >= 0 {
		ms = int(min((timeout+time.Millisecond-1)/time.Millisecond, 1<<30))
	}
	_, _ = unix.EpollWait(w.epoll, events[:], ms)
}
