package nic

import (
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// MW is a memory window. It is bound and invalidated by work requests, and by the peer's SEND WITH INVALIDATE: see
// dma.Window.
type MW struct {
	ctx    *Context
	pd     *PD
	window dma.Window
	at     int
}

func (m *MW) place() *int { return &m.at }

// RKey returns the key as the last bind set it.
func (m *MW) RKey() ib.RKey { return m.window.RKey() }

// AllocMW makes a memory window (ibv_alloc_mw), bound to nothing. Requests to bind it name it by handle. The error wraps
// EINVAL for what makes no sense, ENOMEM or EDQUOT when there are too many.
func (c *Context) AllocMW(p *PD, t ib.MWType, handle uint32) (*MW, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.allocMW(p, t, handle)
	if err != nil {
		return nil, fmt.Errorf("alloc mw: %w", err)
	}
	return m, nil
}

func (c *Context) allocMW(p *PD, t ib.MWType, handle uint32) (*MW, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.ownsPD(p); err != nil {
		return nil, err
	}
	if t != ib.MWType1 && t != ib.MWType2 {
		return nil, fmt.Errorf("%v: there are windows of type 1 and 2: %w", t, syscall.EINVAL)
	}
	if err := c.purse.charge(resMWs, 1); err != nil {
		return nil, err
	}
	m := &MW{ctx: c, pd: p, window: dma.Window{Domain: &p.domain, Type: t, Handle: handle}}
	if err := c.dev.keys.InsertWindow(&m.window); err != nil {
		c.purse.uncharge(resMWs, 1)
		return nil, err
	}
	p.refs++
	c.mws.add(m)
	return m, nil
}

// DeallocMW destroys a memory window, bound or not. Its key names nothing any more when it returns.
func (c *Context) DeallocMW(m *MW) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m == nil || m.ctx != c || m.at < 0 {
		return fmt.Errorf("dealloc mw: no such memory window in this context: %w", syscall.EINVAL)
	}
	c.forgetMW(m)
	return nil
}

func (c *Context) forgetMW(m *MW) {
	c.dev.keys.RemoveWindow(&m.window)
	c.mws.remove(m)
	m.pd.refs--
	c.purse.uncharge(resMWs, 1)
}

// releaseWindows unbinds the windows of type 2 that a queue pair has bound which is no more: their number will be that of
// another one day. A queue pair goes whatever is bound to it (o10-2.2.5).
func (c *Context) releaseWindows(q *QP) {
	for _, m := range c.mws.list {
		c.dev.keys.Release(&m.window, q.qpn)
	}
}
