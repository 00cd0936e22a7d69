package shm

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The robust list of a thread (linux/futex.h, struct robust_list_head): a ring of one entry, which begins after the head.
// The futex of an entry is found at a fixed distance from it.
//
//	0  next: first entry
//	8  distance from an entry to its futex
//	16 pending: entry about to be taken or left
//	24 our entry: the next one, that is the head
type robustHead struct {
	next    uintptr
	offset  int64
	pending uintptr
	entry   uintptr
}

const robustHeadSize = 24

// The futex word and its operations (linux/futex.h).
const (
	futexOwnerDied = 0x40000000
	futexWaiters   = 0x80000000
	futexOpWait    = 0
	futexOpWake    = 1
)

func setRobustList(mem, word []byte) error {
	h := (*robustHead)(unsafe.Pointer(unsafe.SliceData(mem)))
	w := futexWord(word)
	h.next = uintptr(unsafe.Pointer(&h.entry))
	h.offset = int64(uintptr(unsafe.Pointer(w)) - uintptr(unsafe.Pointer(&h.entry)))
	h.entry = uintptr(unsafe.Pointer(h))
	if _, _, errno := unix.Syscall(unix.SYS_SET_ROBUST_LIST, uintptr(unsafe.Pointer(h)), robustHeadSize, 0); errno != 0 {
		return errno
	}
	// With the bit FUTEX_WAITERS the kernel wakes sleepers, who cannot set it: their mapping is read-only.
	atomic.StoreUint32(w, uint32(unix.Gettid())|futexWaiters)
	return nil
}

// clearRobustList leaves the thread without a list and the word as the kernel leaves it.
func clearRobustList(word []byte) {
	unix.Syscall(unix.SYS_SET_ROBUST_LIST, 0, robustHeadSize, 0)
	w := futexWord(word)
	atomic.StoreUint32(w, futexOwnerDied|futexWaiters)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexOpWake, 1<<31-1, 0, 0, 0)
}

// futexWord returns the first 4 bytes of b as a word, nil if b is shorter or not aligned.
func futexWord(b []byte) *uint32 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b) < 4 || uintptr(p)&3 != 0 {
		return nil
	}
	return (*uint32)(p)
}

func loadFutex(b []byte) uint32 { return atomic.LoadUint32(futexWord(b)) }

// futexWait sleeps while the word is v. The futex is shared between processes: no FUTEX_PRIVATE_FLAG.
func futexWait(b []byte, v uint32, limit time.Duration) error {
	ts := unix.NsecToTimespec(int64(limit))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(futexWord(b))), futexOpWait, uintptr(v),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
