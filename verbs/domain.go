package verbs

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
)

// TD is a thread domain: a promise that the objects made with it are used by one goroutine at a time (ibv_alloc_td).
// Nothing here is faster for it, and nothing goes wrong when it is broken: programs that make them run as they are.
type TD struct {
	ctx     *Context
	parents atomic.Int32
}

// AllocTD makes a thread domain.
func (c *Context) AllocTD() (*TD, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	return &TD{ctx: c}, nil
}

// Dealloc destroys the thread domain. EBUSY while parent domains name it.
func (d *TD) Dealloc() error {
	if d.parents.Load() != 0 {
		return fmt.Errorf("dealloc td: parent domains use it: %w", syscall.EBUSY)
	}
	return nil
}

// ParentDomainAttr says what a parent domain is made of; TD may be nil.
type ParentDomainAttr struct {
	PD *PD
	TD *TD
}

// AllocParentDomain makes a parent domain (ibv_alloc_parent_domain): a protection domain for what is made with it, with
// the same keys as attr.PD, which cannot be deallocated before it. EINVAL without a protection domain, or if that is a
// parent domain itself.
func (c *Context) AllocParentDomain(attr ParentDomainAttr) (*PD, error) {
	p := attr.PD
	if p == nil || p.ctx != c || p.parent != nil || attr.TD != nil && attr.TD.ctx != c {
		return nil, fmt.Errorf("alloc parent domain: it needs a protection domain of the same context: %w", syscall.EINVAL)
	}
	if err := c.fail(); err != nil {
		return nil, err
	}
	p.children.Add(1)
	if attr.TD != nil {
		attr.TD.parents.Add(1)
	}
	return &PD{ctx: c, handle: p.handle, parent: &attr}, nil
}

// Dealloc destroys the protection domain. EBUSY while regions, windows, queues, address handles or parent domains are in
// it. A parent domain goes at once: what was made with it is in the protection domain behind it.
func (p *PD) Dealloc() error {
	if p.parent != nil {
		p.parent.PD.children.Add(-1)
		if p.parent.TD != nil {
			p.parent.TD.parents.Add(-1)
		}
		return nil
	}
	if p.children.Load() != 0 {
		return fmt.Errorf("dealloc pd: parent domains use it: %w", syscall.EBUSY)
	}
	return p.ctx.call(ctl.OpDeallocPD, &ctl.Handle{Handle: p.handle}, &ctl.Empty{})
}
