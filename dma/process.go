package dma

import (
	"encoding/binary"
	"fmt"
	"sync"
	"syscall"

	"github.com/softnic/softnicd/internal/shm"
)

// process is a range of another process's memory.
type process struct {
	p    *shm.Process
	base uint64
	size uint64
}

// NewProcess makes a region of size bytes at base in the memory of p, which the caller keeps open until the region is
// closed. The range is refused if p may not itself read it, or write it where write is set: the error wraps EFAULT for
// what is not mapped, EACCES for what is protected. What p does to its memory later shows as a *Fault.
//
// Process memory stalls who touches it if its owner backs it by FUSE or userfaultfd: it is for processes of the device's
// own user, unless the operator allows others.
func NewProcess(p *shm.Process, base, size uint64, write bool) (Region, error) {
	if size > 0 && base > ^uint64(0)-(size-1) {
		return nil, fmt.Errorf("process region: %d bytes at %#x pass the end of the address space: %w", size, base, syscall.EINVAL)
	}
	if err := p.Check(base, size, write); err != nil {
		return nil, err
	}
	return &process{p, base, size}, nil
}

// processAtomics makes atomics on process memory atomic against each other. There is one lock for all of it because the
// same bytes can be reached through several registrations, and several processes.
var processAtomics sync.Mutex

// Size implements [Region].
func (r *process) Size() uint64 { return r.size }

// Bytes implements [wire.Memory]: a process's memory has no address here.
func (r *process) Bytes(uint64, int) []byte { return nil }

func (r *process) holds(off uint64, n int) bool {
	return uint64(n) <= r.size && off <= r.size-uint64(n)
}

// Read implements [wire.Memory].
func (r *process) Read(dst []byte, off uint64) error {
	if !r.holds(off, len(dst)) {
		return &Fault{Mem: r, Err: errBounds}
	}
	if n, err := r.p.Read(dst, r.base+off); err != nil {
		return &Fault{Mem: r, Addr: uintptr(r.base + off + uint64(n)), Err: err}
	}
	return nil
}

// Write implements [wire.Memory].
func (r *process) Write(src []byte, off uint64) error {
	if !r.holds(off, len(src)) {
		return &Fault{Mem: r, Err: errBounds}
	}
	if n, err := r.p.Write(src, r.base+off); err != nil {
		return &Fault{Mem: r, Addr: uintptr(r.base + off + uint64(n)), Err: err}
	}
	return nil
}

// Atomic implements [Region]. It is atomic against other atomics of this device, not against the processor: a
// read-modify-write under a lock.
func (r *process) Atomic(off uint64, op AtomicOp, operand, compare uint64) (uint64, error) {
	buf := bounces.Get().(*[bounced]byte) // on the stack it would escape into the system call
	defer bounces.Put(buf)
	b := buf[:8]
	processAtomics.Lock()
	defer processAtomics.Unlock()
	if err := r.Read(b, off); err != nil {
		return 0, err
	}
	old := binary.NativeEndian.Uint64(b)
	switch op {
	case CompareSwap:
		if old != compare {
			return old, nil
		}
	case FetchAdd:
		operand += old
	}
	binary.NativeEndian.PutUint64(b, operand)
	return old, r.Write(b, off)
}

// Close implements [Region]. The process itself stays open.
func (r *process) Close() error { return nil }
