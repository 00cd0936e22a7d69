package shm

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// RobustWord is 4 bytes of published memory that the kernel marks when this process dies, however it dies, and whose
// sleepers it wakes: a robust futex. The word holds the number of a thread that lives as long as the process.
//
// The same thread beats the heart, which tells of what the kernel does not see: a process that hangs.
type RobustWord struct {
	word []byte
	head []byte // the robust list, in memory that the garbage collector does not know
	stop int    // eventfd
	done chan struct{}
}

// StartRobust publishes the calling process as alive in word, 4 aligned bytes of shared memory, and calls beat (which may
// be nil) now and every period from the same thread until Close. word stays mapped until then.
func StartRobust(word []byte, period time.Duration, beat func()) (*RobustWord, error) {
	if futexWord(word) == nil {
		return nil, fmt.Errorf("robust word: want 4 aligned bytes: %w", unix.EINVAL)
	}
	head, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("robust word: %w", err)
	}
	stop, err := NewEvent()
	if err != nil {
		unix.Munmap(head)
		return nil, fmt.Errorf("robust word: %w", err)
	}
	r := &RobustWord{word, head, stop, make(chan struct{})}
	started := make(chan error)
	go r.run(period, beat, started)
	if err := <-started; err != nil {
		unix.Munmap(head)
		unix.Close(stop)
		return nil, fmt.Errorf("robust word: %w", err)
	}
	return r, nil
}

// Close marks the word as the kernel would, wakes its sleepers, and ends the thread. Then word may be unmapped.
func (r *RobustWord) Close() {
	Ring(r.stop)
	<-r.done
	unix.Close(r.stop)
}

func (r *RobustWord) run(period time.Duration, beat func(), started chan<- error) {
	// The list is the thread's: no other goroutine may run on it, and it ends with this one.
	runtime.LockOSThread()
	if err := setRobustList(r.head, r.word); err != nil {
		started <- err
		return
	}
	started <- nil
	timeout := -1
	if beat == nil || period <= 0 {
		beat = func() {}
	} else {
		timeout = max(int(period/time.Millisecond), 1)
	}
	// The thread waits in the kernel by itself: a timer of the Go scheduler would wake three others at each beat, and an
	// idle daemon is to be idle.
	for fds := []unix.PollFd{{Fd: int32(r.stop), Events: unix.POLLIN}}; fds[0].Revents == 0; {
		beat()
		if _, err := unix.Poll(fds, timeout); err != nil {
			fds[0].Revents = 0
		}
	}
	clearRobustList(r.word)
	unix.Munmap(r.head)
	close(r.done)
}

// Died reports whether the process that published word is gone.
func Died(word []byte) bool { return loadFutex(word)&futexOwnerDied != 0 }

// WaitDeath sleeps until the process that published word is gone, or for a time at the most, and reports whether it is
// gone. word may be mapped for reading only.
func WaitDeath(word []byte, limit time.Duration) (bool, error) {
	end := time.Now().Add(limit)
	for {
		v := loadFutex(word)
		if v&futexOwnerDied != 0 {
			return true, nil
		}
		left := time.Until(end)
		if left <= 0 {
			return false, nil
		}
		switch err := futexWait(word, v, left); err {
		case nil, unix.EAGAIN, unix.EINTR, unix.ETIMEDOUT:
		default:
			return false, fmt.Errorf("wait on robust word: %w", err)
		}
	}
}
