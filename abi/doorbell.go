package abi

import (
	"math/bits"
	"sync/atomic"
)

// Doorbell is one side's view of a context's doorbell page. Any number of the application's goroutines ring; one of the
// daemon takes, or one for each range of slots, and its walk through the page is the only state here.
//
// Why no ring is lost: who rings has published its posts, then sets leaf, middle and top, in this order; who takes clears
// top, middle and leaf, in this order, and looks at the posts last. A bit that the ringer finds set will be cleared after
// it looked, and then the taker still has everything below it ahead.
type Doorbell struct {
	mem words

	// The walk: bits that Take has cleared on the page and not gone down yet.
	top, middle, leaf uint64
	atMiddle, atLeaf  uint32 // the words that middle and leaf came from

	own uint64 // bits of the top word that Take may clear

	step func(word uint32, write bool) // tests: called before every touch of the page
}

// NewDoorbell views the beginning of page as a doorbell page.
func NewDoorbell(page []byte) (*Doorbell, error) {
	mem, err := newWords(page, DoorbellSize)
	if err != nil {
		return nil, err
	}
	return &Doorbell{mem: mem, own: ^uint64(0)}, nil
}

// NewDoorbellPart views it as one of several shards, each of which takes the slots of its own range. They share the top
// word, and nothing below.
func NewDoorbellPart(page []byte, shard, shards int) (*Doorbell, error) {
	b, err := NewDoorbell(page)
	if err == nil {
		first, n := SlotRange(shard, shards)
		b.own = (^uint64(0) >> (64 - n>>12)) << (first >> 12)
	}
	return b, err
}

// SlotRange returns the slots that one of so many shards has for its queue pairs: n of them, from first on. There are at
// most MaxShards.
func SlotRange(shard, shards int) (first, n uint32) {
	n = MaxQPSlots >> bits.Len(uint(shards-1))
	return uint32(shard) * n, n
}

// Ring says that something was published in the rings of a queue pair's slot. Slots from MaxQPSlots on do not exist.
// After it the caller looks whether the daemon sleeps.
func (b *Doorbell) Ring(slot uint32) {
	if slot >= MaxQPSlots {
		return
	}
	b.set(offBellLeaf/8+slot>>6, 1<<(slot&63))
	b.set(offBellMiddle/8+slot>>12, 1<<(slot>>6&63))
	b.set(offBellTop/8, 1<<(slot>>12))
}

// set sets a bit unless it is set: looking leaves the cache line shared, writing does not.
func (b *Doorbell) set(word uint32, bit uint64) {
	b.touch(word, false)
	if p := &b.mem.q[word]; atomic.LoadUint64(p)&bit == 0 {
		b.touch(word, true)
		atomic.OrUint64(p, bit)
	}
}

func (b *Doorbell) swap(word uint32) uint64 {
	b.touch(word, true)
	return atomic.SwapUint64(&b.mem.q[word], 0)
}

// takeTop clears the bits of the top word that are ours, and returns them.
func (b *Doorbell) takeTop() uint64 {
	if b.own == ^uint64(0) {
		return b.swap(offBellTop / 8)
	}
	b.touch(offBellTop/8, true)
	return atomic.AndUint64(&b.mem.q[offBellTop/8], ^b.own) & b.own
}

func (b *Doorbell) touch(word uint32, write bool) {
	if b.step != nil {
		b.step(word, write)
	}
}

// Pending reports whether Take may have something. A daemon that wants to sleep says so first and asks then.
func (b *Doorbell) Pending() bool {
	if b.top|b.middle|b.leaf != 0 {
		return true
	}
	b.touch(offBellTop/8, false)
	return atomic.LoadUint64(&b.mem.q[offBellTop/8])&b.own != 0
}

// Take appends slots that were rung, up to the capacity of dst, and returns it. The rest waits for the next call, which
// goes on where this one stopped, so that slots that ring all the time do not starve others.
//
// The page is the application's to scribble on: slots that do not exist for the caller may come, and a call looks at a
// bounded number of words, so that it may return nothing while Pending still holds.
func (b *Doorbell) Take(dst []uint32) []uint32 {
	started := false
	for budget := takeBudget; len(dst) < cap(dst); budget-- {
		switch {
		case b.leaf != 0:
			dst = append(dst, b.atLeaf<<6|uint32(bits.TrailingZeros64(b.leaf)))
			b.leaf &= b.leaf - 1
			budget++ // bounded by dst already
		case budget == 0:
			return dst
		case b.middle != 0:
			b.atLeaf = b.atMiddle<<6 | uint32(bits.TrailingZeros64(b.middle))
			b.middle &= b.middle - 1
			b.leaf = b.swap(offBellLeaf/8 + b.atLeaf)
		case b.top != 0:
			b.atMiddle = uint32(bits.TrailingZeros64(b.top))
			b.top &= b.top - 1
			b.middle = b.swap(offBellMiddle/8 + b.atMiddle)
		case started:
			return dst
		default:
			started = true
			if !b.Pending() {
				return dst
			}
			b.top = b.takeTop()
		}
	}
	return dst
}

// takeBudget is the words that one call of Take visits: a full leaf costs one, so an honest page is bounded by dst.
const takeBudget = 256
