package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// part is what a context has on one shard: its queue pairs there, the range of the doorbell page that rings for them, and
// whose share of the port they have. But for the fields that never change it is the shard's own.
type part struct {
	ctx   *Context
	shard *shard
	bell  *abi.Doorbell // nil for none
	first uint32        // the doorbell slot of slots[0]
	room  uint32        // how many slots there are

	tenant *tenant
	slots  []*QP // by doorbell slot
	free   []uint32

	// taken is how many queue pairs there are, or are in the making. It is guarded by ctx.mu, and where ctx is an XRC domain's
	// home, which several contexts use, by xrcRegistry.mu.
	taken uint32
}

// divide gives a context its part of every shard. page is its doorbell page, nil for none.
func (c *Context) divide(page []byte) error {
	shards := c.dev.shards
	for i, s := range shards {
		p := &part{ctx: c, shard: s}
		p.first, p.room = abi.SlotRange(i, len(shards))
		if page != nil {
			var err error
			if p.bell, err = abi.NewDoorbellPart(page, i, len(shards)); err != nil {
				return fmt.Errorf("doorbell page: %w", err)
			}
		}
		c.parts = append(c.parts, p)
	}
	return nil
}

// settle takes a number on the shard that has the fewest queue pairs, for one of a context. The context's lock is held.
func (c *Context) settle() (p *part, n ib.QPN, err error) {
	least := 0
	for _, o := range c.parts {
		if live := o.shard.table.count(); o.taken < o.room && (p == nil || live < least) {
			p, least = o, live
		}
	}
	if p == nil {
		return nil, 0, fmt.Errorf("all doorbell slots of the context are in use: %w", syscall.ENOMEM)
	}
	n, err = p.take()
	return p, n, err
}

// take takes a number on this shard. The lock of taken is held.
func (p *part) take() (ib.QPN, error) {
	if p.taken == p.room {
		return 0, fmt.Errorf("all doorbell slots of the context are in use: %w", syscall.ENOMEM)
	}
	n, ok := p.shard.table.take()
	if !ok {
		return 0, fmt.Errorf("all queue pair numbers are in use: %w", syscall.ENOMEM)
	}
	p.taken++
	return n, nil
}

// at returns the queue pair of a doorbell slot, nil if there is none. Applications ring what they like.
func (p *part) at(slot uint32) *QP {
	if i := slot - p.first; i < uint32(len(p.slots)) {
		return p.slots[i]
	}
	return nil
}

// add gives q a slot.
func (p *part) add(q *QP) {
	i := uint32(len(p.slots))
	if n := len(p.free); n > 0 {
		i = p.free[n-1]
		p.free = p.free[:n-1]
		p.slots[i] = q
	} else {
		p.slots = append(p.slots, q)
	}
	q.slot = p.first + i
}

// remove takes q's slot back.
func (p *part) remove(q *QP) {
	i := q.slot - p.first
	p.slots[i] = nil
	p.free = append(p.free, i)
}
