package nic

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"golang.org/x/sys/unix"
)

// ContextConfig is what a context is made of.
type ContextConfig struct {
	// Tenant is whom quotas and fair shares concern: a user id.
	Tenant uint64
	// Process is the application's process id, for those who ask what the device is used for; 0 if it is not known.
	Process int
	// Owner is the daemon's own user, for whom the device's limits are the only ones.
	Owner bool
	// Privileged says that the application may give its queue pairs controlled Q_Keys (IBA 10.2.5), as the owner may.
	Privileged bool
	// Doorbell is the page that the application rings, abi.DoorbellSize bytes; nil for none.
	Doorbell []byte
	// Async takes asynchronous events: of the queue pair or completion queue with this handle and cookie, of port 1, or
	// of the device (handle 0). It is called from shards and must neither block nor call the device.
	Async func(t ib.EventType, handle uint32, cookie uint64)
}

// Context is an application's use of a device: what was made in it goes with it. Its methods may be called from any
// goroutine; each waits for the one before.
type Context struct {
	dev    *Device
	cfg    ContextConfig
	serial uint64 // counts the device's contexts, from 1
	parts  []*part
	bellFD int
	purse  *purse

	mu     sync.Mutex // one control call at a time; shards never take it
	closed bool
	pds    members[*PD]
	mrs    members[*MR]
	mws    members[*MW]
	cqs    members[*CQ]
	srqs   members[*SRQ]
	xrcds  members[*XRCD]
	// targets are handles of XRC targets, which are in another context.
	targets members[*QP]
	ahs     members[*AH]
	routes  routes // of address handles
	memory  uint64 // charged by ChargeMemory

	eventMu sync.Mutex
	async   func(t ib.EventType, handle uint32, cookie uint64)

	panics    atomic.Int32
	abandoned atomic.Bool // the device gave the context up after a second panic
	dead      atomic.Bool // of a memory fault or a second panic; a shard sets it
}

// OpenContext makes a context.
func (d *Device) OpenContext(cfg ContextConfig) (*Context, error) {
	c := &Context{dev: d, cfg: cfg, async: cfg.Async, bellFD: -1}
	err := c.divide(cfg.Doorbell)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	if c.purse, err = d.ledger.open(cfg.Tenant, cfg.Owner); err != nil {
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	// From here on a Close of the device finds the context, and waits until it is whole.
	c.mu.Lock()
	defer c.mu.Unlock()
	err = d.enter(c)
	if err == nil {
		if err = c.openBell(); err != nil {
			d.leave(c)
		}
	}
	if err != nil {
		c.closed = true
		c.purse.uncharge(resContexts, 1)
		return nil, fmt.Errorf("open %s: %w", d.name, err)
	}
	d.everywhere(func(s *shard, _ clock.Time) { s.attach(c) })
	return c, nil
}

// enter puts a context into the device's list, unless the device is going away.
func (d *Device) enter(c *Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return fmt.Errorf("the device is shutting down: %w", syscall.ENODEV)
	}
	d.opened++
	c.serial = d.opened
	d.contexts = append(d.contexts, c)
	return nil
}

func (d *Device) leave(c *Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.contexts, c); i >= 0 {
		d.contexts = slices.Delete(d.contexts, i, i+1)
	}
}

// BellFD returns the eventfd that wakes the device when this context's application rings its doorbell, -1 for a manual
// device. Other users than the daemon's have one for themselves, since who holds an eventfd can fill it and so silence
// those who share it.
func (c *Context) BellFD() int { return c.bellFD }

func (c *Context) openBell() (err error) {
	c.bellFD = c.dev.bellFD
	if c.bellFD >= 0 && !c.cfg.Owner {
		c.bellFD, err = c.dev.newBell()
	}
	return err
}

func (c *Context) closeBell() {
	if c.bellFD >= 0 && c.bellFD != c.dev.bellFD {
		// Closing takes it out of the shards' epoll sets only if nobody else holds it.
		for _, s := range c.dev.shards {
			s.wait.forgetBell(c.bellFD)
		}
		_ = unix.Close(c.bellFD)
	}
}

// Close destroys everything made in the context, in order of dependency, and returns when the device touches none of its
// memory any more: rings, doorbell page and regions can be unmapped. The caller closes the regions. Once more does
// nothing.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.eventMu.Lock()
	c.async = nil
	c.eventMu.Unlock()

	c.detachAll()
	c.closeXRC() // first: targets live elsewhere, and complete in this context's queues until they have lost them
	for _, q := range c.dev.detach(c) {
		q.release()
	}
	for len(c.mws.list) > 0 {
		c.forgetMW(c.mws.list[0])
	}
	for len(c.mrs.list) > 0 {
		// Nothing is bound to it any more, so that it cannot stay.
		_ = c.forgetMR(c.mrs.list[0])
	}
	c.dev.Grace()
	for len(c.cqs.list) > 0 {
		c.forgetCQ(c.cqs.list[0])
	}
	for len(c.srqs.list) > 0 {
		c.forgetSRQ(c.srqs.list[0])
	}
	for len(c.ahs.list) > 0 {
		c.forgetAH(c.ahs.list[0])
	}
	for len(c.pds.list) > 0 {
		c.forgetPD(c.pds.list[0])
	}
	if c.memory > 0 {
		c.purse.uncharge(resMemory, c.memory)
		c.memory = 0
	}
	c.closeBell()
	c.purse.uncharge(resContexts, 1)
	c.dev.leave(c)
	return nil
}

// ChargeMemory charges n bytes of application memory that is to be mapped for this context. Close gives back what
// ReleaseMemory did not. The error wraps EDQUOT or ENOMEM.
func (c *Context) ChargeMemory(n uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	if err := c.purse.charge(resMemory, n); err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	c.memory += n
	return nil
}

// ReleaseMemory gives n charged bytes back.
func (c *Context) ReleaseMemory(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = min(n, c.memory)
	if n == 0 {
		return
	}
	c.memory -= n
	c.purse.uncharge(resMemory, n)
}

// usable says why nothing can be made in the context. c.mu is held.
func (c *Context) usable() error {
	if c.closed {
		return fmt.Errorf("the context is closed: %w", syscall.EINVAL)
	}
	if c.dead.Load() {
		return fmt.Errorf("the context failed earlier: %w", syscall.EIO)
	}
	return nil
}

// event raises an asynchronous event.
func (c *Context) event(t ib.EventType, handle uint32, cookie uint64) {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	if c.async != nil {
		c.async(t, handle, cookie)
	}
}

// members is a list whose members know their place in it, so that each leaves in constant time.
type members[T interface{ place() *int }] struct{ list []T }

func (m *members[T]) add(v T) {
	*v.place() = len(m.list)
	m.list = append(m.list, v)
}

// remove takes v out, which is in the list.
func (m *members[T]) remove(v T) {
	var none T
	i, last := *v.place(), len(m.list)-1
	m.list[i] = m.list[last]
	*m.list[i].place() = i
	m.list[last] = none
	m.list = m.list[:last]
	*v.place() = -1
}
