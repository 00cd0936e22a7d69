package cq

import (
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
)

// A block whose memory is gone: what a client does to the daemon by punching a hole in a huge page file, say. Under the
// caller's guard every method that touches it ends in a panic that names the address, and the queue holds no lock.
func TestBlockIsGone(t *testing.T) {
	size := (int(abi.CQBlockSize(64)) + 4095) &^ 4095
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	q, err := New(Config{Block: memory, Capacity: 64, Notifier: make(channel, 8)})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := NewReader(memory, 64)
	q.SetModeration(10, 100)
	r.ReqNotify(abi.ArmNext)
	q.Post(0, &abi.CQE{}, false) // an event is held
	if err := unix.Mprotect(memory, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for name, touch := range map[string]func(){
		"Post":          func() { q.Post(0, &abi.CQE{}, false) },
		"Expire":        func() { q.Expire(1 << 40) },
		"SetModeration": func() { q.SetModeration(0, 0) },
		"Occupancy":     func() { q.Occupancy() },
		"Armed":         func() { q.Armed() },
	} {
		func() {
			defer func() {
				r := recover()
				if e, ok := r.(runtime.Error); !ok {
					t.Errorf("%s: %v, want a fault", name, r)
				} else if _, ok := e.(interface{ Addr() uintptr }); !ok {
					t.Errorf("%s: %v, want a fault with its address", name, e)
				}
				if !q.mu.TryLock() {
					t.Fatalf("%s: the lock is held after a fault", name)
				}
				q.moderator.held, q.moderator.sequence = 1, 1 // an event is held for the next method
				q.deadline.Store(0)
				q.mu.Unlock()
			}()
			touch()
		}()
	}
}
