package raw

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"golang.org/x/sys/unix"
)

var _ nic.Grouper = (*Port)(nil)

// Join receives what is sent to a multicast group, and has the kernel join it by IGMP or MLD on the device's interface, so
// that switches send it here. It is called while nobody uses the port.
//
// Frames that other devices of this host send to the group by the same interface are not received: they leave the host.
func (p *Port) Join(group ib.GID) error {
	a := group.Addr()
	if !slices.ContainsFunc(p.guards, func(g *guard) bool { return g.addr.Is4() == a.Is4() }) {
		return fmt.Errorf("the device has no address of its family: %w", unix.EAFNOSUPPORT)
	}
	g, err := p.member(a)
	if err != nil {
		return fmt.Errorf("join %s: %w", a, err)
	}
	p.groups = append(p.groups, g)
	if err := p.attach(); err != nil {
		p.Leave(group)
		return err
	}
	return nil
}

// Leave undoes Join.
func (p *Port) Leave(group ib.GID) {
	a := group.Addr()
	i := slices.IndexFunc(p.groups, func(g *guard) bool { return g.addr == a })
	if i < 0 {
		return
	}
	unix.Close(p.groups[i].fd)
	p.groups = slices.Delete(p.groups, i, i+1)
	// Should the filter stay as it was, the device drops what still comes.
	_ = p.attach()
}

// member makes a socket by which the kernel is a member of a group for as long as it is open.
func (p *Port) member(a netip.Addr) (*guard, error) {
	fd, err := batch.NewUDP(a.Is4())
	if err != nil {
		return nil, err
	}
	if err = batch.RefuseAll(fd); err == nil {
		err = batch.JoinGroup(fd, a, p.cfg.Interface, netip.Addr{})
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &guard{fd, a}, nil
}
