package sim

import (
	"slices"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// sharedMemory is a word to which everybody who talks to an application adds. What each is given back tells the order
// in which they came; the additions are positive, so there is one order or none.
type sharedMemory struct {
	arena *arena
	area  *area
	mr    *nic.MR
	asked []*request
	first uint64
	lost  bool // the end of some request is not known
}

func newSharedMemory(a *application) *sharedMemory {
	s := &sharedMemory{arena: newArena(canary + areaSize(1, 0, 0))}
	s.area = s.arena.carve(a.dice, 1, 0, 0)
	s.first = nativeWord(s.area.mem)
	if err := s.arena.register(a.ctx, a.pd, s.area, ib.AccessLocalWrite|ib.AccessRemoteAtomic); err != nil {
		a.w.failf("%v", err)
	}
	s.mr = s.area.mr
	return s
}

func (s *sharedMemory) address() uint64 { return s.area.base }

// check asks whether the values returned and the one that is left come from adding in some order.
func (s *sharedMemory) check(a *application) {
	if at := s.arena.broken(); at >= 0 {
		a.w.failf("%s: byte %d beside the shared word was changed", a.name, at)
	}
	if s.lost {
		return // some additions may or may not have been made
	}
	sorted := slices.Clone(s.asked)
	slices.SortFunc(sorted, func(x, y *request) int {
		switch dx, dy := x.got-s.first, y.got-s.first; {
		case dx < dy:
			return -1
		case dx > dy:
			return 1
		}
		return 0
	})
	value := s.first
	for i, r := range sorted {
		if r.got != value {
			a.w.failf("%s: addition %d to the shared word returned %#x, it held %#x", a.name, i, r.got, value)
		}
		value += r.operand
	}
	if left := nativeWord(s.area.mem); left != value {
		a.w.failf("%s: the shared word holds %#x, %d additions make %#x", a.name, left, len(sorted), value)
	}
}
