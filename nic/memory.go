package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// PD is a protection domain: memory and queue pairs work together only within one.
type PD struct {
	ctx    *Context
	domain dma.Domain
	at     int
	refs   int // regions, windows, queue pairs, shared receive queues
}

func (p *PD) place() *int { return &p.at }

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return nil, fmt.Errorf("alloc pd: %w", err)
	}
	if err := c.purse.charge(resPDs, 1); err != nil {
		return nil, fmt.Errorf("alloc pd: %w", err)
	}
	p := &PD{ctx: c}
	c.pds.add(p)
	return p, nil
}

// DeallocPD destroys a protection domain. The error wraps EBUSY while regions, windows or queues use it.
func (c *Context) DeallocPD(p *PD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsPD(p); err != nil {
		return fmt.Errorf("dealloc pd: %w", err)
	}
	if p.refs > 0 {
		return fmt.Errorf("dealloc pd: %d regions and queues use it: %w", p.refs, syscall.EBUSY)
	}
	c.forgetPD(p)
	return nil
}

func (c *Context) forgetPD(p *PD) {
	c.pds.remove(p)
	c.purse.uncharge(resPDs, 1)
}

func (c *Context) ownsPD(p *PD) error {
	if p == nil || p.ctx != c || p.at < 0 {
		return fmt.Errorf("no such protection domain in this context: %w", syscall.EINVAL)
	}
	return nil
}

// MRConfig describes a memory registration: Length bytes at Offset of Region, which requests name by addresses from Base
// on.
type MRConfig struct {
	Region               dma.Region
	Offset, Base, Length uint64
	Access               ib.AccessFlags
}

// MR is a memory region.
type MR struct {
	ctx *Context
	pd  *PD
	mr  *dma.MR // another one after ReregMR
	at  int
}

func (m *MR) place() *int { return &m.at }

// LKey returns the key for local use.
func (m *MR) LKey() ib.LKey { return m.mr.LKey }

// RKey returns the key for peers.
func (m *MR) RKey() ib.RKey { return m.mr.RKey }

// Rights on memory that the device grants, and those that it knows but does not offer.
const (
	accessRights = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessZeroBased |
		ib.AccessHugeTLB | ib.AccessMWBind | ib.AccessFlushGlobal
	// No memory here is known to outlive the host's power, so none can promise what FLUSH_PERSISTENT asks for.
	accessMissing = ib.AccessOnDemand | ib.AccessFlushPersistent
)

// RegMR registers memory (ibv_reg_mr). The error wraps EINVAL for what makes no sense, EOPNOTSUPP for rights the device
// does not have, ENOMEM or EDQUOT when there are too many.
func (c *Context) RegMR(p *PD, cfg MRConfig) (*MR, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.regMR(p, cfg)
	if err != nil {
		return nil, fmt.Errorf("reg mr: %w", err)
	}
	return m, nil
}

func (c *Context) regMR(p *PD, cfg MRConfig) (*MR, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.ownsPD(p); err != nil {
		return nil, err
	}
	if cfg.Region == nil || cfg.Length == 0 {
		return nil, fmt.Errorf("%d bytes: there is nothing to register: %w", cfg.Length, syscall.EINVAL)
	}
	if err := checkAccess(cfg.Access); err != nil {
		return nil, err
	}
	if err := checkZeroBased(cfg.Access, cfg.Base); err != nil {
		return nil, err
	}
	if err := c.purse.charge(resMRs, 1); err != nil {
		return nil, err
	}
	m := &MR{ctx: c, pd: p, mr: &dma.MR{
		Domain: &p.domain,
		Region: cfg.Region,
		Offset: cfg.Offset,
		Base:   cfg.Base,
		Length: cfg.Length,
		Access: cfg.Access &^ ib.AccessOptional,
	}}
	if err := c.dev.keys.Insert(m.mr); err != nil {
		c.purse.uncharge(resMRs, 1)
		return nil, err
	}
	p.refs++
	c.mrs.add(m)
	return m, nil
}

func checkAccess(a ib.AccessFlags) error {
	if missing := a & accessMissing; missing != 0 {
		return fmt.Errorf("access %s: the device does not offer %s: %w", a, missing, syscall.EOPNOTSUPP)
	}
	if unknown := a &^ (accessRights | accessMissing | ib.AccessOptional); unknown != 0 {
		return fmt.Errorf("access %s: unknown bits %s: %w", a, unknown, syscall.EINVAL)
	}
	// IBA 10.6.3.1: who lets others write must be allowed to write.
	if a&(ib.AccessRemoteWrite|ib.AccessRemoteAtomic) != 0 && a&ib.AccessLocalWrite == 0 {
		return fmt.Errorf("access %s: remote writing needs local writing: %w", a, syscall.EINVAL)
	}
	return nil
}

// checkZeroBased holds zero-based regions to their name.
func checkZeroBased(a ib.AccessFlags, base uint64) error {
	if a&ib.AccessZeroBased != 0 && base != 0 {
		return fmt.Errorf("access %s: a zero-based region begins at address 0, not %#x: %w", a, base, syscall.EINVAL)
	}
	return nil
}

// DeregMR ends a registration and returns when the device does not touch the memory any more: the caller may close the
// region. The error wraps EBUSY while memory windows are bound to the region.
func (c *Context) DeregMR(m *MR) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == nil || m.ctx != c || m.at < 0 {
		return fmt.Errorf("dereg mr: no such memory region in this context: %w", syscall.EINVAL)
	}
	if err := c.forgetMR(m); err != nil {
		return fmt.Errorf("dereg mr: %w", err)
	}
	c.dev.Grace()
	return nil
}

func (c *Context) forgetMR(m *MR) error {
	if err := c.dev.keys.Remove(m.mr); err != nil {
		return err
	}
	c.mrs.remove(m)
	m.pd.refs--
	c.purse.uncharge(resMRs, 1)
	return nil
}
