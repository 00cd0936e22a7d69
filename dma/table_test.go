package dma

import (
	"errors"
	"math/big"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/softnic/softnicd/ib"
)

// vast is a region of any size that is never touched.
type vast struct {
	Region
	size uint64
}

func (v vast) Size() uint64 { return v.size }

const top = ^uint64(0)

func insert(t testing.TB, tab *Table, mr *MR) *MR {
	t.Helper()
	if err := tab.Insert(mr); err != nil {
		t.Fatal(err)
	}
	return mr
}

func TestVerdicts(t *testing.T) {
	tab := NewTable(16, seeded())
	pd, other := &Domain{Handle: 1}, &Domain{Handle: 2}
	rw := ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead
	low := insert(t, tab, &MR{Domain: pd, Region: vast{size: 4096}, Offset: 96, Base: 0, Length: 4000, Access: rw})
	mid := insert(t, tab, &MR{Domain: pd, Region: vast{size: 4096}, Base: 0x10000, Length: 4096, Access: rw})
	end := insert(t, tab, &MR{Domain: pd, Region: vast{size: 4096}, Base: top - 4095, Length: 4096, Access: rw})
	all := insert(t, tab, &MR{Domain: pd, Region: vast{size: top}, Base: 0, Length: top, Access: rw})
	none := insert(t, tab, &MR{Domain: pd, Region: vast{size: 0}, Base: 0x10000, Length: 0, Access: rw})
	read := insert(t, tab, &MR{Domain: pd, Region: vast{size: 4096}, Base: 0x10000, Length: 4096, Access: ib.AccessRemoteRead})
	gone := insert(t, tab, &MR{Domain: pd, Region: vast{size: 4096}, Base: 0x10000, Length: 4096, Access: rw})
	tab.Remove(gone)

	const w, r, a = ib.AccessRemoteWrite, ib.AccessRemoteRead, ib.AccessRemoteAtomic
	for _, c := range []struct {
		name  string
		d     *Domain
		key   ib.RKey
		va, n uint64
		need  ib.AccessFlags
		want  Verdict
		off   uint64
	}{
		{"whole", pd, mid.RKey, 0x10000, 4096, w, OK, 0},
		{"first byte", pd, mid.RKey, 0x10000, 1, w, OK, 0},
		{"last byte", pd, mid.RKey, 0x10fff, 1, w, OK, 4095},
		{"nothing at the end", pd, mid.RKey, 0x11000, 0, w, OK, 4096},
		{"nothing past the end", pd, mid.RKey, 0x11001, 0, w, BadRange, 0},
		{"one past the end", pd, mid.RKey, 0x10001, 4096, w, BadRange, 0},
		{"too long", pd, mid.RKey, 0x10000, 4097, w, BadRange, 0},
		{"before", pd, mid.RKey, 0xffff, 1, w, BadRange, 0},
		{"sum wraps to 0", pd, mid.RKey, 0x10000, top - 0xffff, w, BadRange, 0},
		{"longest", pd, mid.RKey, 0x10000, top, w, BadRange, 0},
		{"highest address", pd, mid.RKey, top, 1, w, BadRange, 0},
		{"address 0", pd, mid.RKey, 0, 4096, w, BadRange, 0},

		{"zero-based, whole", pd, low.RKey, 0, 4000, w, OK, 96},
		{"zero-based, last", pd, low.RKey, 3999, 1, w, OK, 96 + 3999},
		{"zero-based, beyond", pd, low.RKey, 4000, 1, w, BadRange, 0},
		{"zero-based, highest address", pd, low.RKey, top, 1, w, BadRange, 0},
		{"zero-based, sum wraps into it", pd, low.RKey, top, 2, w, BadRange, 0},

		{"last page, whole", pd, end.RKey, top - 4095, 4096, w, OK, 0},
		{"last page, last byte", pd, end.RKey, top, 1, w, OK, 4095},
		{"last page, wraps", pd, end.RKey, top, 2, w, BadRange, 0},
		{"last page, address 0", pd, end.RKey, 0, 1, w, BadRange, 0},
		{"last page, nothing at address 0", pd, end.RKey, 0, 0, w, BadRange, 0},
		{"last page, before", pd, end.RKey, top - 4096, 1, w, BadRange, 0},

		{"all memory", pd, all.RKey, 0, top, w, OK, 0},
		{"all memory, last but one", pd, all.RKey, top - 1, 1, w, OK, top - 1},
		{"all memory, last", pd, all.RKey, top, 1, w, BadRange, 0},

		{"empty region", pd, none.RKey, 0x10000, 0, w, OK, 0},
		{"empty region, a byte", pd, none.RKey, 0x10000, 1, w, BadRange, 0},

		{"read of readable", pd, read.RKey, 0x10000, 1, r, OK, 0},
		{"write of readable", pd, read.RKey, 0x10000, 1, w, BadAccess, 0},
		{"one right of two", pd, read.RKey, 0x10000, 1, r | w, BadAccess, 0},
		{"atomic", pd, mid.RKey, 0x10000, 8, a, BadAccess, 0},
		{"right before range", pd, read.RKey, 0, 1, w, BadAccess, 0},

		{"foreign domain", other, mid.RKey, 0x10000, 1, w, BadDomain, 0},
		{"domain before right", other, read.RKey, 0, 1, w, BadDomain, 0},
		{"no domain", nil, mid.RKey, 0x10000, 1, w, BadDomain, 0},

		{"removed", pd, gone.RKey, 0x10000, 1, w, BadKey, 0},
		{"variant", pd, mid.RKey + 1, 0x10000, 1, w, BadKey, 0},
		{"neighbour", pd, mid.RKey + 0x100, 0x10000, 1, w, BadKey, 0},
		{"zero", pd, 0, 0x10000, 1, w, BadKey, 0},
		{"ones", pd, 0xffffffff, 0x10000, 1, w, BadKey, 0},
	} {
		s, v := tab.Remote(c.d, 1, c.key, c.va, c.n, c.need)
		if v != c.want || v == OK && (s.Off != c.off || s.Len != c.n) || v != OK && s != (Span{}) {
			t.Errorf("%s: %v, offset %d, length %d; want %v, offset %d", c.name, v, s.Off, s.Len, c.want, c.off)
		}
	}

	if _, v := tab.Local(pd, ib.SGE{Addr: 0x10000, Length: 4096, LKey: read.LKey}, 0); v != OK {
		t.Errorf("local reading needs no right, got %v", v)
	}
	if _, v := tab.Local(pd, ib.SGE{Addr: 0x10000, Length: 1, LKey: read.LKey}, ib.AccessLocalWrite); v != BadAccess {
		t.Errorf("local writing without the right: %v", v)
	}
}

