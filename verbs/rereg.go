package verbs

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
)

// Rereg changes the registration (ibv_rereg_mr): the protection domain to pd with ib.ReregPD, the rights to access with
// ib.ReregAccess, the memory to mem with ib.ReregTranslation. What flags do not name is not looked at. The keys stay. When
// it returns the device does not touch the memory of before any more.
//
// EBUSY while memory windows are bound to the region; after any error but [ErrDeviceFatal] it is as it was. Nobody may use
// the region meanwhile: requests under way see the one or the other.
func (m *MR) Rereg(flags ib.ReregFlags, pd *PD, mem []byte, access ib.AccessFlags, opts ...MROption) error {
	c := m.ctx
	q := &ctl.ReregMR{Region: m.handle, Flags: uint32(flags)}
	q.MR.Access = uint32(access)
	if flags&ib.ReregPD != 0 {
		if pd == nil || pd.ctx != c {
			return fmt.Errorf("rereg mr: it needs a protection domain of the same context: %w", syscall.EINVAL)
		}
		q.MR.PD = pd.handle
	}
	var r ctl.RegMRReply
	if flags&ib.ReregTranslation == 0 {
		if err := c.call(ctl.OpReregMR, q, &r); err != nil {
			return err
		}
		if flags&ib.ReregAccess != 0 {
			m.access = access
		}
		m.lkey, m.rkey = ib.LKey(r.LKey), ib.RKey(r.RKey)
		return nil
	}
	if len(mem) == 0 {
		return fmt.Errorf("rereg mr: no memory: %w", syscall.EINVAL)
	}
	if flags&ib.ReregAccess == 0 {
		access = m.access
	}
	describe(&q.MR, mem, access, opts)
	pinned, err := c.register(&q.MR, mem, func(attach ...ctl.Attachment) error { return c.call(ctl.OpReregMR, q, &r, attach...) })
	if err != nil {
		return err
	}
	c.mu.Lock()
	before := m.pinner
	m.pinner = pinned
	c.mu.Unlock()
	before.Unpin()
	m.addr, m.mem, m.access = q.MR.Base, mem, access
	m.lkey, m.rkey = ib.LKey(r.LKey), ib.RKey(r.RKey)
	return nil
}

// describe says where the memory of a region is.
func describe(q *ctl.RegMR, mem []byte, access ib.AccessFlags, opts []MROption) {
	q.Access, q.Addr, q.Length = uint32(access), uint64(address(mem)), uint64(len(mem))
	if access&ib.AccessZeroBased == 0 {
		q.Base = q.Addr
	}
	for _, f := range opts {
		f(q)
	}
}

// register makes the call that registers mem, with what has to come with it. The memory is pinned if it is the program's
// own.
func (c *Context) register(q *ctl.RegMR, mem []byte, call func(...ctl.Attachment) error) (*runtime.Pinner, error) {
	pinned := new(runtime.Pinner)
	var err error
	if b, ok := c.arenas.Find(mem, address); ok {
		q.Kind, q.Arena, q.Offset = ctl.MemoryShared, b.Arena, b.Offset
		if !c.embedded {
			shm.Prefault(mem)
		}
		err = call()
	} else {
		pinned.Pin(&mem[0])
		err = c.registerOwn(q, mem, call)
	}
	if err != nil {
		pinned.Unpin()
		return nil, err
	}
	return pinned, nil
}
