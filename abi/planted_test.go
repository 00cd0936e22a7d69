package abi

import (
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"
)

// The sequence is the last word of an entry to be written. Here its first word lies on a page that is not there and its
// sequence on one that is: writing stops at the first, and the reader must not find an entry.
func TestBodyIsWrittenBeforeTheSequence(t *testing.T) {
	const pos = 10
	size := unix.Getpagesize()
	pages := 2 + int(CQBlockSize(64))/size + 1
	mem, err := unix.Mmap(-1, 0, pages*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	boundary := 2 * size
	b, err := NewCQBlock(mem[boundary-8-pos*CQESize-CQHeaderSize:], 64)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := unix.Mprotect(mem[:boundary], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the first word was written where no memory is")
			}
		}()
		b.Write(pos, 0, &CQE{WRID: 1})
	}()
	if b.Ready(pos, 0) {
		t.Error("the entry is there, and was not written")
	}
}
