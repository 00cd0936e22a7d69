package control

import (
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/internal/shm"
)

// arena is memory of the application, mapped once. Rings and regions are places in it, so that ten thousand queue pairs
// cost the daemon a handful of mappings and no descriptor.
type arena struct {
	mem    []byte
	region dma.Region // all of mem
	mapped bool       // by us; embedded memory is the application's own
	users  int        // rings and regions placed in it
}

// place returns the n bytes at off. Rings are aligned to a cache line, which their words must not share with others.
func (a *arena) place(off, n uint64) ([]byte, error) {
	if off%abi.CacheLine != 0 {
		return nil, fmt.Errorf("offset %d in the arena is no multiple of %d: %w", off, abi.CacheLine, syscall.EINVAL)
	}
	if err := a.bounds(off, n); err != nil {
		return nil, err
	}
	return a.mem[off : off+n : off+n], nil
}

// bounds judges a place without sums that wrap.
func (a *arena) bounds(off, n uint64) error {
	if size := uint64(len(a.mem)); n > size || off > size-n {
		return fmt.Errorf("%d bytes at %d are outside of the arena of %d: %w", n, off, size, syscall.EINVAL)
	}
	return nil
}

func (a *arena) unmap() {
	if a.mapped {
		shm.Unmap(a.mem)
	}
}

func (s *Session) addArena(q *ctl.AddArena, in *attachments) (any, []ctl.Attachment, error) {
	if q.Size == 0 || q.Size > math.MaxInt64 {
		return nil, nil, fmt.Errorf("size %d: %w", q.Size, syscall.EINVAL)
	}
	if err := s.ctx.ChargeMemory(q.Size); err != nil {
		return nil, nil, err
	}
	a := new(arena)
	if err := s.mapAttached(&a.mem, in, q.Size); err != nil {
		s.ctx.ReleaseMemory(q.Size)
		return nil, nil, err
	}
	a.mapped = !s.peer.Embedded
	a.region = dma.NewShared(a.mem, nil)
	h := s.arenas.next()
	s.arenas.put(h, a)
	return &ctl.HandleReply{Handle: h}, nil, nil
}

// mapAttached maps size bytes of the attached memfd, or takes the attached memory of an embedded application. The
// descriptor is closed: a mapping needs none.
func (s *Session) mapAttached(mem *[]byte, in *attachments, size uint64) error {
	if s.peer.Embedded {
		b := in.take().Memory
		if uint64(len(b)) < size {
			return fmt.Errorf("the memory has %d bytes, not %d: %w", len(b), size, syscall.EINVAL)
		}
		*mem = b[:size:size]
		return nil
	}
	at := in.list[in.taken] // stays there, and is closed with the request
	b, err := shm.Map(at.FD, int(size))
	if err != nil {
		return err
	}
	*mem = b
	return nil
}

func (s *Session) removeArena(q *ctl.Handle) (any, error) {
	a, err := s.arenas.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if a.users > 0 {
		return nil, fmt.Errorf("arena %d holds %d rings and regions: %w", q.Handle, a.users, unix.EBUSY)
	}
	s.arenas.remove(q.Handle)
	s.dev.NIC.Grace() // whoever looked at something in it before it was destroyed has finished
	a.unmap()
	s.ctx.ReleaseMemory(uint64(len(a.mem)))
	return &ctl.Empty{}, nil
}