func TestRangesAgainstBigIntegers(t *testing.T) {
	edge := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Range(top-40, top), rapid.Uint64Range(1<<63-5, 1<<63+5), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		base, length := edge.Draw(t, "base"), edge.Draw(t, "length")
		va, n := edge.Draw(t, "va"), edge.Draw(t, "n")
		tab := NewTable(1, seeded())
		pd := new(Domain)
		mr := &MR{Domain: pd, Region: vast{size: length}, Base: base, Length: length}
		num := func(x uint64) *big.Int { return new(big.Int).SetUint64(x) }
		end := new(big.Int).Add(num(base), num(length))
		err := tab.Insert(mr)
		if wraps := end.Cmp(new(big.Int).Lsh(big.NewInt(1), 64)) > 0; wraps != (err != nil) {
			t.Fatalf("insert: %v", err)
		}
		if err != nil {
			return
		}
		inside := num(va).Cmp(num(base)) >= 0 && new(big.Int).Add(num(va), num(n)).Cmp(end) <= 0
		s, v := tab.Remote(pd, 1, mr.RKey, va, n, 0)
		if (v == OK) != inside {
			t.Fatalf("%v, want inside %v", v, inside)
		}
		if v == OK && s.Off != va-base {
			t.Fatalf("offset %d", s.Off)
		}
	})
}

