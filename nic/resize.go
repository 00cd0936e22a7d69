package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
)

// ResizeCQ moves a completion queue to a block of another capacity, abi.CQCapacity of entries (ibv_resize_cq). The block
// that it was made in stays the queue's: its header is; see cq.Queue.Resize. The error wraps EINVAL for sizes that are not
// offered or less than what waits, EFAULT for a block that is not there, EDQUOT, or EIO when the queue is dead; nothing has
// changed then.
func (c *Context) ResizeCQ(q *CQ, block []byte, entries uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.resizeCQ(q, block, entries); err != nil {
		return fmt.Errorf("resize cq: %w", err)
	}
	return nil
}

func (c *Context) resizeCQ(q *CQ, block []byte, entries uint32) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := c.ownsCQ(q); err != nil {
		return err
	}
	if l := &c.dev.limits; entries == 0 || entries > l.MaxCQE {
		return fmt.Errorf("%d entries: not within 1 to %d: %w", entries, l.MaxCQE, syscall.EINVAL)
	}
	old, capacity := q.Capacity(), abi.CQCapacity(entries)
	if size := abi.CQBlockSize(capacity); uint64(len(block)) < size {
		return fmt.Errorf("block of %d bytes: %d entries need %d: %w", len(block), capacity, size, syscall.EINVAL)
	}
	if capacity > old {
		if err := c.purse.charge(resCQEs, uint64(capacity-old)); err != nil {
			return err
		}
	}
	var err error
	if fault := guarded(func() { err = q.queue.Resize(block, capacity) }); fault != nil {
		err = fault
	}
	now := q.Capacity()
	if most := max(old, capacity); now < most {
		c.purse.uncharge(resCQEs, uint64(most-now))
	}
	if err == nil {
		q.cfg.Entries = entries
	}
	return err
}
