package raw

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Config says what to open. Interface and Addrs are needed.
type Config struct {
	// Addrs are the addresses of the device: it receives on them and on no others.
	Addrs []netip.Addr
	// Interface is the index of the network interface, which must be Ethernet or the loopback.
	Interface int
	// Port is the UDP port; 0 is 4791. The ICRC takes 4791 in any case, so another port is for tests.
	Port uint16
	// ReceiveBuffer and SendBuffer are bytes to ask of the kernel for each socket; 0 is 16 MiB and 4 MiB. Without
	// CAP_NET_ADMIN it grants no more than net.core.rmem_max and wmem_max.
	ReceiveBuffer, SendBuffer int
	// NoOffload sends each frame by itself, as on a kernel that does not split groups.
	NoOffload bool
	// Accept judges where datagrams come from, before they are looked at; nil accepts all.
	Accept func(source ib.GID) bool
	// Log is told, once a minute at the most, that the network refuses frames; nil is slog.Default.
	Log *slog.Logger
}

// Port is a nic.Port on packet sockets. One goroutine uses it.
type Port struct {
	cfg      Config
	counters nic.PortCounters
	epoll    int
	guards   []*guard // of the device's addresses
	groups   []*guard // of multicast groups
	astray   bool     // some of them are members on an interface that is gone
	in       reception
	out      transmission
	resolver *resolver // nil on the loopback, which needs none
	sendOnly bool      // another port receives for it
	closed   bool
}

var _ nic.Port = (*Port)(nil)

// Open makes the sockets. Without CAP_NET_RAW the error wraps EPERM and says so; a port that is taken gives one that wraps
// EADDRINUSE, an address that the host has not one that wraps EADDRNOTAVAIL.
func Open(cfg Config) (*Port, error) { return newPort(cfg, false) }

// newPort makes a port, or half of one that only sends.
func newPort(cfg Config, sendOnly bool) (_ *Port, err error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("open a raw port: a device needs at least one address")
	}
	if cfg.Port == 0 {
		cfg.Port = wire.Port
	}
	if cfg.ReceiveBuffer <= 0 {
		cfg.ReceiveBuffer = 16 << 20
	}
	if cfg.SendBuffer <= 0 {
		cfg.SendBuffer = 4 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Port{cfg: cfg, epoll: -1, sendOnly: sendOnly}
	p.out.fd = -1
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open a raw port: %w", err)
	}
	// First of all the right to do this, before something else goes wrong for want of it.
	if p.out.fd, err = newPacketSocket(); err != nil {
		return nil, err
	}
	batch.SetBuffers(p.out.fd, 0, cfg.SendBuffer)
	p.out.init(&p.cfg, &p.counters)
	if err := p.findWay(); err != nil || sendOnly {
		return p, err
	}
	p.in.Init(recvSize, p.open, &p.counters)
	if err := p.SetAddrs(cfg.Addrs); err != nil {
		return nil, err
	}
	return p, p.listen()
}

// findWay finds out where frames go from this interface.
func (p *Port) findWay() error {
	r, err := newResolver(p.cfg.Interface)
	if err != nil {
		return err
	}
	link, err := r.netlink.LinkByIndex(p.cfg.Interface)
	if err != nil {
		r.close(false)
		return fmt.Errorf("interface %d: %w", p.cfg.Interface, err)
	}
	h, err := leave(link)
	if err != nil {
		r.close(false)
		return err
	}
	if link.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
		p.out.where.everything = h
		r.close(false)
		return nil
	}
	p.resolver = r
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.answered)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, r.answered, &ev); err != nil {
		p.resolver = nil
		r.close(false)
		return fmt.Errorf("watch for neighbours: %w", err)
	}
	p.out.where.own = h
	p.out.where.ask = r.asks
	go r.run()
	return nil
}

// loopback is the index of lo in every network namespace.
const loopback = 1

// listen makes the receiving sockets. Frames from this host to itself come by way of lo, whatever the address.
func (p *Port) listen() error {
	interfaces := []int{p.cfg.Interface}
	if p.cfg.Interface != loopback {
		interfaces = append(interfaces, loopback)
	}
	for _, index := range interfaces {
		s, err := listen(index, p.filter(), p.cfg.ReceiveBuffer)
		if err != nil {
			return err
		}
		p.in.Sockets = append(p.in.Sockets, s)
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.FD)}
		if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, s.FD, &ev); err != nil {
			return fmt.Errorf("watch packet socket: %w", err)
		}
	}
	return nil
}

