package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"golang.org/x/sys/unix"
)

var _ nic.Grouper = (*Port)(nil)

// Join implements nic.Grouper: a socket for the group, bound to its address so that it gets nothing else, makes the kernel
// join by IGMP or MLD on the device's interface.
func (p *Port) Join(group ib.GID) error {
	a := group.Addr()
	if !slices.ContainsFunc(p.own, func(s *batch.Socket) bool { return s.Addr.Is4() == a.Is4() }) {
		return fmt.Errorf("the device has no address of its family: %w", unix.EAFNOSUPPORT)
	}
	r, err := p.join(a)
	if err != nil {
		return err
	}
	p.groups = append(p.groups, r)
	p.in.Sockets = append(slices.Clone(p.own), p.groups...)
	return nil
}

// join makes the socket of a group.
func (p *Port) join(a netip.Addr) (*batch.Socket, error) {
	r, err := p.receiver(a, p.bindGroup)
	if err != nil {
		return nil, err
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.FD)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, r.FD, &ev); err != nil {
		unix.Close(r.FD)
		return nil, fmt.Errorf("watch UDP socket: %w", err)
	}
	return r, nil
}

// Leave implements nic.Grouper. The kernel leaves the group as the socket is closed.
func (p *Port) Leave(group ib.GID) {
	i := slices.IndexFunc(p.groups, func(s *batch.Socket) bool { return s.GID == group })
	if i < 0 {
		return
	}
	unix.Close(p.groups[i].FD)
	p.groups = slices.Delete(p.groups, i, i+1)
	p.in.Sockets = append(slices.Clone(p.own), p.groups...)
}

// SetInterface says that the device's interface has another index: it went away and came back. What is bound to the old one
// is made anew: memberships of groups, and link-local addresses by the next SetAddrs. A group that cannot be joined is tried
// again by the next call.
func (p *Port) SetInterface(index int) error {
	if index == p.cfg.Interface && !p.astray {
		return nil
	}
	if index != p.cfg.Interface {
		p.cfg.Interface, p.out.scope = index, uint32(index)
		p.own = slices.DeleteFunc(p.own, func(s *batch.Socket) bool {
			if !s.Addr.IsLinkLocalUnicast() {
				return false
			}
			unix.Close(s.FD)
			return true
		})
	}
	var errs []error
	for i, old := range p.groups {
		fresh, err := p.join(old.Addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("join %s: %w", old.Addr, err))
			continue
		}
		unix.Close(old.FD)
		p.groups[i] = fresh
	}
	p.astray = len(errs) > 0
	p.in.Sockets = append(slices.Clone(p.own), p.groups...)
	return errors.Join(errs...)
}

// Options that golang.org/x/sys/unix has no names for.
const ipv6MulticastAll = 29

// bindGroup binds a socket to a group and joins it. Several devices of a host may be in one, so the port is shared.
func (p *Port) bindGroup(fd int, a netip.Addr) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if a.Is4() {
		// Only what comes by way of our own membership, and not all that anybody on this host has joined.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(p.cfg.Port), Addr: a.As4()}); err != nil {
			return err
		}
		var own netip.Addr
		if i := slices.IndexFunc(p.own, func(s *batch.Socket) bool { return s.Addr.Is4() }); i >= 0 {
			own = p.own[i].Addr
		}
		return batch.JoinGroup(fd, a, p.cfg.Interface, own)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, ipv6MulticastAll, 0); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return err // Linux before 4.20 has no such thing
	}
	sa := &unix.SockaddrInet6{Port: int(p.cfg.Port), Addr: a.As16(), ZoneId: uint32(p.cfg.Interface)}
	if err := unix.Bind(fd, sa); err != nil {
		return err
	}
	return batch.JoinGroup(fd, a, p.cfg.Interface, netip.Addr{})
}

// isGroup reports whether g is a multicast group.
func isGroup(g *ib.GID) bool { return g[0] == 0xff || isIPv4(g) && g[12]&0xf0 == 0xe0 }
