package arena

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"
)

// heap is a source of heap memory that knows what it gave.
type heap struct {
	next  uint32
	live  map[uint32]int
	grown int
	limit uint64 // most bytes of one memory; 0: any
}

func (h *heap) Grow(size uint64) (uint32, []byte, error) {
	if h.limit != 0 && size > h.limit {
		return 0, nil, syscall.EDQUOT
	}
	h.next++
	h.grown++
	h.live[h.next] = int(size)
	return h.next, make([]byte, size), nil
}

func (h *heap) Shrink(handle uint32, mem []byte) error {
	if h.live[handle] != len(mem) {
		return errors.New("this is not what was given")
	}
	delete(h.live, handle)
	return nil
}

func newHeap() *heap { return &heap{live: map[uint32]int{}} }

// Random allocations never overlap, are aligned and inside; and when all are freed one small memory is left.
func TestRandom(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := newHeap()
		s := New(h)
		var live []Block
		for i := range 2000 {
			if len(live) > 0 && (r.IntN(5) < 2 || i > 1700) {
				k := r.IntN(len(live))
				for _, v := range live[k].Mem {
					if v != live[k].Mem[0] {
						t.Fatalf("seed %d: somebody else wrote into a block", seed)
					}
				}
				if err := s.Free(live[k]); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				live[k] = live[len(live)-1]
				live = live[:len(live)-1]
				continue
			}
			align := uint64(64)
			if r.IntN(4) == 0 {
				align = 4096
			}
			n := uint64(1 + r.IntN(1<<(1+r.IntN(15))))
			b, err := s.Alloc(n, align)
			if err != nil {
				t.Fatal(err)
			}
			if uint64(len(b.Mem)) != n || b.Offset%align != 0 || b.Offset+n > uint64(h.live[b.Arena]) {
				t.Fatalf("seed %d: block %d+%d of %d", seed, b.Offset, n, h.live[b.Arena])
			}
			if !b.Used {
				for _, v := range b.Mem {
					if v != 0 {
						t.Fatalf("seed %d: a new block is not zero", seed)
					}
				}
			}
			mark := byte(1 + r.IntN(255))
			for i := range b.Mem {
				b.Mem[i] = mark
			}
			live = append(live, b)
		}
		for _, b := range live {
			s.Free(b)
		}
		if len(h.live) != 1 || s.Len() != 1 || !s.arenas[0].empty() {
			t.Fatalf("seed %d: %v is left", seed, h.live)
		}
	}
}

// Ten thousand queue pairs of ordinary size need few memories.
func TestFewMemories(t *testing.T) {
	h := newHeap()
	s := New(h)
	for range 10000 {
		if _, err := s.Alloc(256+128*64+128*32, 64); err != nil {
			t.Fatal(err)
		}
	}
	if s.Len() > 14 {
		t.Errorf("%d memories", s.Len())
	}
}

func TestLarge(t *testing.T) {
	h := newHeap()
	s := New(h)
	b, err := s.Alloc(3*MaxSize+1, 4096)
	if err != nil || h.live[b.Arena] != 3*MaxSize+4096 {
		t.Fatalf("a large block: %v, memory of %d", err, h.live[b.Arena])
	}
	if err := s.Free(b); err != nil || len(h.live) != 0 {
		t.Fatalf("a large memory stays: %v %v", err, h.live)
	}
	if _, err := s.Alloc(0, 64); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("0 bytes: %v", err)
	}
	if _, err := s.Alloc(1<<63, 64); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("2^63 bytes: %v", err)
	}
}

// Where the comfortable size is refused, the necessary one is tried.
func TestQuota(t *testing.T) {
	h := newHeap()
	h.limit = 8192
	s := New(h)
	if b, err := s.Alloc(5000, 64); err != nil || h.live[b.Arena] != 8192 {
		t.Fatalf("within the quota: %v", err)
	}
	if _, err := s.Alloc(9000, 64); !errors.Is(err, syscall.EDQUOT) {
		t.Fatalf("over the quota: %v", err)
	}
}

func TestFind(t *testing.T) {
	address := func(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }
	s := New(newHeap())
	b, _ := s.Alloc(1000, 64)
	s.Alloc(MinSize, 64)
	if f, ok := s.Find(b.Mem[10:20], address); !ok || f.Arena != b.Arena || f.Offset != b.Offset+10 {
		t.Errorf("found %+v, %v", f, ok)
	}
	if _, ok := s.Find(make([]byte, 10), address); ok {
		t.Error("found memory of somebody else")
	}
	if _, ok := s.Find(nil, address); ok {
		t.Error("found nothing")
	}
}
