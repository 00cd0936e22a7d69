package control

import "github.com/softnic/softnicd/abi/ctl"

// createAH makes an address handle. Its handle here is the number that send requests name it by, which is the device's to
// give.
func (s *Session) createAH(q *ctl.CreateAH) (any, error) {
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, err
	}
	attr, err := q.Attr()
	if err != nil {
		return nil, err
	}
	ah, err := s.ctx.CreateAH(pd, &attr)
	if err != nil {
		return nil, err
	}
	s.addresses.put(ah.Handle(), ah)
	return &ctl.HandleReply{Handle: ah.Handle()}, nil
}

func (s *Session) destroyAH(q *ctl.Handle) (any, error) {
	ah, err := s.addresses.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DestroyAH(ah); err != nil {
		return nil, err
	}
	s.addresses.remove(q.Handle)
	return &ctl.Empty{}, nil
}
