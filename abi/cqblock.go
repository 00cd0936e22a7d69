package abi

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// cqeBody is the bytes of an entry before the word that publishes it.
const cqeBody = 56

// CQBlock is one side's view of a completion queue's block. Capacity is a multiple of 64 and no power of two: each side
// steps a position in the ring, 0 to capacity-1, and an index, which counts entries modulo 2^32.
type CQBlock struct {
	mem      words
	ring     []uint64
	capacity uint32
}

// NewCQBlock views the beginning of b as a completion queue's block. b is aligned to 8 bytes, better to a cache line.
// Nothing is written: see Reset.
func NewCQBlock(b []byte, capacity uint32) (*CQBlock, error) {
	if capacity == 0 || capacity%CQRound != 0 {
		return nil, fmt.Errorf("abi: completion queue capacity %d is no multiple of %d: %w", capacity, CQRound, syscall.EINVAL)
	}
	mem, err := newWords(b, CQBlockSize(capacity))
	if err != nil {
		return nil, err
	}
	return &CQBlock{mem: mem, ring: mem.q[CQHeaderSize/8:], capacity: capacity}, nil
}

// Capacity returns the entries of the ring.
func (b *CQBlock) Capacity() uint32 { return b.capacity }

// Reset makes the block that of an empty, unarmed queue. The device does so before it tells the application of the queue.
// Entries of a queue that had this memory before must not look like new ones, so every sequence is cleared.
func (b *CQBlock) Reset() { b.ResetAt(0) }

// ResetAt does the same for a ring whose first entry will have an index near this one, less than 2^31 after it.
func (b *CQBlock) ResetAt(index uint32) {
	for _, off := range []uint64{offCQProduced, offCQState, offCQFired, offCQConsumed} {
		b.mem.store32(off, 0)
	}
	b.mem.store64(offCQMoved, 0)
	b.mem.store64(offCQArm, 0)
	// The sequence of the entry before: 0 would be that of entry 2^32-1.
	for i := cqeBody / 8; i < len(b.ring); i += CQESize / 8 {
		put(&b.ring[i], uint64(index)<<32)
	}
}

// Write writes the entry of index at position pos, body first, then the sequence, which publishes it. The caller has
// made sure that the reader is done with the entry that was there. It does not wait until the reader's processor has given
// the cache line away; who looks at the arm word next does, see SetProducedSeq.
func (b *CQBlock) Write(pos, index uint32, e *CQE) {
	s := b.slot(pos)
	put(&s[0], e.WRID)
	put(&s[1], uint64(e.ByteLen)|uint64(e.Imm)<<32)
	put(&s[2], uint64(e.QPN)|uint64(e.SrcQP)<<32)
	put(&s[3], uint64(e.Status)|uint64(e.Opcode)<<8|uint64(e.Flags)<<16|uint64(e.VendorErr)<<32)
	put(&s[4], e.Timestamp)
	put(&s[5], uint64(e.PKeyIndex)|uint64(e.SLID)<<16|uint64(e.SL)<<32|uint64(e.DLIDPathBits)<<40|uint64(e.Queue)<<48|uint64(e.NetworkType)<<56)
	put(&s[6], uint64(e.QPSlot)|uint64(e.WQEIndex)<<32)
	publish(&s[7], uint64(index+1)<<32)
}

// Expect says that an entry will be written soon, a few positions after pos: far enough from where a reader looks that
// waits, which would take the cache line away again. Without it Write waits for the line: an entry for a reader that polls on
// another processor takes 160 to 200 ns then, and 100 to 120 with it (BenchmarkPostToPoller).
func (b *CQBlock) Expect(pos uint32) {
	const ahead = 4
	if pos += ahead; pos >= b.capacity {
		pos -= b.capacity
	}
	prefetchWrite(&b.slot(pos)[0])
}

// Ready reports whether the entry of index is there, at position pos.
func (b *CQBlock) Ready(pos, index uint32) bool {
	return uint32(atomic.LoadUint64(&b.slot(pos)[7])>>32) == index+1
}

