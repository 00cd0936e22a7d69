package nic

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// AH is an address handle: where datagrams go. The way is worked out when it is made (IBA 11.2.2.1), and packets that
// follow it do so still when the handle is gone.
type AH struct {
	ctx    *Context
	pd     *PD
	path   *wire.Path
	rate   uint64 // the static rate, bytes a second; 0 for none
	handle uint32
	at     int
}

func (a *AH) place() *int { return &a.at }

// Handle returns the number by which send requests name the handle. It is the context's own, and never 0.
func (a *AH) Handle() uint32 { return a.handle }

// routes are the address handles of a context, by handle - 1. Control calls change them, with the context's lock held;
// shards find.
type routes struct {
	list atomic.Pointer[[]atomic.Pointer[AH]] // of a length that is a power of two
	next uint32                               // the first that was never given
	free []uint32
}

// find returns the handle of a protection domain with a number, nil if there is no such. Requests name handles as they like.
func (r *routes) find(handle uint32, pd *PD) *AH {
	i := uint64(handle) - 1 // of 0 beyond any list
	list := r.list.Load()
	if list == nil || i >= uint64(len(*list)) {
		return nil
	}
	a := (*list)[i].Load()
	if a == nil || a.pd != pd {
		return nil
	}
	return a
}

// datagram returns where a request goes that names a handle, and how fast. A handle has its static rate with each queue pair
// apart, as the address vector of a connection has.
func (q *served) datagram(handle uint32) transport.Datagram {
	a := q.ctx.routes.find(handle, q.pd)
	if a == nil {
		return transport.Datagram{}
	}
	return transport.Datagram{Path: a.path, Rate: q.congestion.slowed.rate(q.shard.now, a.path.Dest, a.rate)}
}

// CreateAH makes an address handle (ibv_create_ah). The error wraps EINVAL for an address vector that leads nowhere,
// EOPNOTSUPP for a multicast group if the network has none, ENOMEM or EDQUOT when there are too many.
func (c *Context) CreateAH(p *PD, attr *ib.AHAttr) (*AH, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, err := c.createAH(p, attr)
	if err != nil {
		return nil, fmt.Errorf("create ah: %w", err)
	}
	return a, nil
}

func (c *Context) createAH(p *PD, attr *ib.AHAttr) (*AH, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if err := c.ownsPD(p); err != nil {
		return nil, err
	}
	way := c.dev.gids.Load().newPath
	if group, ok := NormalGroup(attr.GRH.DGID); ok {
		if c.dev.cfg.Groups == nil {
			return nil, fmt.Errorf("address vector with multicast GID %s: %w", attr.GRH.DGID, errNoGroups)
		}
		to := *attr
		to.GRH.DGID = group
		attr, way = &to, c.dev.gids.Load().newWay
	}
	path, err := way(attr, 0, 0)
	if err != nil {
		c.dev.badVectors.Add(1)
		return nil, err
	}
	if !path.Dest.IsMulticast() {
		capable(path, &c.dev.limits)
	}
	if err := c.purse.charge(resAHs, 1); err != nil {
		return nil, err
	}
	a := &AH{ctx: c, pd: p, path: path, rate: ib.StaticRate(attr.StaticRate) / 8}
	p.refs++
	c.ahs.add(a)
	c.routes.add(a)
	return a, nil
}

// add gives a its handle.
func (r *routes) add(a *AH) {
	if n := len(r.free); n > 0 {
		a.handle = r.free[n-1]
		r.free = r.free[:n-1]
	} else {
		r.next++
		a.handle = r.next
	}
	if a.path.FlowLabel == 0 {
		// Without a flow label there is nothing to spread by; the handle serves, so that networks see several flows.
		a.path.SourcePort = ib.FlowLabelUDPPort(a.handle, 0, 0)
	}
	(*r.reserve(a.handle))[a.handle-1].Store(a)
}

// reserve makes the list long enough for a handle.
func (r *routes) reserve(handle uint32) *[]atomic.Pointer[AH] {
	old := r.list.Load()
	if old != nil && int(handle) <= len(*old) {
		return old
	}
	next := make([]atomic.Pointer[AH], 16)
	if old != nil {
		next = make([]atomic.Pointer[AH], 2*len(*old))
		for i := range *old {
			next[i].Store((*old)[i].Load())
		}
	}
	r.list.Store(&next)
	return &next
}

func (r *routes) remove(a *AH) {
	(*r.list.Load())[a.handle-1].Store(nil)
	r.free = append(r.free, a.handle)
}

// DestroyAH destroys an address handle. Requests that were posted with it and not taken end with LOC_QP_OP_ERR.
func (c *Context) DestroyAH(a *AH) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a == nil || a.ctx != c || a.at < 0 {
		return fmt.Errorf("destroy ah: no such address handle in this context: %w", syscall.EINVAL)
	}
	c.routes.remove(a)
	c.forgetAH(a)
	return nil
}

func (c *Context) forgetAH(a *AH) {
	c.ahs.remove(a)
	a.pd.refs--
	c.purse.uncharge(resAHs, 1)
}