func TestInsertRefuses(t *testing.T) {
	tab := NewTable(2, seeded())
	for _, c := range []struct {
		name                       string
		size, offset, base, length uint64
	}{
		{"longer than the region", 4096, 0, 0, 4097},
		{"ends outside the region", 4096, 1, 0, 4096},
		{"offset and length wrap", 4096, top, 0, 2},
		{"passes the end of the address space", 4096, 0, top - 4094, 4096},
	} {
		if err := tab.Insert(&MR{Region: vast{size: c.size}, Offset: c.offset, Base: c.base, Length: c.length}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	a := insert(t, tab, &MR{Region: vast{}})
	if err := tab.Insert(a); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("twice: %v", err)
	}
	b := insert(t, tab, &MR{Region: vast{}})
	if err := tab.Insert(&MR{Region: vast{}}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("full: %v", err)
	}
	tab.Remove(b)
	tab.Remove(b)
	tab.Remove(&MR{})
	if tab.Len() != 1 {
		t.Errorf("%d live", tab.Len())
	}
	insert(t, tab, &MR{Region: vast{}})
	if _, v := tab.Remote(nil, 1, a.RKey, 0, 0, 0); v != OK {
		t.Errorf("removing others removed a: %v", v)
	}
}

// A freed key stays unused for long even when only one slot's worth of the capacity is not taken.
func TestQuarantine(t *testing.T) {
	for _, capacity := range []int{1, 4096} {
		tab := NewTable(capacity, seeded())
		seen := make(map[ib.RKey]bool)
		for range capacity - 1 {
			seen[insert(t, tab, &MR{Region: vast{}}).RKey] = true
		}
		for i := range 70_000 {
			mr := insert(t, tab, &MR{Region: vast{}})
			if seen[mr.RKey] {
				t.Fatalf("capacity %d: key repeats after %d frees", capacity, i)
			}
			if mr.RKey == 0 || mr.RKey&0xff != 0 || uint32(mr.RKey) != uint32(mr.LKey) {
				t.Fatalf("key %#x, %#x", mr.RKey, mr.LKey)
			}
			seen[mr.RKey] = true
			tab.Remove(mr)
		}
	}
}

// Keys of different seeds have nothing to do with each other, and those of one table do not follow a step.
func TestKeysAreUnpredictable(t *testing.T) {
	tab := NewTable(1<<15, seeded())
	steps := make(map[uint32]int)
	var bits [24]int
	var last uint32
	const n = 1 << 15
	for range n {
		key := uint32(insert(t, tab, &MR{Region: vast{}}).RKey) >> 8
		steps[(key-last)&0xffffff]++
		for b := range bits {
			bits[b] += int(key >> b & 1)
		}
		last = key
	}
	for step, count := range steps {
		if count > 4 {
			t.Errorf("step %#x occurs %d times", step, count)
		}
	}
	for b, count := range bits {
		if count < n*48/100 || count > n*52/100 {
			t.Errorf("bit %d is set in %d of %d keys", b, count, n)
		}
	}
}

func TestPermutationInverts(t *testing.T) {
	p := newPermutation(seeded())
	for v := uint32(0); v < 1<<keyBits; v += 17 {
		if w := p.forward(v); w >= 1<<keyBits || p.inverse(w) != v {
			t.Fatalf("%#x -> %#x -> %#x", v, w, p.inverse(w))
		}
	}
}

// The key 0 is left out.
func TestNoKeyIsZero(t *testing.T) {
	tab := NewTable(100, seeded())
	v := tab.perm.inverse(0)
	slot := v & (1<<tab.slotBits - 1)
	tab.gens[slot] = v >> tab.slotBits
	if key := tab.nextKey(slot); key == 0 || tab.slot(key) != slot {
		t.Errorf("key %#x", key)
	}
}

// The largest table has two generations to a slot.
func TestLargestTable(t *testing.T) {
	if raceEnabled || testing.Short() {
		t.Skip("it takes 128 MiB")
	}
	tab := NewTable(1<<30, seeded())
	if tab.capacity != MaxCapacity {
		t.Fatal(tab.capacity)
	}
	for range 1000 {
		tab.Remove(insert(t, tab, &MR{Region: vast{}}))
	}
}

// Shards look up while control goroutines insert and remove: a key finds its own region or none.
func TestConcurrentLookup(t *testing.T) {
	tab := NewTable(64, seeded())
	stop := make(chan struct{})
	keys := make(chan *MR, 64)
	var control, shards sync.WaitGroup
	for range 2 {
		control.Go(func() {
			for i := range 5000 {
				mr := &MR{Domain: new(Domain), Region: vast{size: 1}, Length: 1, Base: uint64(i)}
				if err := tab.Insert(mr); err != nil {
					t.Error(err)
					return
				}
				if s, v := tab.Remote(mr.Domain, 1, mr.RKey, uint64(i), 1, 0); v != OK || s.Len != 1 {
					t.Errorf("own key: %v", v)
				}
				select {
				case keys <- mr:
				default:
				}
				tab.Remove(mr)
				if _, v := tab.Remote(mr.Domain, 1, mr.RKey, uint64(i), 1, 0); v != BadKey {
					t.Errorf("removed key: %v", v)
				}
			}
		})
		shards.Go(func() {
			for {
				select {
				case mr := <-keys:
					if _, v := tab.Remote(mr.Domain, 1, mr.RKey, mr.Base, 1, 0); v != OK && v != BadKey {
						t.Errorf("verdict %v", v)
					}
				case <-stop:
					return
				}
			}
		})
	}
	control.Wait()
	close(stop)
	shards.Wait()
}
