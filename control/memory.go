package control

import (
	"errors"
	"fmt"
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
	asked ctl.RegMR  // what it was made of
	arena *arena     // nil unless it is shared memory
	own   dma.Region // process or embedded memory, closed with the registration
}

func (r *region) close() {
	if r.own != nil {
		r.own.Close()
	}
	if r.arena != nil {
		r.arena.users--
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
	pd, err := s.domains.get(q.PD)
	if err != nil {
		return nil, nil, err
	}
	c := nic.MRConfig{Base: q.Base, Length: q.Length, Access: ib.AccessFlags(q.Access)}
	r := &region{asked: *q}
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

// locate finds the memory that r was asked to be made of.
func (s *Session) locate(r *region, c *nic.MRConfig, in *attachments) error {
	switch q := &r.asked; q.Kind {
	case ctl.MemoryShared:
		return s.sharedRegion(q, r, c, in)
	case ctl.MemoryProcess:
		return s.processRegion(q, r, c, in)
	case ctl.MemoryEmbedded:
		return s.embeddedRegion(q, r, c, in)
	default:
		return fmt.Errorf("memory of kind %d: %w", q.Kind, syscall.EINVAL)
	}
}

func (s *Session) sharedRegion(q *ctl.RegMR, r *region, c *nic.MRConfig, in *attachments) error {
	if in.left() > 0 {
		return fmt.Errorf("shared memory comes by its arena, not by descriptor: %w", syscall.EINVAL)
	}
	a, err := s.arenas.get(q.Arena)
	if err != nil {
		return err
	}
	if err := a.bounds(q.Offset, q.Length); err != nil {
		return err
	}
	a.users++
	r.arena = a
	c.Region, c.Offset = a.region, q.Offset
	return nil
}

// processRegion registers memory that the application did not take from us. Its owner can make any access stall, by
// backing it with FUSE or userfaultfd, and a shard must not stall: so this is for the daemon's own user, who could stop
// the daemon in simpler ways.
func (s *Session) processRegion(q *ctl.RegMR, r *region, c *nic.MRConfig, in *attachments) error {
	if s.peer.Embedded {
		return fmt.Errorf("an embedded device takes memory, not addresses: %w", syscall.EINVAL)
	}
	if s.foreign {
		return fmt.Errorf("user %d may register only memory of AllocBuffer: memory of its own could stall the device of all (only the daemon's user may): %w",
			s.peer.UID, syscall.EPERM)
	}
	if err := s.openProcess(in); err != nil {
		return err
	}
	write := c.Access&ib.AccessLocalWrite != 0
	own, err := dma.NewProcess(s.process, q.Addr, q.Length, write)
	if err != nil {
		return err
	}
	r.own, c.Region = own, own
	return nil
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

func (s *Session) embeddedRegion(q *ctl.RegMR, r *region, c *nic.MRConfig, in *attachments) error {
	if !s.peer.Embedded {
		return fmt.Errorf("memory of kind %d is for embedded devices: %w", q.Kind, syscall.EINVAL)
	}
	if in.left() != 1 {
		return fmt.Errorf("no memory came with it: %w", syscall.EINVAL)
	}
	mem := in.take().Memory
	if uint64(len(mem)) != q.Length {
		return fmt.Errorf("the memory has %d bytes, not %d: %w", len(mem), q.Length, syscall.EINVAL)
	}
	r.own = dma.NewEmbedded(mem)
	c.Region = r.own
	return nil
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
