package control

import (
	"fmt"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// pool is a shared receive queue and where its block lies.
type pool struct {
	srq   *nic.SRQ
	arena *arena
}

func (s *Session) createSRQ(q *ctl.CreateSRQ) (any, error) {
	srq, h, err := s.makeSRQ(q, nil, nil)
	if err != nil {
		return nil, err
	}
	return &ctl.CreateSRQReply{Handle: h, MaxWR: srq.MaxWR(), MaxSGE: q.MaxSGE}, nil
}

func (s *Session) modifySRQ(q *ctl.ModifySRQ) (any, error) {
	v, err := s.pools.get(q.SRQ)
	if err != nil {
		return nil, err
	}
	next := v.arena
	mask := ib.SRQAttrMask(q.Mask)
	if mask&ib.SRQAttrMaxWR != 0 {
		if next, err = s.arenas.get(q.Arena); err != nil {
			return nil, err
		}
	}
	attr := ib.SRQAttr{MaxWR: q.MaxWR, SRQLimit: q.Limit}
	block := func(l abi.QPLayout) ([]byte, error) { return next.place(q.Offset, l.Size()) }
	if err := s.ctx.ModifySRQ(v.srq, &attr, mask, block); err != nil {
		return nil, err
	}
	v.arena.users--
	next.users++
	v.arena = next
	return &ctl.Empty{}, nil
}

func (s *Session) querySRQ(q *ctl.Handle) (any, error) {
	v, err := s.pools.get(q.Handle)
	if err != nil {
		return nil, err
	}
	attr, posted, err := s.ctx.QuerySRQ(v.srq)
	if err != nil {
		return nil, err
	}
	return &ctl.QuerySRQReply{MaxWR: attr.MaxWR, MaxSGE: attr.MaxSGE, Limit: attr.SRQLimit, Posted: posted}, nil
}

func (s *Session) destroySRQ(q *ctl.Handle) (any, error) {
	v, err := s.pools.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DestroySRQ(v.srq); err != nil {
		return nil, fmt.Errorf("shared receive queue %d: %w", q.Handle, err)
	}
	s.pools.remove(q.Handle)
	v.arena.users--
	return &ctl.Empty{}, nil
}
