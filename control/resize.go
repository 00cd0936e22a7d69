package control

import (
	"fmt"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
)

// resizeCQ moves a completion queue to another ring. The application has told its reader of it, see abi.
func (s *Session) resizeCQ(q *ctl.ResizeCQ) (any, error) {
	v, err := s.queues.get(q.CQ)
	if err != nil {
		return nil, err
	}
	if attr := s.dev.NIC.Attr(); q.Entries == 0 || q.Entries > attr.MaxCQE {
		return nil, badEntries(q.Entries, attr.MaxCQE)
	}
	a, err := s.arenas.get(q.Arena)
	if err != nil {
		return nil, err
	}
	block, err := a.place(q.Offset, abi.CQBlockSize(abi.CQCapacity(q.Entries)))
	if err != nil {
		return nil, err
	}
	if err := s.ctx.ResizeCQ(v.cq, block, q.Entries); err != nil {
		return nil, fmt.Errorf("completion queue %d: %w", q.CQ, err)
	}
	// The old ring is the application's alone from now on; the header stays where the queue was made.
	a.users++
	if v.ring != nil {
		v.ring.users--
	}
	v.ring = a
	return &ctl.ResizeCQReply{Capacity: v.cq.Capacity()}, nil
}
