// Package arena carves rings and buffers out of few large memories, so that ten thousand queue pairs cost a handful of
// mappings in the application and in the daemon.
//
// A [Set] grows by memories as large as everything it has already, which bounds their number by the logarithm of what is
// used. Memory that became free all at once is given back. A block is freed only after the daemon has confirmed that the
// object in it is destroyed, since only then may another have its place.
//
//	b, err := set.Alloc(layout.Size(), 64)
//	... b.Arena and b.Offset tell the daemon where, b.Mem is the memory ...
//	set.Free(b)
package arena

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"syscall"
)

// Source makes and takes back the memories of a Set. It is called with the set locked.
type Source interface {
	// Grow makes size bytes of zeroed memory, aligned to a page, and tells the daemon of it.
	Grow(size uint64) (handle uint32, mem []byte, err error)
	// Shrink takes back what Grow made.
	Shrink(handle uint32, mem []byte) error
}

// Sizes of a Set's memories. A single block larger than the maximum gets a memory of its own.
const (
	MinSize  = 256 << 10
	MaxSize  = 64 << 20
	pageSize = 4096
)

// Block is a piece of a memory.
type Block struct {
	Arena  uint32 // handle of the memory
	Offset uint64
	Mem    []byte
	// Used says that the bytes were handed out before, and are not zero any more.
	Used bool
}

// Set allocates from memories that it grows as needed. It is safe for concurrent use.
type Set struct {
	source Source
	mu     sync.Mutex
	arenas []*memory
	total  uint64
}

// memory is one of a set's memories: its free spans, sorted by offset, never touching each other.
type memory struct {
	handle uint32
	mem    []byte
	free   []span
	used   uint64 // everything below was handed out once
}

type span struct{ off, n uint64 }

// New makes a set without memories.
func New(source Source) *Set { return &Set{source: source} }

// Alloc returns n bytes at an offset aligned to align, a power of two.
func (s *Set) Alloc(n, align uint64) (Block, error) {
	if n == 0 || n > math.MaxInt64/4 {
		return Block{}, fmt.Errorf("%d bytes of shared memory: %w", n, syscall.ENOMEM)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.arenas {
		if b, ok := m.alloc(n, align); ok {
			return b, nil
		}
	}
	need := (n + pageSize - 1) / pageSize * pageSize
	size := max(need, min(max(s.total, MinSize), MaxSize))
	handle, mem, err := s.source.Grow(size)
	if err != nil && size > need {
		// A quota may have room for what is needed, if not for what would be convenient.
		size = need
		handle, mem, err = s.source.Grow(size)
	}
	if err != nil {
		return Block{}, err
	}
	m := &memory{handle: handle, mem: mem, free: []span{{0, size}}}
	s.arenas = append(s.arenas, m)
	s.total += size
	b, _ := m.alloc(n, align)
	return b, nil
}

// Free takes a block back. A memory that is free as a whole is given back, except for a small one, so that making and
// destroying a single object does not map and unmap each time. The error is that of giving back.
func (s *Set) Free(b Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.arenas, func(m *memory) bool { return m.handle == b.Arena })
	if i < 0 {
		return nil
	}
	m := s.arenas[i]
	m.release(span{b.Offset, uint64(len(b.Mem))})
	if !m.empty() {
		return nil
	}
	spare := slices.ContainsFunc(s.arenas, func(o *memory) bool { return o != m && o.empty() })
	if !spare && len(m.mem) <= MinSize {
		return nil
	}
	return s.drop(i)
}

// drop gives back the memory at i of the list.
func (s *Set) drop(i int) error {
	m := s.arenas[i]
	s.arenas = slices.Delete(s.arenas, i, i+1)
	s.total -= uint64(len(m.mem))
	return s.source.Shrink(m.handle, m.mem)
}

// Find returns the place of mem if it lies wholly in one of the set's memories. address tells where a slice begins.
func (s *Set) Find(mem []byte, address func([]byte) uintptr) (b Block, ok bool) {
	if len(mem) == 0 {
		return Block{}, false
	}
	at := address(mem)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.arenas {
		off := at - address(m.mem) // wraps to something large if before
		if off < uintptr(len(m.mem)) && uintptr(len(mem)) <= uintptr(len(m.mem))-off {
			return Block{Arena: m.handle, Offset: uint64(off), Mem: mem}, true
		}
	}
	return Block{}, false
}

// Memories calls f for every memory and forgets them all: the daemon is gone, or has been told.
func (s *Set) Memories(f func(mem []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.arenas {
		f(m.mem)
	}
	s.arenas, s.total = nil, 0
}

// Len returns how many memories there are.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.arenas)
}

// alloc takes the first span that fits.
func (m *memory) alloc(n, align uint64) (Block, bool) {
	for i, f := range m.free {
		skip := -f.off & (align - 1)
		if skip > f.n || n > f.n-skip {
			continue
		}
		off := f.off + skip
		rest := span{off + n, f.n - skip - n}
		switch {
		case skip > 0 && rest.n > 0:
			m.free[i] = span{f.off, skip}
			m.free = slices.Insert(m.free, i+1, rest)
		case skip > 0:
			m.free[i] = span{f.off, skip}
		case rest.n > 0:
			m.free[i] = rest
		default:
			m.free = slices.Delete(m.free, i, i+1)
		}
		b := Block{Arena: m.handle, Offset: off, Mem: m.mem[off : off+n : off+n], Used: off < m.used}
		m.used = max(m.used, off+n)
		return b, true
	}
	return Block{}, false
}

// release puts a span back and joins it with its neighbours.
func (m *memory) release(v span) {
	i, _ := slices.BinarySearchFunc(m.free, v.off, func(f span, off uint64) int {
		if f.off < off {
			return -1
		}
		return 1
	})
	m.free = slices.Insert(m.free, i, v)
	if i+1 < len(m.free) && v.off+v.n == m.free[i+1].off {
		m.free[i].n += m.free[i+1].n
		m.free = slices.Delete(m.free, i+1, i+2)
	}
	if i > 0 && m.free[i-1].off+m.free[i-1].n == v.off {
		m.free[i-1].n += m.free[i].n
		m.free = slices.Delete(m.free, i, i+1)
	}
}

func (m *memory) empty() bool { return len(m.free) == 1 && m.free[0].n == uint64(len(m.mem)) }
