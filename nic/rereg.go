package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// ReregMR changes a registration (ibv_rereg_mr): the domain to p with ReregPD, the rights to those of cfg with
// ReregAccess, the memory to that of cfg with ReregTranslation. The keys stay as they are. It returns when the device does
// not touch what was registered before: the caller may close that region.
//
// The error wraps EBUSY while memory windows are bound to the region, otherwise what RegMR's would; the region is then as
// it was. Requests that use the region meanwhile see either of both, as IBA leaves it to those who post them.
func (c *Context) ReregMR(m *MR, flags ib.ReregFlags, p *PD, cfg MRConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reregMR(m, flags, p, cfg); err != nil {
		return fmt.Errorf("rereg mr: %w", err)
	}
	c.dev.Grace()
	return nil
}

const reregFlags = ib.ReregTranslation | ib.ReregPD | ib.ReregAccess

func (c *Context) reregMR(m *MR, flags ib.ReregFlags, p *PD, cfg MRConfig) error {
	if err := c.usable(); err != nil {
		return err
	}
	if m == nil || m.ctx != c || m.at < 0 {
		return fmt.Errorf("no such memory region in this context: %w", syscall.EINVAL)
	}
	if flags == 0 || flags&^reregFlags != 0 {
		return fmt.Errorf("flags %s: one or more of %s: %w", flags, reregFlags, syscall.EINVAL)
	}
	next := *m.mr
	if flags&ib.ReregPD == 0 {
		p = m.pd
	} else if err := c.ownsPD(p); err != nil {
		return err
	}
	next.Domain = &p.domain
	if flags&ib.ReregAccess != 0 {
		if err := checkAccess(cfg.Access); err != nil {
			return err
		}
		next.Access = cfg.Access &^ ib.AccessOptional
	}
	if flags&ib.ReregTranslation != 0 {
		if cfg.Region == nil || cfg.Length == 0 {
			return fmt.Errorf("%d bytes: there is nothing to register: %w", cfg.Length, syscall.EINVAL)
		}
		next.Region, next.Offset, next.Base, next.Length = cfg.Region, cfg.Offset, cfg.Base, cfg.Length
	}
	if err := checkZeroBased(next.Access, next.Base); err != nil {
		return err
	}
	if err := c.dev.keys.Replace(m.mr, &next); err != nil {
		return err
	}
	m.mr = &next
	m.pd.refs--
	m.pd = p
	p.refs++
	return nil
}
