package control

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/nic"
)

// region is a registered memory region and where it lies.
type region struct {
	mr    *nic.MR
	asked ctl.RegMR // what it was made of
	parts []ctl.MemoryPart
	// What it holds on to: the arenas that it lies in, and the regions that are closed with it.
	arenas []*arena
	own    []dma.Region
}

func (r *region) close() {
	for _, own := range slices.Backward(r.own) {
		own.Close()
	}
	for _, a := range r.arenas {
		a.users--
	}
}

func (s *Session) allocPD(*ctl.Empty) (any, error) {
	pd, err := s.ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	h := s.domains.next()
	s.domains.put(h, pd)
	return &ctl.HandleReply{Handle: h}, nil
}

func (s *Session) deallocPD(q *ctl.Handle) (any, error) {
	pd, err := s.domains.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DeallocPD(pd); err != nil {
		return nil, fmt.Errorf("protection domain %d: %w", q.Handle, err)
	}
	s.domains.remove(q.Handle)
	return &ctl.Empty{}, nil
}

func (s *Session) regMR(q *ctl.RegMR, in *attachments) (any, []ctl.Attachment, error) {
	return s.register(&region{asked: *q}, in)
}

// register makes the region that r asks for.
func (s *Session) register(r *region, in *attachments) (any, []ctl.Attachment, error) {
	q := &r.asked
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, nil, err
	}
	c := nic.MRConfig{Base: q.Base, Length: q.Length, Access: ib.AccessFlags(q.Access)}
	if err := s.locate(r, &c, in); err != nil {
		return nil, nil, err
	}
	if r.mr, err = s.ctx.RegMR(pd, c); err != nil {
		r.close()
		return nil, nil, err
	}
	h := s.regions.next()
	s.regions.put(h, r)
	return &ctl.RegMRReply{Handle: h, LKey: uint32(r.mr.LKey()), RKey: uint32(r.mr.RKey())}, nil, nil
}

// locate finds the memory that r was asked to be made of. In case of an error r holds on to nothing.
func (s *Session) locate(r *region, c *nic.MRConfig, in *attachments) (err error) {
	switch q := &r.asked; q.Kind {
	case ctl.MemoryShared:
		c.Offset = q.Offset
		c.Region, err = s.sharedRegion(r, q.Arena, q.Offset, q.Length, in)
	case ctl.MemoryProcess:
		c.Region, err = s.processRegion(r, q.Addr, q.Length, c.Access, in)
	case ctl.MemoryParts:
		c.Region, err = s.composite(r, c.Access, in)
	case ctl.MemoryEmbedded:
		c.Region, err = s.embeddedRegion(r, in)
	default:
		err = fmt.Errorf("memory of kind %d: %w", q.Kind, syscall.EINVAL)
	}
	if err != nil {
		r.close()
		r.own, r.arenas = nil, nil
	}
	return err
}

// sharedRegion returns the region of an arena in which length bytes at offset are to be used.
func (s *Session) sharedRegion(r *region, handle uint32, offset, length uint64, in *attachments) (dma.Region, error) {
	if in.left() > 0 {
		return nil, fmt.Errorf("shared memory comes by its arena, not by descriptor: %w", syscall.EINVAL)
	}
	a, err := s.arenas.get(handle)
	if err != nil {
		return nil, err
	}
	if err := a.bounds(offset, length); err != nil {
		return nil, err
	}
	a.users++
	r.arenas = append(r.arenas, a)
	if a.mapped {
		shm.PrefaultPresent(a.mem[offset : offset+length])
	}
	return a.region, nil
}

// processRegion registers memory that the application did not take from us. Its owner can make any access stall, by
// backing it with FUSE or userfaultfd, and a shard must not stall: so this is for the daemon's own user, who could stop
// the daemon in simpler ways.
func (s *Session) processRegion(r *region, addr, length uint64, access ib.AccessFlags, in *attachments) (dma.Region, error) {
	if s.peer.Embedded {
		return nil, fmt.Errorf("an embedded device takes memory, not addresses: %w", syscall.EINVAL)
	}
	if s.foreign {
		return nil, fmt.Errorf("user %d may register only memory of AllocBuffer: memory of its own could stall the device of all (only the daemon's user may): %w",
			s.peer.UID, syscall.EPERM)
	}
	if err := s.openProcess(in); err != nil {
		return nil, err
	}
	own, err := dma.NewProcess(s.process, addr, length, access&ib.AccessLocalWrite != 0)
	if err != nil {
		return nil, err
	}
	r.own = append(r.own, own)
	return own, nil
}

// openProcess finds the way into the application's memory: the descriptors of its /proc/self/mem and /proc/self/maps, if
// it passed some now or before, else its process number.
func (s *Session) openProcess(in *attachments) error {
	if s.process != nil {
		return nil // what came now as well is closed
	}
	mem, maps := -1, -1
	var err error
	for i := range in.left() {
		fd := in.list[in.taken+i].FD
		// A duplicate, so that the request's own descriptors are closed in any case.
		fd, e := dup(fd)
		if err = errors.Join(err, e); i == 0 {
			mem = fd
		} else {
			maps = fd
		}
	}
	var p *shm.Process
	if err == nil {
		p, err = shm.OpenProcess(s.peer.PID, mem, maps)
	}
	if err != nil {
		closeAll([]ctl.Attachment{{FD: mem}, {FD: maps}})
		return err
	}
	s.process = p
	return nil
}

func (s *Session) embeddedRegion(r *region, in *attachments) (dma.Region, error) {
	if !s.peer.Embedded {
		return nil, fmt.Errorf("memory of kind %d is for embedded devices: %w", r.asked.Kind, syscall.EINVAL)
	}
	if in.left() != 1 {
		return nil, fmt.Errorf("no memory came with it: %w", syscall.EINVAL)
	}
	mem := in.take().Memory
	if uint64(len(mem)) != r.asked.Length {
		return nil, fmt.Errorf("the memory has %d bytes, not %d: %w", len(mem), r.asked.Length, syscall.EINVAL)
	}
	own := dma.NewEmbedded(mem)
	r.own = append(r.own, own)
	return own, nil
}

func (s *Session) deregMR(q *ctl.Handle) (any, error) {
	r, err := s.regions.get(q.Handle)
	if err != nil {
		return nil, err
	}
	if err := s.ctx.DeregMR(r.mr); err != nil {
		return nil, fmt.Errorf("memory region %d: %w", q.Handle, err)
	}
	s.regions.remove(q.Handle)
	r.close()
	return &ctl.Empty{}, nil
}
