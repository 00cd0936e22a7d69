package cq

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/softnic/softnicd/abi"
)

// Resize moves the queue to another ring, of another capacity, in a block that the reader was told of by Follow. The
// entries that wait stay where they are, so it takes no longer for a full queue than for an empty one: only clearing the
// new ring takes time, and posts go on meanwhile. An error wraps EINVAL if more entries wait than the new ring has places,
// or if the block does not do; then nothing has changed. A dead queue's error is why it is dead.
//
// It touches both blocks, and the old ring not again after it returned. One caller at a time.
func (q *Queue) Resize(block []byte, capacity uint32) error {
	ring, err := abi.NewCQBlock(block, capacity)
	if err != nil {
		return err
	}
	q.mu.Lock()
	start := q.produced
	q.mu.Unlock()
	ring.ResetAt(start)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dead != nil {
		return q.dead
	}
	// Entries of the old ring count, too: what the new one holds is part of what waits.
	if n := q.waiting(); n > capacity {
		return fmt.Errorf("%d entries wait, %d would have places: %w", n, capacity, syscall.EINVAL)
	}
	q.touch(wordMoved)
	q.ring.SetMoved(q.produced)
	q.ring, q.pos, q.capacity = ring, 0, capacity
	return nil
}

// Follow tells the reader of the ring that the queue will be moved to, before the device hears of it: the reader goes on
// there as soon as the device has.
func (r *Reader) Follow(block []byte, capacity uint32) error {
	ring, err := abi.NewCQBlock(block, capacity)
	if err != nil {
		return err
	}
	r.next = append(r.next, ring)
	return nil
}

// Unfollow takes back the last Follow: the device has refused.
func (r *Reader) Unfollow() { r.next = r.next[:len(r.next)-1] }

// Rings returns how many rings the reader may still read from: the last so many of those that it was made with and that
// it followed. The memory of older ones is free.
func (r *Reader) Rings() int { return 1 + len(r.next) }

// turn goes on to the next ring, if the entry at hand is the first one there, and reports whether it did.
func (r *Reader) turn() bool {
	if len(r.next) == 0 {
		return false
	}
	r.touch(wordMoved)
	if index, moved := r.ring.Moved(); !moved || index != r.index {
		return false
	}
	r.ring, r.pos = r.next[0], 0
	r.next = slices.Delete(r.next, 0, 1)
	return true
}
