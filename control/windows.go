package control

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

func (s *Session) allocMW(q *ctl.AllocMW) (any, error) {
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, err
	}
	if q.Type > 255 {
		return nil, fmt.Errorf("type %d: there are windows of type 1 and 2: %w", q.Type, syscall.EINVAL)
	}
	h := s.windows.next()
	mw, err := s.ctx.AllocMW(pd, ib.MWType(q.Type), h)
	if err != nil {
		return nil, err
	}
	s.windows.put(h, mw)
	return &ctl.AllocMWReply{Handle: h, RKey: uint32(mw.RKey())}, nil
}

func (s *Session) deallocMW(q *ctl.Handle) (any, error) {
	mw, err := s.windows.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DeallocMW(mw); err != nil {
		return nil, fmt.Errorf("memory window %d: %w", q.Handle, err)
	}
	s.windows.remove(q.Handle)
	return &ctl.Empty{}, nil
}

// reregMR changes a registration. What it was made of is remembered, so that the fields which do not change need not be
// sent, and so that memory of the application's own is judged again when its rights change: it may be read-only.
func (s *Session) reregMR(q *ctl.ReregMR, in *attachments) (any, []ctl.Attachment, error) {
	return s.reregister(q, nil, in)
}

// reregister changes a registration, whose new memory, if it is to have another, is of these parts.
func (s *Session) reregister(q *ctl.ReregMR, parts []ctl.MemoryPart, in *attachments) (any, []ctl.Attachment, error) {
	r, err := s.regions.get(q.Region)
	if err != nil {
		return nil, nil, err
	}
	if q.Flags > 255 {
		return nil, nil, fmt.Errorf("flags %#x: %w", q.Flags, syscall.EINVAL)
	}
	flags := ib.ReregFlags(q.Flags)
	var pd *nic.PD
	if flags&ib.ReregPD != 0 {
		if pd, err = s.domains.get(q.MR.PD); err != nil {
			return nil, nil, err
		}
	}
	next := &region{mr: r.mr, asked: r.asked, parts: r.parts, arenas: r.arenas, own: r.own}
	if flags&ib.ReregTranslation != 0 {
		access := r.asked.Access
		next.asked, next.parts = q.MR, parts
		next.asked.Access = access
	}
	if flags&ib.ReregAccess != 0 {
		next.asked.Access = q.MR.Access
	}
	c := nic.MRConfig{Base: next.asked.Base, Length: next.asked.Length, Access: ib.AccessFlags(next.asked.Access)}
	anew := flags&ib.ReregTranslation != 0 || flags&ib.ReregAccess != 0 && (r.asked.Kind == ctl.MemoryProcess || r.asked.Kind == ctl.MemoryParts)
	if anew {
		flags |= ib.ReregTranslation
		next.arenas, next.own = nil, nil
		if err := s.locate(next, &c, in); err != nil {
			return nil, nil, err
		}
	}
	if err := s.ctx.ReregMR(r.mr, flags, pd, c); err != nil {
		if anew {
			next.close()
		}
		return nil, nil, err
	}
	if anew {
		r.close()
	}
	s.regions.put(q.Region, next)
	return &ctl.RegMRReply{Handle: q.Region, LKey: uint32(r.mr.LKey()), RKey: uint32(r.mr.RKey())}, nil, nil
}
