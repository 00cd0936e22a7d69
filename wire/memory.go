package wire

// Memory is something that payload bytes can be read from and written to by offset: a registered region, or bytes in
// hand ([Buffer]). The wire names payload by reference and leaves it to the port when to touch it.
//
// Implementations check nothing but their own bounds: rights and keys were judged before a reference was made.
type Memory interface {
	// Bytes returns the n bytes at off for direct access, or nil if this memory cannot be addressed directly. Touching
	// them may fault; only code under the fault guard of package dma does.
	Bytes(off uint64, n int) []byte
	// Read copies len(dst) bytes from off. The error is a *dma.Fault.
	Read(dst []byte, off uint64) error
	// Write copies src to off. The error is a *dma.Fault.
	Write(src []byte, off uint64) error
}

// Piece is a run of bytes in some memory.
type Piece struct {
	Mem Memory
	Off uint64
	Len int
}

// Buffer is private memory of the device itself: inline data, a received datagram.
type Buffer struct{ B []byte }

// Bytes implements [Memory].
func (b *Buffer) Bytes(off uint64, n int) []byte { return b.B[off : off+uint64(n)] }

// Read implements [Memory].
func (b *Buffer) Read(dst []byte, off uint64) error {
	copy(dst, b.B[off:off+uint64(len(dst))])
	return nil
}

// Write implements [Memory].
func (b *Buffer) Write(src []byte, off uint64) error {
	copy(b.B[off:off+uint64(len(src))], src)
	return nil
}
