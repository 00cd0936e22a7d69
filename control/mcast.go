package control

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

func (s *Session) attachMcast(q *ctl.AttachMcast) (any, error) {
	v, err := s.pairs.get(q.QP)
	if err != nil {
		return nil, err
	}
	if q.Flags > ctl.McastOwn {
		return nil, fmt.Errorf("flags %#x: %w", q.Flags, syscall.EINVAL)
	}
	if err := s.ctx.AttachMcast(v.qp, ib.GID(q.GID), q.Flags == ctl.McastOwn); err != nil {
		return nil, err
	}
	return &ctl.Empty{}, nil
}

func (s *Session) detachMcast(q *ctl.AttachMcast) (any, error) {
	v, err := s.pairs.get(q.QP)
	if err != nil {
		return nil, err
	}
	if q.Flags != 0 {
		return nil, fmt.Errorf("flags %#x: %w", q.Flags, syscall.EINVAL)
	}
	if err := s.ctx.DetachMcast(v.qp, ib.GID(q.GID)); err != nil {
		return nil, err
	}
	return &ctl.Empty{}, nil
}
