package control

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// regMRParts registers memory that is in part shared with us and in part the application's own, or changes a registration
// to be of such.
func (s *Session) regMRParts(q *ctl.RegMRParts, in *attachments) (any, []ctl.Attachment, error) {
	if q.MR.Kind != ctl.MemoryParts || q.Count == 0 || q.Count > ctl.MaxMemoryParts {
		return nil, nil, fmt.Errorf("memory of kind %d in %d parts: 1 to %d make a region: %w", q.MR.Kind, q.Count, ctl.MaxMemoryParts, syscall.EINVAL)
	}
	parts := q.Parts[:q.Count:q.Count]
	if q.Region != 0 {
		return s.reregister(&ctl.ReregMR{Region: q.Region, Flags: q.Flags, MR: q.MR}, parts, in)
	}
	return s.register(&region{asked: q.MR, parts: parts}, in)
}

// composite makes one region of the parts of r.
func (s *Session) composite(r *region, access ib.AccessFlags, in *attachments) (dma.Region, error) {
	var parts []dma.Part
	left := r.asked.Length
	if left > 0 && r.asked.Addr > ^uint64(0)-(left-1) {
		return nil, fmt.Errorf("%d bytes at %#x pass the end of the address space: %w", left, r.asked.Addr, syscall.EINVAL)
	}
	for i, p := range r.parts {
		if p.Length == 0 || p.Length > left {
			return nil, fmt.Errorf("part %d has %d bytes, where the region has %d left: %w", i, p.Length, left, syscall.EINVAL)
		}
		part := dma.Part{Off: p.Offset, Len: p.Length}
		var err error
		switch p.Kind {
		case ctl.MemoryShared:
			// The descriptors that came are for the others.
			part.Region, err = s.sharedRegion(r, p.Arena, p.Offset, p.Length, new(attachments))
		case ctl.MemoryProcess:
			part.Off = 0
			part.Region, err = s.processRegion(r, r.asked.Addr+(r.asked.Length-left), p.Length, access, in)
		default:
			err = fmt.Errorf("memory of kind %d is no part of another: %w", p.Kind, syscall.EINVAL)
		}
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		parts = append(parts, part)
		left -= p.Length
	}
	if left != 0 {
		return nil, fmt.Errorf("the parts are %d bytes short of the region's %d: %w", left, r.asked.Length, syscall.EINVAL)
	}
	whole, err := dma.NewComposite(parts...)
	if err != nil {
		return nil, err
	}
	r.own = append(r.own, whole) // the last is closed first
	return whole, nil
}
