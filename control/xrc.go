package control

import (
	"bytes"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// extended is an XRC domain that a session has open. The file that names it stays open as long: should it be deleted, its
// inode number would name another file, and strangers would meet here.
type extended struct {
	xrcd *nic.XRCD
	fd   int // -1 for none
}

func (s *Session) openXRCD(q *ctl.OpenXRCD, in *attachments) (any, []ctl.Attachment, error) {
	c := nic.XRCDConfig{Flags: ib.XRCDFlags(q.Flags)}
	name, _, _ := bytes.Cut(q.Name[:], []byte{0})
	v := &extended{fd: -1}
	switch {
	case in.left() == 1 && len(name) > 0:
		return nil, nil, fmt.Errorf("a file and the name %q: it is one or the other: %w", name, syscall.EINVAL)
	case in.left() == 1:
		var err error
		if c.Name, err = identify(in.list[in.taken].FD); err != nil {
			return nil, nil, err
		}
		if err := s.hold(1); err != nil {
			return nil, nil, err
		}
		v.fd = in.take().FD
	case len(name) > 0:
		c.Name = nic.XRCDName{Tenant: uint64(s.peer.UID), Name: string(name)}
	}
	var err error
	if v.xrcd, err = s.ctx.OpenXRCD(c); err != nil {
		s.release(v)
		return nil, nil, err
	}
	h := s.extended.next()
	s.extended.put(h, v)
	return &ctl.HandleReply{Handle: h}, nil, nil
}

// identify tells which file a descriptor is of. Who passes it may serve the file himself: he is not asked, the kernel is.
func identify(fd int) (nic.XRCDName, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st); err != nil {
		return nic.XRCDName{}, fmt.Errorf("the file: %w", err)
	}
	return nic.XRCDName{File: true, Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}, nil
}

// release lets go of the file of a domain.
func (s *Session) release(v *extended) {
	if v.fd >= 0 {
		s.closer.Close(v.fd)
		s.descriptors--
		v.fd = -1
	}
}

func (s *Session) closeXRCD(q *ctl.Handle) (any, error) {
	v, err := s.extended.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.CloseXRCD(v.xrcd); err != nil {
		return nil, fmt.Errorf("xrc domain %d: %w", q.Handle, err)
	}
	s.extended.remove(q.Handle)
	s.release(v)
	return &ctl.Empty{}, nil
}

func (s *Session) createXSRQ(q *ctl.CreateXSRQ) (any, error) {
	x, err := s.extended.get(q.XRCD)
	if err != nil {
		return nil, err
	}
	cq, err := s.queues.get(q.CQ)
	if err != nil {
		return nil, err
	}
	srq, h, err := s.makeSRQ(&q.SRQ, x.xrcd, cq.cq)
	if err != nil {
		return nil, err
	}
	return &ctl.CreateXSRQReply{Handle: h, MaxWR: srq.MaxWR(), MaxSGE: q.SRQ.MaxSGE, Number: srq.Number()}, nil
}

func (s *Session) createTarget(q *ctl.CreateTarget) (any, error) {
	return s.addTarget(q.XRCD, q.Cookie, s.ctx.CreateTarget)
}

func (s *Session) openTarget(q *ctl.OpenTarget) (any, error) {
	return s.addTarget(q.XRCD, q.Cookie, func(c nic.TargetConfig) (*nic.QP, error) {
		return s.ctx.OpenTarget(c, ib.QPN(q.QPN))
	})
}

func (s *Session) addTarget(xrcd uint32, cookie uint64, open func(nic.TargetConfig) (*nic.QP, error)) (any, error) {
	x, err := s.extended.get(xrcd)
	if err != nil {
		return nil, err
	}
	h := s.pairs.next()
	qp, err := open(nic.TargetConfig{XRCD: x.xrcd, Cookie: cookie, Handle: h})
	if err != nil {
		return nil, err
	}
	s.pairs.put(h, &pair{qp: qp})
	return &ctl.CreateQPReply{Handle: h, QPN: uint32(qp.QPN())}, nil
}

// makeSRQ makes a shared receive queue, of an XRC domain if that is given.
func (s *Session) makeSRQ(q *ctl.CreateSRQ, x *nic.XRCD, cq *nic.CQ) (*nic.SRQ, uint32, error) {
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, 0, err
	}
	a, err := s.arenas.get(q.Arena)
	if err != nil {
		return nil, 0, err
	}
	c := nic.SRQConfig{
		PD: pd, MaxWR: q.MaxWR, MaxSGE: q.MaxSGE, XRCD: x, CQ: cq,
		// The device judges the capacities before it asks for the block that they need.
		Block:  func(l abi.QPLayout) ([]byte, error) { return a.place(q.Offset, l.Size()) },
		Cookie: q.Cookie, Handle: s.pools.next(),
	}
	srq, err := s.ctx.CreateSRQ(c)
	if err != nil {
		return nil, 0, err
	}
	a.users++
	s.pools.put(c.Handle, &pool{srq, a})
	return srq, c.Handle, nil
}
