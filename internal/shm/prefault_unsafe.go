package shm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pages returns where the pages begin and end that hold mem.
func pages(mem []byte) (begin, end uintptr) {
	if len(mem) == 0 {
		return 0, 0
	}
	page := uintptr(unix.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return at &^ (page - 1), (at + uintptr(len(mem)) + page - 1) &^ (page - 1)
}

// madvise and mincore are mmap(2)'s relatives by address: the pages are mapped, but more of the first and the last than
// a slice of this process may name.
func madvise(at, n uintptr, advice int) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, at, n, uintptr(advice)); errno != 0 {
		return errno
	}
	return nil
}

// mincore says of each page whether its file has it.
func mincore(at, n uintptr, present []byte) error {
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, at, n, uintptr(unsafe.Pointer(unsafe.SliceData(present)))); errno != 0 {
		return errno
	}
	return nil
}
