package verbs

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// Resize makes the queue one of at least so many entries, more or fewer than now (ibv_resize_cq); Capacity tells how many
// it got. Others may poll, wait and post meanwhile: no completion is lost, doubled or reordered. EINVAL if more completions
// wait than the queue would hold, or for a number that the device does not offer; then nothing has changed.
func (q *CQ) Resize(entries int) error {
	if entries < 1 || entries > maxEntries {
		return fmt.Errorf("resize cq: %d entries: %w", entries, syscall.EINVAL)
	}
	q.resizing.Lock()
	defer q.resizing.Unlock()
	capacity := abi.CQCapacity(uint32(entries))
	block, err := q.ctx.arenas.Alloc(abi.CQBlockSize(capacity), abi.CacheLine)
	if err != nil {
		return fmt.Errorf("resize cq: %w", err)
	}
	if err := q.follow(block, capacity); err != nil {
		q.ctx.arenas.Free(block)
		return err
	}
	m := &ctl.ResizeCQ{CQ: q.handle, Entries: uint32(entries), Arena: block.Arena, Offset: block.Offset}
	var r ctl.ResizeCQReply
	if err := q.ctx.call(ctl.OpResizeCQ, m, &r); err != nil {
		q.unfollow()
		q.ctx.arenas.Free(block)
		return err
	}
	q.capacity.Store(r.Capacity)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed.Load() {
		q.reader.Peek(1) // an empty queue leaves the old ring at once, though nobody polls
		q.leave()
	}
	return nil
}

// maxEntries is far from any device's limit. The device judges the number; only memory for it must not be asked for before.
const maxEntries = 1 << 26

// follow tells the reader of a ring that the device will move to.
func (q *CQ) follow(block arena.Block, capacity uint32) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return ErrClosed
	}
	if err := q.reader.Follow(block.Mem, capacity); err != nil {
		return err
	}
	q.rings = append(q.rings, block)
	return nil
}

// unfollow takes that back.
func (q *CQ) unfollow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rings = q.rings[:len(q.rings)-1]
	if !q.closed.Load() {
		q.reader.Unfollow()
	}
}

// leave gives up the rings that the reader has left. That may be a request to the daemon, for which no poll waits. q.mu is
// held.
func (q *CQ) leave() {
	for n := q.reader.Rings(); len(q.rings) > n; q.rings = q.rings[1:] {
		go q.ctx.arenas.Free(q.rings[0])
	}
}

// split divides the block that a queue is made in into its header, which stays, and its first ring.
func split(b arena.Block) (header, ring arena.Block) {
	header, ring = b, b
	header.Mem = b.Mem[:abi.CQHeaderSize:abi.CQHeaderSize]
	ring.Offset += abi.CQHeaderSize
	ring.Mem = b.Mem[abi.CQHeaderSize:]
	return header, ring
}
