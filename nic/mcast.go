package nic

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Multicast (IBA 10.5): a datagram to a group reaches every queue pair that is attached to it, on all hosts. The network
// brings what comes from other devices; what one of our own queue pairs sends goes to the others here, not by way of the
// network, whose copy is dropped.

// Grouper joins the groups of a network. It is called while the first shard does not use its port.
type Grouper interface {
	// Join asks for what is sent to a group. The error wraps an errno.
	Join(group ib.GID) error
	Leave(group ib.GID)
}

// What a device has of multicast at most.
const (
	maxGroups      = 256 // the daemon has a descriptor for each
	maxGroupQPs    = 512 // attached to one group
	maxAttachments = 16384
)

// group is who is attached to a multicast group.
type group struct {
	// members are by shard: each touches its own.
	members [][]attachment
	shards  atomic.Uint32 // those that have members, as bits
	count   int           // members of all shards; guarded by groups.mu
}

type attachment struct {
	qp *QP
	// own says that the queue pair wants to hear its own datagrams, too.
	own bool
}

func (g *group) find(q *QP) int {
	return slices.IndexFunc(g.members[q.shard.index], func(a attachment) bool { return a.qp == q })
}

// groups are a device's. Control calls change them with the lock held, which is taken after a context's. Each shard has a
// map of its own, and what it reads of a group is changed on the shard; so it reads without the lock, and so does who holds
// it.
type groups struct {
	mu sync.Mutex
	m  map[ib.GID]*group
}

// NormalGroup returns the GID that a group is known by, and false if g is no group. Groups of IPv4 are written ::ffff:a.b.c.d,
// and by older stacks ff0e::ffff:a.b.c.d.
func NormalGroup(g ib.GID) (ib.GID, bool) {
	if g[0] == 0xff && g[1] == 0x0e && [8]byte(g[2:]) == [8]byte{} && g[10] == 0xff && g[11] == 0xff && g[12]&0xf0 == 0xe0 {
		g[0], g[1] = 0, 0
	}
	return g, g.IsMulticast()
}

// AttachMcast attaches a queue pair to a multicast group (ibv_attach_mcast), whatever its state; once more changes nothing
// but own, which says whether the queue pair hears what it sends itself. One that was made with BLOCK_SELF_MCAST_LB never
// does. The error wraps EINVAL for a GID that is no group and a queue pair that is not UD, EOPNOTSUPP if the device's network
// has no groups, ENOMEM or EDQUOT when there are too many, or whatever the network says.
func (c *Context) AttachMcast(q *QP, gid ib.GID, own bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.attachMcast(q, gid, own); err != nil {
		return fmt.Errorf("attach mcast: %w", err)
	}
	return nil
}

func (c *Context) attachMcast(q *QP, gid ib.GID, own bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	gid, err := c.judgeGroup(q, gid)
	if err != nil {
		return err
	}
	d := c.dev
	if d.cfg.Groups == nil {
		return errNoGroups
	}
	own = own && q.flags&ib.QPCreateBlockSelfMcastLB == 0
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	g, known := d.groups.m[gid]
	if known {
		if i := g.find(q); i >= 0 {
			q.shard.do(func(clock.Time) { g.members[q.shard.index][i].own = own })
			return nil
		}
	}
	switch {
	case !known && len(d.groups.m) == maxGroups:
		return fmt.Errorf("the device's limit of %d groups is reached: %w", maxGroups, syscall.ENOMEM)
	case known && g.count == maxGroupQPs:
		return fmt.Errorf("the limit of %d queue pairs in group %s is reached: %w", maxGroupQPs, gid.Addr(), syscall.ENOMEM)
	}
	if err := c.purse.charge(resAttachments, 1); err != nil {
		return err
	}
	if !known {
		if g, err = d.join(gid); err != nil {
			c.purse.uncharge(resAttachments, 1)
			return fmt.Errorf("group %s: %w", gid.Addr(), err)
		}
	}
	i := q.shard.index
	q.shard.do(func(clock.Time) {
		g.members[i] = append(g.members[i], attachment{q, own})
		g.shards.Or(1 << i)
	})
	g.count++
	q.attached++
	return nil
}

// join makes a group. The groups' lock is held, here and below.
func (d *Device) join(gid ib.GID) (g *group, err error) {
	d.shards[0].do(func(clock.Time) { err = d.cfg.Groups.Join(gid) })
	if err != nil {
		return nil, err
	}
	g = &group{members: make([][]attachment, len(d.shards))}
	d.groups.m[gid] = g
	d.everywhere(func(s *shard, _ clock.Time) { s.groups[gid] = g })
	return g, nil
}

func (d *Device) leaveGroup(gid ib.GID) {
	delete(d.groups.m, gid)
	d.everywhere(func(s *shard, _ clock.Time) { delete(s.groups, gid) })
	d.shards[0].do(func(clock.Time) { d.cfg.Groups.Leave(gid) })
}

