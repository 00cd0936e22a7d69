package verbs

import "unsafe"

// address returns where b begins: what the SGEs of an RDMA program contain.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// alignedMemory returns zeroed memory of the heap that begins on a page.
func alignedMemory(size int) []byte {
	const page = 4096
	b := make([]byte, size+page-1)
	skip := int(-address(b) & (page - 1))
	return b[skip : skip+size : skip+size]
}
