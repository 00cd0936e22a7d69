package sim

import (
	"bytes"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// area is registered memory and what has to be in it. It begins with some words for atomics and is divided into slots,
// of which each belongs to one request at a time. So a slot that has no owner holds exactly what the model says, and what
// a request leaves can be judged the moment it completes, although others are under way. A slot that was given back is
// soon used again: a packet that comes too late and is believed spoils somebody's bytes.
type area struct {
	mem, model []byte
	base       uint64 // address of mem[0] in requests
	slots      []slot
	words      int
	mr         *nic.MR
	gone       bool // its application is dead: nobody writes it, and nothing is known of it
}

// slot is a part of an area.
type slot struct {
	area  *area
	off   int // in mem
	size  int
	owner any // *request or *receive; nil for none
}

// canary is the memory around each area that nobody has a right to.
const (
	canary     = 64
	canaryByte = 0xa5
)

// slack is the room in a slot beyond its longest message, for gaps between entries of a list.
const slack = 64

// arena is the memory of an endpoint: areas with canaries around.
type arena struct {
	mem    []byte
	region *faultyRegion
	areas  []*area
	at     int
}

func newArena(size int) *arena {
	m := &arena{mem: make([]byte, size)}
	for i := range m.mem {
		m.mem[i] = canaryByte
	}
	m.region = &faultyRegion{Region: dma.NewEmbedded(m.mem)}
	m.at = canary
	return m
}

// areaSize is what carve takes.
func areaSize(words, slots, slotBytes int) int {
	return 8*words + slots*roundUp(slotBytes+slack) + canary
}

func roundUp(n int) int { return (n + 7) &^ 7 }

// carve makes the next area.
func (m *arena) carve(d *dice, words, slots, slotBytes int) *area {
	size := roundUp(slotBytes + slack)
	n := 8*words + slots*size
	a := &area{mem: m.mem[m.at : m.at+n : m.at+n], model: make([]byte, n), words: words}
	a.base = a.newBase(d)
	d.fill(a.mem)
	copy(a.model, a.mem)
	for i := range slots {
		a.slots = append(a.slots, slot{area: a, off: 8*words + i*size, size: size})
	}
	m.at += n + canary
	m.areas = append(m.areas, a)
	return a
}

// newBase draws an address. They are the application's choice: its own, zero, or up to the very end of the address space.
func (a *area) newBase(d *dice) uint64 {
	switch d.below(8) {
	case 0:
		return 0
	case 1:
		return -uint64(len(a.mem))
	}
	return d.r.Uint64() >> 17 &^ 7
}

// register makes a memory region of an area.
func (m *arena) register(ctx *nic.Context, pd *nic.PD, a *area, access ib.AccessFlags) error {
	off := m.offset(a)
	mr, err := ctx.RegMR(pd, nic.MRConfig{Region: m.region, Offset: off, Base: a.base, Length: uint64(len(a.mem)), Access: access})
	a.mr = mr
	return err
}

// offset returns where an area begins.
func (m *arena) offset(a *area) (off uint64) {
	for _, other := range m.areas {
		off += canary
		if other == a {
			break
		}
		off += uint64(len(other.mem))
	}
	return off
}

// claim gives a slot that nobody owns to owner. There is always one: an area has more slots than requests that may be
// outstanding.
func (a *area) claim(d *dice, owner any) *slot {
	for i, n := d.below(len(a.slots)), 0; n < len(a.slots); i, n = (i+1)%len(a.slots), n+1 {
		if s := &a.slots[i]; s.owner == nil {
			s.owner = owner
			return s
		}
	}
	return nil
}

// free gives a slot back, if it is still owner's, and scribbles over it: its memory is the application's again.
func (s *slot) free(owner any) {
	if s == nil || s.owner != owner {
		return
	}
	s.owner = nil
	a := s.area
	if a.gone {
		return
	}
	for i := s.off; i < s.off+s.size; i += 5 {
		a.mem[i] ^= 0x5a
		a.model[i] = a.mem[i]
	}
}

// address is how requests name a place in the slot.
func (s *slot) address(at int) uint64 { return s.area.base + uint64(s.off+at) }

// write changes memory and model, as the owner of the memory does.
func (s *slot) write(at int, b []byte) {
	if !s.area.gone {
		copy(s.area.mem[s.off+at:], b)
	}
	s.expect(at, b)
}

// expect changes the model alone: that is what the device has to do.
func (s *slot) expect(at int, b []byte) { copy(s.area.model[s.off+at:s.off+s.size], b) }

// wrong returns the first place where the slot is not what it should be, -1 if there is none.
func (s *slot) wrong() int {
	return s.area.differs(s.off, s.off+s.size)
}

func (a *area) differs(from, to int) int {
	if a.gone || bytes.Equal(a.mem[from:to], a.model[from:to]) {
		return -1
	}
	for i := from; i < to; i++ {
		if a.mem[i] != a.model[i] {
			return i - from
		}
	}
	return -1
}

// list divides n bytes of the slot into at most max entries, with gaps between them and sometimes entries of no bytes.
// It returns nil for no bytes, sometimes.
func (s *slot) list(d *dice, n, max int) []ib.SGE {
	if n == 0 && d.chance(500) {
		return nil
	}
	count := d.between(1, max)
	list := make([]ib.SGE, 0, count)
	at, gaps := d.below(4), slack-8
	at = min(at, s.size-n)
	for i := range count {
		part := n
		if i < count-1 {
			part = d.below(n + 1)
		}
		if part == 0 {
			// Names nothing, so neither address nor key matter.
			list = append(list, ib.SGE{Addr: d.r.Uint64(), LKey: ib.LKey(d.r.Uint32())})
			continue
		}
		list = append(list, ib.SGE{Addr: s.address(at), Length: uint32(part), LKey: s.area.mr.LKey()})
		n -= part
		gap := d.below(min(gaps, 7) + 1)
		gaps -= gap
		at += part + gap
	}
	return list
}

// scatter calls f with each run of bytes that a list names in the slot, and what of data belongs there, until data is
// used up.
func (s *slot) scatter(list []ib.SGE, data []byte, f func(at int, b []byte)) {
	for _, e := range list {
		n := min(int(e.Length), len(data))
		if n == 0 {
			continue
		}
		f(int(e.Addr-s.area.base)-s.off, data[:n])
		data = data[n:]
	}
}

// broken looks for bytes outside of all areas that have changed, and returns the offset of the first.
func (m *arena) broken() int {
	at := 0
	for _, a := range append(m.areas, &area{}) {
		for i := range canary {
			if m.mem[at+i] != canaryByte {
				return at + i
			}
		}
		at += canary + len(a.mem)
		if at >= len(m.mem) {
			break
		}
	}
	return -1
}
