package dma

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/wire"
)

// Part is a run of bytes of some region.
type Part struct {
	Region Region
	Off    uint64
	Len    uint64
}

// composite is regions one after another.
type composite struct {
	parts []joint
	size  uint64
	last  atomic.Uint32 // the part that was found last: most accesses stay in one
}

// joint is a part and where it lies in the composite.
type joint struct {
	Part
	begin, end uint64
}

// NewComposite makes a region of parts of others, in order and without gaps: what a program registers as one may be in
// part memory that it shares with the device, and in part memory of its own. An access across a border is split there, but
// for atomics: the error is then a *Fault.
//
// The error wraps EINVAL when a part is empty or not within its region, or when all are longer than 2^64-1. The regions
// stay the caller's, who closes them after the composite.
func NewComposite(parts ...Part) (Region, error) {
	c := &composite{parts: make([]joint, 0, len(parts))}
	for i, p := range parts {
		if size := p.Region.Size(); p.Len == 0 || p.Len > size || p.Off > size-p.Len {
			return nil, fmt.Errorf("part %d: %d bytes at %d of a region of %d: %w", i, p.Len, p.Off, size, syscall.EINVAL)
		}
		if p.Len > ^uint64(0)-c.size {
			return nil, fmt.Errorf("part %d: all parts together pass the end of the address space: %w", i, syscall.EINVAL)
		}
		c.parts = append(c.parts, joint{p, c.size, c.size + p.Len})
		c.size += p.Len
	}
	return c, nil
}

// Size implements [Region].
func (c *composite) Size() uint64 { return c.size }

// at returns the part that has the byte at off, nil past the end.
func (c *composite) at(off uint64) *joint {
	if i := int(c.last.Load()); i < len(c.parts) {
		if j := &c.parts[i]; off >= j.begin && off < j.end {
			return j
		}
	}
	low, high := 0, len(c.parts)
	for low < high {
		if mid := (low + high) / 2; off >= c.parts[mid].end {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(c.parts) {
		return nil
	}
	c.last.Store(uint32(low))
	return &c.parts[low]
}

func (c *composite) holds(off uint64, n int) bool {
	return n >= 0 && uint64(n) <= c.size && off <= c.size-uint64(n)
}

// Bytes implements [wire.Memory]: where a range crosses a border its bytes are not one slice.
func (c *composite) Bytes(off uint64, n int) []byte {
	if !c.holds(off, n) {
		return nil
	}
	j := c.at(off)
	if j == nil || uint64(n) > j.end-off {
		return nil
	}
	return j.Region.Bytes(j.Off+(off-j.begin), n)
}

// split returns the part at off, the offset in its region, and how many of n bytes lie in it. The bytes are the
// composite's.
func (c *composite) split(off uint64, n int) (r Region, at uint64, here int) {
	j := c.at(off)
	return j.Region, j.Off + (off - j.begin), int(min(uint64(n), j.end-off))
}

// Read implements [wire.Memory].
func (c *composite) Read(dst []byte, off uint64) error {
	if !c.holds(off, len(dst)) {
		return &Fault{Mem: c, Err: errBounds}
	}
	for len(dst) > 0 {
		r, at, n := c.split(off, len(dst))
		if err := r.Read(dst[:n], at); err != nil {
			return c.blame(err)
		}
		dst, off = dst[n:], off+uint64(n)
	}
	return nil
}

// Write implements [wire.Memory].
func (c *composite) Write(src []byte, off uint64) error {
	if !c.holds(off, len(src)) {
		return &Fault{Mem: c, Err: errBounds}
	}
	for len(src) > 0 {
		r, at, n := c.split(off, len(src))
		if err := r.Write(src[:n], at); err != nil {
			return c.blame(err)
		}
		src, off = src[n:], off+uint64(n)
	}
	return nil
}

// Atomic implements [Region].
func (c *composite) Atomic(off uint64, op AtomicOp, operand, compare uint64) (uint64, error) {
	if !c.holds(off, 8) {
		return 0, &Fault{Mem: c, Err: errBounds}
	}
	r, at, n := c.split(off, 8)
	if n < 8 {
		return 0, &Fault{Mem: c, Err: errMisplaced}
	}
	old, err := r.Atomic(at, op, operand, compare)
	if err != nil {
		return old, c.blame(err)
	}
	return old, nil
}

// Close implements [Region]. The parts stay open.
func (c *composite) Close() error { return nil }

// blame makes the fault of a part one of the whole, by which requests know it.
func (c *composite) blame(err error) error {
	if f := (*Fault)(nil); errors.As(err, &f) {
		return &Fault{Mem: c, Addr: f.Addr, Err: f.Err}
	}
	return err
}

// place is memory that one step of a copy touches, and the memory that its owner registered, to which faults are charged.
type place struct {
	mem    wire.Memory
	off    uint64
	charge wire.Memory
}

// placeOf returns the place at off of m, and how many of the n bytes from there on lie in it.
func placeOf(m wire.Memory, off uint64, n int) (place, int) {
	if c, ok := m.(*composite); ok && c.holds(off, n) {
		r, at, here := c.split(off, n)
		return place{r, at, m}, here
	}
	return place{m, off, m}, n
}
