package dma

import (
	"sync/atomic"
	"unsafe"
)

// address returns where b begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// within reports whether addr is the address of a byte of b.
func within(addr uintptr, b []byte) bool {
	return len(b) > 0 && addr-address(b) < uintptr(len(b))
}

// word returns the 8 bytes at the start of b as a word, nil if b is shorter or not aligned.
func word(b []byte) *uint64 {
	if len(b) < 8 || address(b)&7 != 0 {
		return nil
	}
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b)))
}

// touchByte reads the first byte of b, or writes it with what is there: together with its neighbours, atomically, since
// its owner may be at work on them. The 4 bytes around it lie in the same page.
func touchByte(b []byte, write bool) {
	w := (*uint32)(unsafe.Pointer(unsafe.SliceData(b)))
	w = (*uint32)(unsafe.Add(unsafe.Pointer(w), -int(address(b)&3)))
	if write {
		atomic.AddUint32(w, 0)
	} else {
		atomic.LoadUint32(w)
	}
}
