package nic

import (
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// The extended reliable connection (IBA A14). Processes of a node share an XRC domain. Each makes shared receive queues in
// it for itself; targets, the receiving queue pairs, are the domain's, and any of its processes may open them. So a peer
// reaches all processes of a node over one connection, where plain ones would take one for each process.

// XRCDName is what processes find an XRC domain by: a file, or a name that the processes of one tenant share. The zero
// value is no name: a domain of its own.
type XRCDName struct {
	File     bool
	Dev, Ino uint64 // of the file

	Tenant uint64
	Name   string
}

// XRCDConfig says which XRC domain is meant.
type XRCDConfig struct {
	Name  XRCDName
	Flags ib.XRCDFlags
}

// XRCD is a context's hold on an XRC domain.
type XRCD struct {
	ctx    *Context
	domain *xrcDomain
	at     int
	refs   int // shared receive queues and targets of this context; guarded by ctx.mu
}

func (x *XRCD) place() *int { return &x.at }

// xrcDomain is what XRCDs of the same name share. Its targets are nobody's in particular, since they stay when the process
// that made them goes: they live in a context that belongs to no application.
type xrcDomain struct {
	name XRCDName
	home *Context
	refs int // XRCDs; guarded by xrcRegistry.mu

	// A domain lives on one shard: its targets belong to it, since what they share has no lock.
	shard *shard
	srqs  map[uint32]*SRQ // by number; the shard's own

	mu    sync.Mutex       // held for moments; nothing is asked of the shard meanwhile
	opens map[ib.QPN][]*QP // handles of each target
}

// xrcRegistry knows the domains of a device and the numbers of their shared receive queues. Its lock is taken after a
// context's and before anything is asked of the shard.
type xrcRegistry struct {
	mu      sync.Mutex
	named   map[XRCDName]*xrcDomain
	numbers map[uint32]struct{}
	last    uint32
	domains uint64 // ever made: they take shards in turns
}

// OpenXRCD opens or makes an XRC domain (ibv_open_xrcd). As in Linux the error wraps EAGAIN if there is none and it is not
// to be made, EINVAL if there is one and it was to be new, or if one without a name was not to be made; EDQUOT or ENOMEM
// when there are too many.
func (c *Context) OpenXRCD(cfg XRCDConfig) (*XRCD, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, err := c.openXRCD(cfg)
	if err != nil {
		return nil, fmt.Errorf("open xrcd: %w", err)
	}
	return x, nil
}

func (c *Context) openXRCD(cfg XRCDConfig) (*XRCD, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if unknown := cfg.Flags &^ (ib.XRCDCreate | ib.XRCDExclusive); unknown != 0 {
		return nil, fmt.Errorf("flags %s: %s is unknown: %w", cfg.Flags, unknown, syscall.EINVAL)
	}
	create, shared := cfg.Flags&ib.XRCDCreate != 0, cfg.Name != XRCDName{}
	if !shared && !create {
		return nil, fmt.Errorf("a private domain cannot be found, only made: CREAT is missing: %w", syscall.EINVAL)
	}
	r := &c.dev.xrc
	r.mu.Lock()
	defer r.mu.Unlock()
	var d *xrcDomain
	if shared {
		d = r.named[cfg.Name]
	}
	switch {
	case d == nil && !create:
		return nil, fmt.Errorf("there is none of this name: %w", syscall.EAGAIN)
	case d != nil && cfg.Flags&ib.XRCDExclusive != 0:
		return nil, fmt.Errorf("there is one of this name already: %w", syscall.EINVAL)
	}
	if err := c.purse.charge(resXRCDs, 1); err != nil {
		return nil, err
	}
	if d == nil {
		d = c.newXRCDomain(cfg.Name)
		if shared {
			if r.named == nil {
				r.named = make(map[XRCDName]*xrcDomain)
			}
			r.named[cfg.Name] = d
		}
	}
	d.refs++
	x := &XRCD{ctx: c, domain: d}
	c.xrcds.add(x)
	return x, nil
}

func (c *Context) newXRCDomain(name XRCDName) *xrcDomain {
	d := &xrcDomain{name: name, srqs: make(map[uint32]*SRQ), opens: make(map[ib.QPN][]*QP)}
	d.home = &Context{dev: c.dev, cfg: ContextConfig{Tenant: c.cfg.Tenant}, async: d.raise, bellFD: -1}
	_ = d.home.divide(nil) // there is no page that could be wrong
	c.dev.everywhere(func(s *shard, _ clock.Time) { s.attach(d.home) })
	d.shard = c.dev.shards[c.dev.xrc.domains%uint64(len(c.dev.shards))]
	c.dev.xrc.domains++
	return d
}

// CloseXRCD lets go of an XRC domain; the last one ends it. The error wraps EBUSY while shared receive queues or targets of
// this context are in it.
func (c *Context) CloseXRCD(x *XRCD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsXRCD(x); err != nil {
		return fmt.Errorf("close xrcd: %w", err)
	}
	if x.refs > 0 {
		return fmt.Errorf("close xrcd: %d shared receive queues and targets are in it: %w", x.refs, syscall.EBUSY)
	}
	c.forgetXRCD(x)
	return nil
}

func (c *Context) forgetXRCD(x *XRCD) {
	r, d := &c.dev.xrc, x.domain
	r.mu.Lock()
	defer r.mu.Unlock()
	c.xrcds.remove(x)
	c.purse.uncharge(resXRCDs, 1)
	if d.refs--; d.refs > 0 {
		return
	}
	// Whatever was in it belonged to an XRCD, so nothing is left.
	if r.named[d.name] == d {
		delete(r.named, d.name)
	}
	c.dev.detach(d.home)
}

func (c *Context) ownsXRCD(x *XRCD) error {
	if x == nil || x.ctx != c || x.at < 0 {
		return fmt.Errorf("no such XRC domain in this context: %w", syscall.EINVAL)
	}
	return nil
}

// join makes a shared receive queue one of an XRC domain: it gets a number, by which requests find it.
func (q *SRQ) join(x *XRCD, cq *CQ) error {
	r := &q.ctx.dev.xrc
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.numbers == nil {
		r.numbers = make(map[uint32]struct{})
	}
	if len(r.numbers) == srqnMask {
		return fmt.Errorf("all numbers of shared receive queues are in use: %w", syscall.ENOMEM)
	}
	for taken := true; taken; {
		r.last = (r.last + 1) & srqnMask
		_, taken = r.numbers[r.last]
		taken = taken || r.last == 0
	}
	q.number, q.xrcd, q.cq = r.last, x, cq
	r.numbers[q.number] = struct{}{}
	x.refs++
	cq.attach(0)
	cq.share(q)
	x.domain.shard.do(func(clock.Time) { x.domain.srqs[q.number] = q })
	return nil
}

const srqnMask = 1<<24 - 1

// leave takes a shared receive queue out of its XRC domain, and reports false if a target has a receive of it in hand. By
// force it does that nevertheless: the receive ends nowhere.
func (q *SRQ) leave(force bool) (left bool) {
	d := q.xrcd.domain
	d.shard.do(func(clock.Time) {
		targets := d.home.parts[d.shard.index].slots
		for _, t := range targets {
			if t != nil && t.pool == q && t.inHand && !force {
				return
			}
		}
		left = true
		delete(d.srqs, q.number)
		for _, t := range targets {
			if t != nil && t.pool == q {
				t.pool = nil
			}
		}
	})
	if !left {
		return false
	}
	r := &q.ctx.dev.xrc
	r.mu.Lock()
	delete(r.numbers, q.number)
	r.mu.Unlock()
	q.cq.unshare(q)
	q.cq.detach(0)
	q.xrcd.refs--
	q.xrcd = nil
	return true
}

// Number returns the number of a shared receive queue of an XRC domain, 0 for another (ibv_get_srq_num).
func (q *SRQ) Number() uint32 { return q.number }

// raise hands the events of targets to those who have them open. It is called by the shard.
func (d *xrcDomain) raise(t ib.EventType, handle uint32, _ uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t == ib.EventDeviceFatal { // of the context that the targets live in: it is the end of them all
		for _, opens := range d.opens {
			tell(opens, ib.EventQPFatal)
		}
		return
	}
	tell(d.opens[ib.QPN(handle)], t)
}

func tell(opens []*QP, t ib.EventType) {
	for _, q := range opens {
		q.ctx.event(t, q.handle, q.cookie)
	}
}

// remember and forget keep the list of who has a target open.
func (d *xrcDomain) remember(q *QP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opens[q.qpn] = append(d.opens[q.qpn], q)
}

// forget reports whether q was the last.
func (d *xrcDomain) forget(q *QP) (last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := slices.DeleteFunc(d.opens[q.qpn], func(o *QP) bool { return o == q })
	if d.opens[q.qpn] = left; len(left) > 0 {
		return false
	}
	delete(d.opens, q.qpn)
	return true
}

// checkXRC judges what a shared receive queue says about XRC.
func (c *Context) checkXRC(cfg *SRQConfig) error {
	switch {
	case cfg.XRCD == nil && cfg.CQ == nil:
		return nil
	case cfg.XRCD == nil:
		return fmt.Errorf("a completion queue without an XRC domain: %w", syscall.EINVAL)
	}
	if err := c.ownsXRCD(cfg.XRCD); err != nil {
		return err
	}
	return c.ownsCQ(cfg.CQ)
}
