package dma

import (
	"errors"
	"sync/atomic"
)

// direct is memory in this process's own address space.
type direct struct {
	b     []byte
	close func() error
}

// NewShared makes a region of a mapping that an application shares with this process. close, which may be nil, unmaps
// it.
func NewShared(mapped []byte, close func() error) Region { return &direct{mapped, close} }

// NewEmbedded makes a region of this process's own memory. It must not be on a stack.
func NewEmbedded(b []byte) Region { return &direct{b: b} }

var (
	errBounds    = errors.New("outside the region")
	errMisplaced = errors.New("atomic operand is not aligned to 8 bytes in memory")
)

// Size implements [Region].
func (r *direct) Size() uint64 { return uint64(len(r.b)) }

// Bytes implements [wire.Memory].
func (r *direct) Bytes(off uint64, n int) []byte {
	if size := uint64(len(r.b)); n < 0 || uint64(n) > size || off > size-uint64(n) {
		return nil
	}
	return r.b[off : off+uint64(n) : off+uint64(n)]
}

// Read implements [wire.Memory].
func (r *direct) Read(dst []byte, off uint64) error {
	src := r.Bytes(off, len(dst))
	if src == nil {
		return &Fault{Mem: r, Err: errBounds}
	}
	return copyGuarded(dst, nil, src, r)
}

// Write implements [wire.Memory].
func (r *direct) Write(src []byte, off uint64) error {
	dst := r.Bytes(off, len(src))
	if dst == nil {
		return &Fault{Mem: r, Err: errBounds}
	}
	return copyGuarded(dst, r, src, nil)
}

// Atomic implements [Region].
func (r *direct) Atomic(off uint64, op AtomicOp, operand, compare uint64) (old uint64, err error) {
	b := r.Bytes(off, 8)
	if b == nil {
		return 0, &Fault{Mem: r, Err: errBounds}
	}
	w := word(b)
	if w == nil {
		// The processor would split the access, which some hosts punish by SIGBUS.
		return 0, &Fault{Mem: r, Addr: address(b), Err: errMisplaced}
	}
	g := arm()
	defer func() {
		g.disarm()
		if !g.done {
			err = blame(recover(), b, r, nil, nil)
		}
	}()
	switch op {
	case CompareSwap:
		for {
			if old = atomic.LoadUint64(w); old != compare || atomic.CompareAndSwapUint64(w, compare, operand) {
				break
			}
		}
	case FetchAdd:
		old = atomic.AddUint64(w, operand) - operand
	case Store:
		old = atomic.SwapUint64(w, operand)
	}
	g.done = true
	return old, nil
}

// Close implements [Region].
func (r *direct) Close() error {
	if r.close == nil {
		return nil
	}
	f := r.close
	r.close = nil
	return f()
}
