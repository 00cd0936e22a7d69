package dma

import (
	"fmt"

	"github.com/softnic/softnicd/wire"
)

// Region is memory that an application registered, reached in one of three ways: a mapping shared with it
// ([NewShared]), another process's address space ([NewProcess]), or this process's own ([NewEmbedded]). [NewComposite] makes
// one region of parts of others.
//
// Offsets are from the start of the region. Every access is guarded: memory that its owner unmapped, punched or
// protected gives a [*Fault], never a crash.
type Region interface {
	wire.Memory
	// Size is the bytes of the region.
	Size() uint64
	// Atomic applies op to the aligned 8 bytes at off, in host order, and returns what was there before. It is atomic
	// against every other atomic of this device (IBV_ATOMIC_HCA); on memory addressed directly also against the CPU.
	Atomic(off uint64, op AtomicOp, operand, compare uint64) (old uint64, err error)
	// Close unmaps. The caller has waited until no shard can touch the region any more.
	Close() error
}

// AtomicOp is an atomic operation on 8 bytes.
type AtomicOp uint8

// Atomic operations.
const (
	CompareSwap AtomicOp = iota // store operand if the old value equals compare
	FetchAdd                    // store old + operand
	Store                       // store operand
)

// Fault is an access to memory that is not there.
type Fault struct {
	// Mem is the memory whose address faulted: source or destination of a copy. Nil is memory of the caller's own.
	Mem wire.Memory
	// Addr is the faulting address where it is known.
	Addr uintptr
	Err  error
}

func (f *Fault) Error() string {
	if f.Err != nil {
		return fmt.Sprintf("memory fault at %#x: %v", f.Addr, f.Err)
	}
	return fmt.Sprintf("memory fault at %#x", f.Addr)
}

// Unwrap returns the system's error where there was one.
func (f *Fault) Unwrap() error { return f.Err }