func (p *Port) filter() []bpf.Instruction {
	addrs := p.Addrs()
	for _, g := range p.groups {
		addrs = append(addrs, g.addr)
	}
	return append(forUs(), datagrams(addrs, p.cfg.Port)...)
}

// attach makes the filters those of the addresses and groups as they are.
func (p *Port) attach() error {
	for _, s := range p.in.Sockets {
		if err := batch.Attach(s.FD, unix.SO_ATTACH_FILTER, p.filter()); err != nil {
			return fmt.Errorf("filter of a packet socket: %w", err)
		}
	}
	return nil
}

// SetAddrs changes the addresses of the device, when netlink told of a change: new ones are taken, others are given up,
// those that stay lose no datagram. After an error the addresses are as before.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	if p.sendOnly {
		p.out.where.forget()
		return nil
	}
	old := p.guards
	var next, opened []*guard
	undo := func(err error) error {
		for _, g := range opened {
			unix.Close(g.fd)
		}
		p.guards = old
		return err
	}
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		is := func(g *guard) bool { return g.addr == a }
		if slices.ContainsFunc(next, is) {
			continue
		}
		if i := slices.IndexFunc(old, is); i >= 0 {
			next = append(next, old[i])
			continue
		}
		g, err := openGuard(a, p.cfg.Port, p.cfg.Interface)
		if err != nil {
			return undo(err)
		}
		opened, next = append(opened, g), append(next, g)
	}
	p.guards = next
	if err := p.attach(); err != nil {
		return undo(err)
	}
	for _, g := range old {
		if !slices.Contains(next, g) {
			unix.Close(g.fd)
		}
	}
	p.out.where.forget()
	return nil
}

// SetInterface moves the port to another interface, when the one that it was on went away and came back with another index.
// What is bound to the old index is made anew: memberships of groups, and link-local addresses by the next SetAddrs. A group
// that cannot be joined is tried again by the next call.
func (p *Port) SetInterface(index int) error {
	if p.resolver == nil || index == p.cfg.Interface && !p.astray {
		return nil
	}
	if index != p.cfg.Interface {
		if err := p.settle(index); err != nil {
			return err
		}
	}
	var errs []error
	for _, g := range p.groups {
		fresh, err := p.member(g.addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("join %s: %w", g.addr, err))
			continue
		}
		unix.Close(g.fd)
		*g = *fresh
	}
	p.astray = len(errs) > 0
	return errors.Join(errs...)
}

// settle sends and receives by another interface.
func (p *Port) settle(index int) error {
	link, err := p.resolver.netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("interface %d: %w", index, err)
	}
	h, err := leave(link)
	if err != nil {
		return err
	}
	if !p.sendOnly {
		if err := bind(p.in.Sockets[0].FD, index); err != nil {
			return fmt.Errorf("packet socket on interface %d: %w", index, err)
		}
	}
	p.cfg.Interface, p.out.where.own = index, h
	p.resolver.ifindex.Store(int64(index))
	p.out.where.forget()
	p.guards = slices.DeleteFunc(p.guards, func(g *guard) bool {
		if !g.addr.IsLinkLocalUnicast() {
			return false
		}
		unix.Close(g.fd)
		return true
	})
	return nil
}

// Addrs returns the addresses that the port receives on.
func (p *Port) Addrs() []netip.Addr {
	addrs := make([]netip.Addr, len(p.guards))
	for i, g := range p.guards {
		addrs[i] = g.addr
	}
	return addrs
}

// ReceiveBuffer returns the bytes that the kernel keeps while nobody receives, its own bookkeeping included: payload fills
// about half. What is in flight towards the port should stay below.
func (p *Port) ReceiveBuffer() int {
	if len(p.in.Sockets) == 0 {
		return 0
	}
	return batch.ReceiveBuffer(p.in.Sockets[0].FD)
}

// Descriptor implements nic.Port. It does not show what an earlier Recv left behind because its packets were all filled: a
// call that fills them is to be followed by another.
func (p *Port) Descriptor() int { return p.epoll }

// Counters implements nic.Port.
func (p *Port) Counters() *nic.PortCounters { return &p.counters }

// Close implements nic.Port.
func (p *Port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if p.resolver != nil {
		p.resolver.close(true)
	}
	for _, g := range append(p.guards, p.groups...) {
		unix.Close(g.fd)
	}
	for _, s := range p.in.Sockets {
		unix.Close(s.FD)
	}
	p.guards, p.groups, p.in.Sockets = nil, nil, nil
	if p.out.fd >= 0 {
		unix.Close(p.out.fd)
	}
	if p.epoll < 0 {
		return nil
	}
	return unix.Close(p.epoll)
}