var errNoGroups = fmt.Errorf("this device's network has no multicast: %w", syscall.EOPNOTSUPP)

// judgeGroup returns the name of a group for a queue pair that can be attached to one.
func (c *Context) judgeGroup(q *QP, gid ib.GID) (ib.GID, error) {
	if err := c.ownsQP(q); err != nil {
		return gid, err
	}
	if q.typ != ib.QPTypeUD {
		return gid, fmt.Errorf("a queue pair of type %s: groups are for UD: %w", q.typ, syscall.EINVAL)
	}
	group, ok := NormalGroup(gid)
	if !ok {
		return gid, fmt.Errorf("GID %s is no multicast group: %w", gid, syscall.EINVAL)
	}
	return group, nil
}

// DetachMcast detaches a queue pair from a group (ibv_detach_mcast). The error wraps EINVAL if it is not attached.
func (c *Context) DetachMcast(q *QP, gid ib.GID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	gid, err := c.judgeGroup(q, gid)
	if err != nil {
		return fmt.Errorf("detach mcast: %w", err)
	}
	d := c.dev
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	g := d.groups.m[gid]
	if g == nil || g.find(q) < 0 {
		return fmt.Errorf("detach mcast: queue pair %#x is not attached to %s: %w", uint32(q.qpn), gid.Addr(), syscall.EINVAL)
	}
	c.detachMcast(q, gid, g)
	return nil
}

// detachMcast takes q out of a group; the last one leaves it on the network. The groups' lock is held.
func (c *Context) detachMcast(q *QP, gid ib.GID, g *group) {
	q.shard.do(func(clock.Time) {
		i := g.find(q)
		members := &g.members[q.shard.index]
		if *members = slices.Delete(*members, i, i+1); len(*members) == 0 {
			g.shards.And(^uint32(1 << q.shard.index))
		}
	})
	if g.count--; g.count == 0 {
		c.dev.leaveGroup(gid)
	}
	q.attached--
	c.purse.uncharge(resAttachments, 1)
}

// detachAll takes the queue pairs of a context out of all groups.
func (c *Context) detachAll() {
	d := c.dev
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	for gid, g := range d.groups.m {
		for _, a := range slices.Concat(g.members...) {
			if a.qp.ctx == c {
				c.detachMcast(a.qp, gid, g)
			}
		}
	}
}

// arrived deals with a datagram to a group that the port received. What we sent ourselves was delivered when it was sent: its
// copy from the network is no fault of anybody, and so is not counted.
func (s *shard) arrived(now clock.Time, p *wire.Packet) {
	if p.Local || s.dev.gids.Load().has(&p.Source) {
		return
	}
	if p.TrafficClass&ecnMask == ecnCE {
		s.ecnMarked++
	}
	s.spread(now, p, nil)
}

// sent delivers the datagrams to groups that q has put into the burst behind before.
func (s *shard) sent(now clock.Time, q *QP, before int) {
	if len(s.groups) == 0 || q.typ != ib.QPTypeUD {
		return
	}
	frames := s.burst.Frames()
	s.settled = len(frames) // they are whole, whatever happens to receivers
	for i := before; i < len(frames); i++ {
		if f := &frames[i]; f.BTH().DestQP() == ib.MulticastQPN && s.groups[f.Path.Dest] != nil {
			s.looped.FromFrame(f)
			s.spread(now, &s.looped, q)
		}
	}
	s.wakeOthers()
}

// spread hands a datagram to everybody in its group, on whichever shard.
func (s *shard) spread(now clock.Time, p *wire.Packet, from *QP) {
	g := s.groups[p.Dest]
	if g == nil {
		s.drops.count(refusedMulticast)
		return
	}
	if p.Opcode.Service() != wire.ServiceUD {
		s.drops.count(refusedService)
		return
	}
	for i := range s.roads.to {
		if i != s.index && g.shards.Load()&(1<<i) != 0 {
			s.hand(p, i)
		}
	}
	s.deliver(now, p, from)
}

// deliver hands a datagram to everybody of this shard in its group, but not to its sender unless he wants it. Each judges
// for himself.
func (s *shard) deliver(now clock.Time, p *wire.Packet, from *QP) {
	g := s.groups[p.Dest]
	if g == nil {
		return // it has ended meanwhile
	}
	members := g.members[s.index]
	for i := range members {
		a := &members[i]
		if a.qp == from && !a.own || a.qp.dead {
			continue
		}
		if r := a.qp.hears(p); r != accepted {
			s.drops.count(r)
			continue
		}
		s.after(a.qp, s.engineReceive(now, a.qp, p))
	}
}

// hears judges a datagram to a group, for one of its queue pairs.
func (q *QP) hears(p *wire.Packet) refusal {
	switch {
	case !q.receives(p.Opcode):
		return refusedState
	case !q.pkey().Matches(p.BTH().PKey()):
		return refusedPKey
	case wire.FindDETH(p.Header).QKey() != q.attr.QKey:
		return refusedQKey
	}
	return accepted
}
