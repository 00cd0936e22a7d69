package control

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// queue is a completion queue, where its block lies and whom it notifies.
type queue struct {
	cq     *nic.CQ
	arena  *arena    // where it was made
	ring   *arena    // where its ring is, nil if it was never resized
	notify *notifier // nil without a channel
}

// pair is a queue pair and where its block lies.
type pair struct {
	qp    *nic.QP
	arena *arena // nil for an XRC target
}

func (s *Session) createChannel(*ctl.CreateChannel, *attachments) (any, []ctl.Attachment, error) {
	if err := s.hold(1); err != nil {
		return nil, nil, err
	}
	ch, fd, err := newChannel()
	if err != nil {
		s.descriptors--
		return nil, nil, err
	}
	h := s.channels.next()
	s.channels.put(h, ch)
	return &ctl.HandleReply{Handle: h}, []ctl.Attachment{{FD: fd}}, nil
}

// hold charges descriptors to the session.
func (s *Session) hold(n int) error {
	if s.foreign && s.descriptors+n > s.quota.Descriptors {
		return fmt.Errorf("the quota of %d descriptors for each context is reached: %w", s.quota.Descriptors, syscall.EDQUOT)
	}
	s.descriptors += n
	return nil
}

func (s *Session) destroyChannel(q *ctl.Handle) (any, error) {
	ch, err := s.channels.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if ch.queues > 0 {
		return nil, fmt.Errorf("completion channel %d has %d completion queues: %w", q.Handle, ch.queues, syscall.EBUSY)
	}
	s.channels.remove(q.Handle)
	ch.box.close()
	s.descriptors--
	return &ctl.Empty{}, nil
}

func (s *Session) createCQ(q *ctl.CreateCQ) (any, error) {
	attr := s.dev.NIC.Attr()
	if q.Entries == 0 || q.Entries > attr.MaxCQE {
		return nil, badEntries(q.Entries, attr.MaxCQE)
	}
	if q.CompVector >= attr.NumCompVectors {
		return nil, fmt.Errorf("completion vector %d of %d: %w", q.CompVector, attr.NumCompVectors, syscall.EINVAL)
	}
	a, err := s.arenas.get(q.Arena)
	if err != nil {
		return nil, err
	}
	block, err := a.place(q.Offset, abi.CQBlockSize(abi.CQCapacity(q.Entries)))
	if err != nil {
		return nil, err
	}
	v := &queue{arena: a}
	c := nic.CQConfig{Block: block, Entries: q.Entries, Vector: q.CompVector, Cookie: q.Cookie, Handle: s.queues.next()}
	if q.Channel != 0 {
		ch, err := s.channels.get(q.Channel)
		if err != nil {
			return nil, err
		}
		v.notify = &notifier{channel: ch}
		c.Notifier = cq.Notifier(v.notify)
	}
	if v.cq, err = s.ctx.CreateCQ(c); err != nil {
		return nil, err
	}
	a.users++
	if v.notify != nil {
		v.notify.channel.queues++
	}
	s.queues.put(c.Handle, v)
	return &ctl.CreateCQReply{Handle: c.Handle, Capacity: v.cq.Capacity()}, nil
}

func badEntries(n, most uint32) error {
	return fmt.Errorf("%d entries, the device has 1 to %d: %w", n, most, syscall.EINVAL)
}

func (s *Session) destroyCQ(q *ctl.Handle) (any, error) {
	v, err := s.queues.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DestroyCQ(v.cq); err != nil {
		return nil, fmt.Errorf("completion queue %d: %w", q.Handle, err)
	}
	s.queues.remove(q.Handle)
	v.arena.users--
	if v.ring != nil {
		v.ring.users--
	}
	if v.notify != nil {
		v.notify.drop()
		v.notify.channel.queues--
	}
	return &ctl.Empty{}, nil
}

func (s *Session) modifyCQ(q *ctl.ModifyCQ) (any, error) {
	v, err := s.queues.get(q.CQ)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.ModerateCQ(v.cq, q.Count, q.Period); err != nil {
		return nil, err
	}
	return &ctl.Empty{}, nil
}

