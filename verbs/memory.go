package verbs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// PD is a protection domain: queue pairs use memory regions of their own domain only.
type PD struct {
	ctx      *Context
	handle   uint32
	parent   *ParentDomainAttr // what a parent domain was made of
	children atomic.Int32      // parent domains of it
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	var r ctl.HandleReply
	if err := c.call(ctl.OpAllocPD, &ctl.Empty{}, &r); err != nil {
		return nil, err
	}
	return &PD{ctx: c, handle: r.Handle}, nil
}

// Buffer is memory that the application and the device share: the kind that is fastest to register and to reach.
type Buffer struct {
	ctx   *Context
	block arena.Block
}

// AllocBuffer returns size bytes of zeroed memory that begins on a page. It belongs to the context, not to the domain.
func (p *PD) AllocBuffer(size int) (*Buffer, error) {
	if size <= 0 {
		return nil, fmt.Errorf("alloc buffer of %d bytes: %w", size, syscall.EINVAL)
	}
	if err := p.ctx.fail(); err != nil {
		return nil, err
	}
	b, err := p.ctx.arenas.Alloc(uint64(size), uint64(os.Getpagesize()))
	if err != nil {
		return nil, fmt.Errorf("alloc buffer of %d bytes: %w", size, err)
	}
	if b.Used {
		clear(b.Mem)
	}
	return &Buffer{p.ctx, b}, nil
}

// Bytes returns the memory. It must not be touched after Free, or after the context was closed.
func (b *Buffer) Bytes() []byte { return b.block.Mem }

// Free gives the memory back. Regions in it have been deregistered before.
func (b *Buffer) Free() error {
	if b.ctx.closed.Load() || b.block.Mem == nil {
		return nil
	}
	err := b.ctx.arenas.Free(b.block)
	b.block.Mem = nil
	return err
}

// MR is a registered memory region.
type MR struct {
	ctx    *Context
	handle uint32
	lkey   ib.LKey
	rkey   ib.RKey
	addr   uint64
	mem    []byte
	access ib.AccessFlags
	pinner *runtime.Pinner
}

// MROption is a property of a memory region.
type MROption func(*ctl.RegMR)

// WithIOVA sets the address by which requests name the first byte, in place of its virtual address (ibv_reg_mr_iova).
func WithIOVA(addr uint64) MROption { return func(q *ctl.RegMR) { q.Base = addr } }

// RegMR registers mem for the device (ibv_reg_mr). Requests name its bytes by address, the first one by its virtual
// address unless there is a WithIOVA, or ib.AccessZeroBased in access, for which it is 0.
//
// Memory of AllocBuffer, or a part of it, is registered as memory that the device shares; the pages of its first 256 MiB are
// made present, so that no message has to wait for them. Other memory is pinned and the device reaches it through the
// operating system: slower, and only in programs of the daemon's own user; EPERM otherwise. An embedded device takes any
// memory as it is.
func (p *PD) RegMR(mem []byte, access ib.AccessFlags, opts ...MROption) (*MR, error) {
	c := p.ctx
	if err := c.fail(); err != nil {
		return nil, err
	}
	if len(mem) == 0 {
		return nil, fmt.Errorf("reg mr: no memory: %w", syscall.EINVAL)
	}
	q := &ctl.RegMR{PD: p.handle}
	describe(q, mem, access, opts)
	var r ctl.RegMRReply
	pinned, err := c.register(q, mem, func(attach ...ctl.Attachment) error { return c.call(ctl.OpRegMR, q, &r, attach...) })
	if err != nil {
		return nil, err
	}
	m := &MR{
		ctx: c, handle: r.Handle, lkey: ib.LKey(r.LKey), rkey: ib.RKey(r.RKey), addr: q.Base, mem: mem, access: access, pinner: pinned,
	}
	c.mu.Lock()
	c.pinned[m] = struct{}{}
	c.mu.Unlock()
	return m, nil
}

// registerOwn registers memory that the device has not mapped.
func (c *Context) registerOwn(q *ctl.RegMR, mem []byte, call func(...ctl.Attachment) error) error {
	if c.embedded {
		q.Kind = ctl.MemoryEmbedded
		return call(ctl.Attachment{FD: -1, Memory: mem})
	}
	q.Kind = ctl.MemoryProcess
	c.mu.Lock()
	known := c.process
	c.mu.Unlock()
	if known {
		return call()
	}
	// With these two the daemon needs neither our process number nor the right to trace us.
	var attach []ctl.Attachment
	for _, f := range []struct {
		name string
		flag int
	}{{"/proc/self/mem", os.O_RDWR}, {"/proc/self/maps", os.O_RDONLY}} {
		file, err := os.OpenFile(f.name, f.flag, 0)
		if err != nil {
			return fmt.Errorf("reg mr: %w", err)
		}
		defer file.Close()
		attach = append(attach, ctl.Attachment{FD: int(file.Fd())})
	}
	err := call(attach...)
	if err == nil {
		c.mu.Lock()
		c.process = true
		c.mu.Unlock()
	}
	return err
}

// LKey returns the key for requests of the own side.
func (m *MR) LKey() ib.LKey { return m.lkey }

// RKey returns the key for the peer's requests.
func (m *MR) RKey() ib.RKey { return m.rkey }

// Addr returns the address by which requests name the first byte.
func (m *MR) Addr() uint64 { return m.addr }

// Bytes returns the memory that is registered.
func (m *MR) Bytes() []byte { return m.mem }

// SGE names n bytes of the region from off on. Bounds are the device's to judge: what is outside ends in a completion with
// IBV_WC_LOC_PROT_ERR.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.lkey}
}

// Dereg ends the registration. When it returns the device does not touch the memory any more. EBUSY while memory windows
// are bound to it.
func (m *MR) Dereg() error {
	err := m.ctx.call(ctl.OpDeregMR, &ctl.Handle{Handle: m.handle}, &ctl.Empty{})
	if err != nil && !errors.Is(err, ErrDeviceFatal) {
		return err
	}
	m.ctx.mu.Lock()
	_, ok := m.ctx.pinned[m]
	delete(m.ctx.pinned, m)
	m.ctx.mu.Unlock()
	if ok {
		m.pinner.Unpin()
	}
	return err
}
