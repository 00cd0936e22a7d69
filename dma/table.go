package dma

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// Domain is a protection domain: keys work only for queue pairs of the same domain.
type Domain struct {
	// Handle is the owner's name for it, in messages.
	Handle uint32
}

// Verdict is why a key may not be used; OK if it may.
type Verdict uint8

// Verdicts, in the order of the questions.
const (
	OK        Verdict = iota
	BadKey            // no such key, or its region is gone or invalidated
	BadDomain         // another protection domain, or a window of another queue pair
	BadAccess         // the right is missing
	BadRange          // outside the region
	BadState          // a window that is bound and should not be, or the other way round
)

func (v Verdict) String() string {
	switch v {
	case OK:
		return "ok"
	case BadKey:
		return "no such key"
	case BadDomain:
		return "key of another protection domain"
	case BadAccess:
		return "the right is missing"
	case BadRange:
		return "outside the region"
	case BadState:
		return "the window's state does not allow it"
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Span is judged memory: Len bytes at Off of Mem. The zero Span is no memory, for lengths of zero.
type Span struct {
	Mem Region
	Off uint64
	Len uint64
}

// MR is a memory region: registered, keyed, in a domain.
type MR struct {
	Domain *Domain
	Region Region
	// Offset is where the registration begins in Region.
	Offset uint64
	// Base is the address by which requests name the first byte: the application's virtual address, another one it
	// chose (iova), or 0 for zero-based regions.
	Base   uint64
	Length uint64
	Access ib.AccessFlags
	// LKey and RKey are set by Table.Insert: unpredictable, low 8 bits zero.
	LKey ib.LKey
	RKey ib.RKey

	windows int // bound to it; guarded by Table.mu
}

// Table finds memory by key. Any number of shards look keys up, without a lock, while control goroutines insert and
// remove.
//
// A key is 24 bits of the device and 8 bits of variant. The device's part is a keyed permutation of slot and generation,
// so that it is unpredictable outside and an index inside. There are at least twice as many slots as entries; they are
// reused in the order in which they became free, and each use steps the slot's generation. A freed key therefore comes
// back after at least 2^23 other keys, whatever is live: that is the quarantine.
type Table struct {
	perm     permutation
	slots    []atomic.Pointer[entry]
	slotBits uint
	memo     memo

	mu       sync.Mutex
	capacity int
	live     int
	gens     []uint32 // generation of the next use of a slot
	free     []uint32 // ring of free slots, oldest first
	first    int
	frees    int
}

// entry is what a key names: a region or a window. It is never changed once it is published.
type entry struct {
	key    uint32 // of a window: what the table gave it
	mr     *MR
	window *Window
}

// MaxCapacity is the largest capacity of a [Table].
const MaxCapacity = 1 << (keyBits - 2)

// NewTable makes a table for so many live keys, at most [MaxCapacity]. random is a source of unpredictable numbers, used
// only here.
func NewTable(capacity int, random func() uint64) *Table {
	capacity = min(max(capacity, 1), MaxCapacity)
	slotBits := uint(bits.Len(uint(2*capacity - 1)))
	n := 1 << slotBits
	t := &Table{
		perm:     newPermutation(random),
		slots:    make([]atomic.Pointer[entry], n),
		slotBits: slotBits,
		capacity: capacity,
		gens:     make([]uint32, n),
		free:     make([]uint32, n),
		frees:    n,
	}
	// Slots in random order with random generations: even who breaks the permutation cannot tell what comes next.
	for i := range t.free {
		t.gens[i] = uint32(random()) & t.genMask()
		j := int(random() % uint64(i+1))
		t.free[i] = t.free[j]
		t.free[j] = uint32(i)
	}
	return t
}

func (t *Table) genMask() uint32 { return 1<<(keyBits-t.slotBits) - 1 }

// Insert gives mr its keys, which are equal as on hardware, and publishes it. The error wraps ENOMEM when the table is
// full, EINVAL when the registration is not within its region or wraps around the end of the address space, EEXIST when
// mr is in the table already.
func (t *Table) Insert(mr *MR) error {
	if err := mr.check(); err != nil {
		return fmt.Errorf("register memory: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(uint32(mr.RKey)); e != nil && e.mr == mr {
		return fmt.Errorf("register memory: region is registered already: %w", syscall.EEXIST)
	}
	slot, key, err := t.takeSlot()
	if err != nil {
		return fmt.Errorf("register memory: %w", err)
	}
	mr.LKey, mr.RKey = ib.LKey(key), ib.RKey(key)
	t.slots[slot].Store(&entry{key: key, mr: mr})
	return nil
}

// takeSlot takes the slot that has been free for longest, and makes its key.
func (t *Table) takeSlot() (slot, key uint32, err error) {
	if t.live == t.capacity {
		return 0, 0, fmt.Errorf("all %d keys are in use: %w", t.capacity, syscall.ENOMEM)
	}
	slot = t.free[t.first]
	t.first = (t.first + 1) & (len(t.free) - 1)
	t.frees--
	t.live++
	return slot, t.nextKey(slot), nil
}

func (t *Table) freeSlot(slot uint32) {
	t.slots[slot].Store(nil)
	t.free[(t.first+t.frees)&(len(t.free)-1)] = slot
	t.frees++
	t.live--
}

// nextKey makes the key of the slot's next use and steps its generation. Zero is left out: programs take it for "none".
func (t *Table) nextKey(slot uint32) uint32 {
	for {
		v := t.gens[slot]<<t.slotBits | slot
		t.gens[slot] = (t.gens[slot] + 1) & t.genMask()
		if key := t.perm.forward(v) << 8; key != 0 {
			return key
		}
	}
}

// check judges where the region lies.
func (mr *MR) check() error {
	if size := mr.Region.Size(); mr.Length > size || mr.Offset > size-mr.Length {
		return fmt.Errorf("%d bytes at %d of a region of %d: %w", mr.Length, mr.Offset, size, syscall.EINVAL)
	}
	if mr.Length > 0 && mr.Base > ^uint64(0)-(mr.Length-1) {
		return fmt.Errorf("%d bytes at %#x pass the end of the address space: %w", mr.Length, mr.Base, syscall.EINVAL)
	}
	return nil
}

// Replace puts mr in the place of old, under the keys that old had. The error wraps EBUSY while windows are bound to old,
// EINVAL when mr is not within its region or old is not in the table; old then stays as it was. Who found old before may
// use it until every shard passes a grace point.
func (t *Table) Replace(old, mr *MR) error {
	if err := mr.check(); err != nil {
		return fmt.Errorf("register memory again: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(uint32(old.RKey))
	if e == nil || e.mr != old {
		return fmt.Errorf("register memory again: region is not registered: %w", syscall.EINVAL)
	}
	if old.windows > 0 {
		return fmt.Errorf("register memory again: %w", errBound(old))
	}
	mr.LKey, mr.RKey, mr.windows = old.LKey, old.RKey, 0
	t.slots[t.slot(e.key)].Store(&entry{key: e.key, mr: mr})
	return nil
}

// Remove unpublishes mr; once more does nothing. The error wraps EBUSY while windows are bound to mr, which then stays
// (IBA 10.6.7.2.6). Shards that found it before may use it until they pass a grace point, so the caller waits for that
// before it closes the region.
func (t *Table) Remove(mr *MR) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(uint32(mr.RKey))
	if e == nil || e.mr != mr {
		return nil
	}
	if mr.windows > 0 {
		return errBound(mr)
	}
	t.freeSlot(t.slot(e.key))
	return nil
}

// Len returns how many keys are live.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// Local judges an entry of a scatter/gather list. Local reading is always allowed: need is 0 for it, AccessLocalWrite
// for writing. The key of a window is none here.
func (t *Table) Local(d *Domain, e ib.SGE, need ib.AccessFlags) (Span, Verdict) {
	en := t.find(uint32(e.LKey))
	if en == nil || en.mr == nil {
		return Span{}, BadKey
	}
	return en.mr.judge(d, e.Addr, uint64(e.Length), need)
}

// Remote judges the n bytes at va that the peer of queue pair qpn named by the key of a region or window. An engine does
// not ask for a length of zero, which names no memory (IBA C9-88).
func (t *Table) Remote(d *Domain, qpn ib.QPN, key ib.RKey, va, n uint64, need ib.AccessFlags) (Span, Verdict) {
	e := t.slots[t.slot(uint32(key))].Load()
	switch {
	case e == nil:
		return Span{}, BadKey
	case e.window != nil:
		return e.window.judge(d, qpn, uint32(key), va, n, need)
	case e.key != uint32(key):
		return Span{}, BadKey
	}
	return e.mr.judge(d, va, n, need)
}

// Usable judges a key as Remote does, for who means all the memory that it names and not a range of it.
func (t *Table) Usable(d *Domain, qpn ib.QPN, key ib.RKey, need ib.AccessFlags) Verdict {
	_, v := t.Remote(d, qpn, key, 0, 0, need)
	if v == BadRange { // the last question; all others were answered
		v = OK
	}
	return v
}

// judge asks the questions of IBA 9.7.4.1.3 and 10.6.3 in their order, behind that for the key: domain, rights, bounds.
func (mr *MR) judge(d *Domain, va, n uint64, need ib.AccessFlags) (Span, Verdict) {
	if mr.Domain != d {
		return Span{}, BadDomain
	}
	if mr.Access&need != need {
		return Span{}, BadAccess
	}
	// In this order nothing wraps: CVE-2026-98365 was the sum of va and n.
	if n > mr.Length || va < mr.Base || va-mr.Base > mr.Length-n {
		return Span{}, BadRange
	}
	return Span{mr.Region, mr.Offset + (va - mr.Base), n}, OK
}

// find returns the entry that the table gave exactly this key, nil if there is none.
func (t *Table) find(key uint32) *entry {
	e := t.slots[t.slot(key)].Load()
	if e == nil || e.key != key {
		return nil
	}
	return e
}

func (t *Table) slot(key uint32) uint32 {
	key >>= 8
	slot, ok := t.memo.look(key)
	if !ok {
		slot = t.perm.inverse(key) & (1<<t.slotBits - 1)
		t.memo.keep(key, slot)
	}
	return slot
}