// Read copies the entry at position pos, which is Ready.
func (b *CQBlock) Read(pos uint32, e *CQE) {
	s := b.slot(pos)
	e.WRID = get(&s[0])
	v := get(&s[1])
	e.ByteLen, e.Imm = uint32(v), uint32(v>>32)
	v = get(&s[2])
	e.QPN, e.SrcQP = uint32(v), uint32(v>>32)
	v = get(&s[3])
	e.Status, e.Opcode, e.Flags, e.VendorErr = uint8(v), uint8(v>>8), uint16(v>>16), uint32(v>>32)
	e.Timestamp = get(&s[4])
	v = get(&s[5])
	e.PKeyIndex, e.SLID, e.SL = uint16(v), uint16(v>>16), uint8(v>>32)
	e.DLIDPathBits, e.Queue, e.NetworkType = uint8(v>>40), uint8(v>>48), uint8(v>>56)
	v = get(&s[6])
	e.QPSlot, e.WQEIndex = uint32(v), uint32(v>>32)
}

// View returns the entry at position pos, which is Ready, without copying it.
func (b *CQBlock) View(pos uint32) CQEView { return CQEView{b.slot(pos)} }

// Next returns the position after pos.
func (b *CQBlock) Next(pos uint32) uint32 {
	if pos++; pos == b.capacity {
		return 0
	}
	return pos
}

func (b *CQBlock) slot(pos uint32) *[CQESize / 8]uint64 {
	at := uint64(pos) * (CQESize / 8)
	return (*[CQESize / 8]uint64)(b.ring[at:])
}

// SetProduced tells how many entries the device has written, modulo 2^32. It informs, and costs a plain store; what makes an
// entry readable is its sequence.
func (b *CQBlock) SetProduced(n uint32) { put32(&b.mem.d[offCQProduced/4], n) }

// SetProducedSeq is SetProduced in the order that everybody sees: of an application that arms and then looks for entries, and
// a device that writes one and then, after this, looks at the arm word, one finds what the other has written.
func (b *CQBlock) SetProducedSeq(n uint32) { b.mem.store32(offCQProduced, n) }

// Produced returns how many entries the device has written.
func (b *CQBlock) Produced() uint32 { return b.mem.load32(offCQProduced) }

// SetState publishes CQOK or CQOverrun.
func (b *CQBlock) SetState(s uint32) { b.mem.store32(offCQState, s) }

// State returns CQOK or CQOverrun.
func (b *CQBlock) State() uint32 { return b.mem.load32(offCQState) }

// SetFired publishes the sequence of the arming that fired last.
func (b *CQBlock) SetFired(sequence uint32) { b.mem.store32(offCQFired, sequence) }

// Fired returns the sequence of the arming that fired last.
func (b *CQBlock) Fired() uint32 { return b.mem.load32(offCQFired) }

// SetMoved publishes that the entry of index and all later ones are in the next ring.
func (b *CQBlock) SetMoved(index uint32) { b.mem.store64(offCQMoved, 1<<32|uint64(index)) }

// Moved returns the index of the first entry that is in the next ring, if there is such a ring.
func (b *CQBlock) Moved() (index uint32, moved bool) {
	w := b.mem.load64(offCQMoved)
	return uint32(w), w>>32 != 0
}

// SetConsumed publishes how many entries the application has taken, modulo 2^32.
func (b *CQBlock) SetConsumed(n uint32) { b.mem.store32(offCQConsumed, n) }

// Consumed returns how many entries the application says it has taken: a claim to check.
func (b *CQBlock) Consumed() uint32 { return b.mem.load32(offCQConsumed) }

// StoreArm publishes an arm word, see ArmWord.
func (b *CQBlock) StoreArm(w uint64) { b.mem.store64(offCQArm, w) }

// LoadArm returns the arm word to the application that wrote it.
func (b *CQBlock) LoadArm() uint64 { return b.mem.load64(offCQArm) }

// Arm returns the arm word to the device, for which it is a claim: any sequence, any kind.
func (b *CQBlock) Arm() uint64 { return b.mem.load64(offCQArm) }