func (s *Session) createQP(q *ctl.CreateQP) (any, error) {
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, err
	}
	send, err := s.queues.get(q.SendCQ)
	if err != nil {
		return nil, fmt.Errorf("send cq: %w", err)
	}
	var recvCQ *nic.CQ
	if ib.QPType(min(q.Type, 255)) != ib.QPTypeXRCSend { // which receives nothing
		recv, err := s.queues.get(q.RecvCQ)
		if err != nil {
			return nil, fmt.Errorf("receive cq: %w", err)
		}
		recvCQ = recv.cq
	}
	a, err := s.arenas.get(q.Arena)
	if err != nil {
		return nil, err
	}
	switch {
	case q.SigAll > 1:
		return nil, fmt.Errorf("sq_sig_all is %d: %w", q.SigAll, syscall.EINVAL)
	case q.Type > 255:
		return nil, fmt.Errorf("type %d: %w", q.Type, syscall.EINVAL)
	}
	c := nic.QPConfig{
		PD: pd, Type: ib.QPType(q.Type), SendCQ: send.cq, RecvCQ: recvCQ, SigAll: q.SigAll == 1,
		Flags: ib.QPCreateFlags(q.Flags),
		Cap: ib.QPCap{
			MaxSendWR: q.MaxSendWR, MaxRecvWR: q.MaxRecvWR,
			MaxSendSGE: q.MaxSendSGE, MaxRecvSGE: q.MaxRecvSGE, MaxInlineData: q.MaxInlineData,
		},
		// The device judges the capacities before it asks for the block that they need.
		Block:  func(l abi.QPLayout) ([]byte, error) { return a.place(q.Offset, l.Size()) },
		Cookie: q.Cookie, Handle: s.pairs.next(),
	}
	if q.SRQ != 0 {
		v, err := s.pools.get(q.SRQ)
		if err != nil {
			return nil, err
		}
		c.SRQ = v.srq
	}
	qp, err := s.ctx.CreateQP(c)
	if err != nil {
		return nil, err
	}
	a.users++
	s.pairs.put(c.Handle, &pair{qp, a})
	real := qp.Cap()
	return &ctl.CreateQPReply{
		Handle: c.Handle, QPN: uint32(qp.QPN()), Slot: qp.Slot(), Shard: uint32(qp.Shard()),
		MaxSendWR: real.MaxSendWR, MaxRecvWR: real.MaxRecvWR,
		MaxSendSGE: real.MaxSendSGE, MaxRecvSGE: real.MaxRecvSGE, MaxInlineData: real.MaxInlineData,
	}, nil
}

func (s *Session) modifyQP(q *ctl.ModifyQP) (any, error) {
	v, err := s.pairs.get(q.QP)
	if err != nil {
		return nil, err
	}
	attr, err := ctl.ToQPAttr(&q.Attr)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.ModifyQP(v.qp, &attr, ib.QPAttrMask(q.Mask)); err != nil {
		return nil, err
	}
	return &ctl.Empty{}, nil
}

func (s *Session) queryQP(q *ctl.Handle) (any, error) {
	v, err := s.pairs.get(q.Handle)
	if err != nil {
		return nil, err
	}
	attr, cap, sigAll := s.ctx.QueryQP(v.qp)
	reply := &ctl.QueryQPReply{
		Attr:      ctl.FromQPAttr(&attr),
		MaxSendWR: cap.MaxSendWR, MaxRecvWR: cap.MaxRecvWR,
		MaxSendSGE: cap.MaxSendSGE, MaxRecvSGE: cap.MaxRecvSGE, MaxInlineData: cap.MaxInlineData,
	}
	if sigAll {
		reply.SigAll = 1
	}
	return reply, nil
}

func (s *Session) destroyQP(q *ctl.Handle) (any, error) {
	v, err := s.pairs.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DestroyQP(v.qp); err != nil {
		return nil, fmt.Errorf("queue pair %d: %w", q.Handle, err)
	}
	s.pairs.remove(q.Handle)
	if v.arena != nil {
		v.arena.users--
	}
	return &ctl.Empty{}, nil
}
