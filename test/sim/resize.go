package sim

import (
	"errors"
	"syscall"

	"github.com/softnic/softnicd/abi"
)

// resize moves a completion queue to a ring of another size, with whatever waits in it and while completions come. None may
// be lost, come twice or change places, and the ring that its reader has left is the application's again.
func (q *queue) resize(d *dice) bool {
	a := q.app
	if q.small || q.over || a.gone() {
		return false
	}
	entries := uint32(max(1, d.between(q.depth, 4*q.depth)))
	waiting := q.reader.Peek(peekAll)
	if waiting > abi.CQRound && d.chance(300) {
		entries = 1 // what waits has no place there
	}
	capacity := abi.CQCapacity(entries)
	block := make([]byte, abi.CQBlockSize(capacity))
	if err := q.reader.Follow(block, capacity); err != nil {
		a.w.failf("%s: %v", a.name, err)
	}
	switch err := a.ctx.ResizeCQ(q.cq, block, entries); {
	case waiting > int(capacity):
		if !errors.Is(err, syscall.EINVAL) {
			a.w.failf("%s: %d entries went into %d places: %v", a.name, waiting, capacity, err)
		}
		q.reader.Unfollow()
		return true
	case err != nil:
		a.w.failf("%s: %v", a.name, err)
	}
	q.rings = append(q.rings, block)
	a.w.census["resized queues"]++
	if waiting > 0 {
		a.w.census["entries that were moved"] += waiting
	}
	a.w.logf(a.name, "a completion queue with %d entries gets %d places", waiting, capacity)
	return true
}

// peekAll is more than any queue holds.
const peekAll = 1 << 20

// leave scribbles over the rings that the reader has left. The first one's header stays the queue's.
func (q *queue) leave() {
	for ; q.left < len(q.rings)-q.reader.Rings(); q.left++ {
		scribble(q.rings[q.left][q.ringAt():])
	}
}

// ringAt is where the oldest ring that has not been left begins in its block.
func (q *queue) ringAt() int {
	if q.left == 0 {
		return abi.CQHeaderSize
	}
	return 0
}

// checkLeft looks for what the device wrote into rings that were left.
func (q *queue) checkLeft() {
	if q.app.mad {
		return
	}
	for i, r := range q.rings[:q.left] {
		if i == 0 {
			r = r[abi.CQHeaderSize:]
		}
		if at := notCanary(r); at >= 0 {
			q.app.w.failf("%s: byte %d of the ring of a completion queue was written after it was left", q.app.name, at)
		}
	}
}

// abandon scribbles over all rings.
func (q *queue) abandon() {
	for _, r := range q.rings {
		scribble(r)
	}
}
