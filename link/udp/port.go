package udp

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
	"golang.org/x/sys/unix"
)

// Config says what to open. Only Addrs is needed.
type Config struct {
	// Addrs are the addresses of the device: it receives on them and on no others.
	Addrs []netip.Addr
	// Interface is the index of the network interface. Link-local IPv6 addresses mean nothing without it.
	Interface int
	// Hardware says that the interface has a device behind it. What it receives is then given back at once; senders on the same
	// host gain when it is held for a while.
	Hardware bool
	// Port is the UDP port; 0 is 4791. The ICRC takes 4791 in any case, so another port is for tests.
	Port uint16
	// SendSockets is how many source ports each address family has. 0 is 8; and 1 if all addresses are of the loopback, where
	// nobody balances flows by their ports, and packets of many queue pairs travel together.
	SendSockets int
	// ReceiveBuffer and SendBuffer are bytes of payload to ask of the kernel for each socket; 0 is 16 MiB and 4 MiB.
	// Without CAP_NET_ADMIN it grants no more than net.core.rmem_max and wmem_max.
	ReceiveBuffer, SendBuffer int
	// NoOffload goes without UDP_SEGMENT and UDP_GRO, as on a kernel that lacks them.
	NoOffload bool
	// Accept judges where datagrams come from, before anything else is looked at; nil accepts all.
	Accept func(source ib.GID) bool
	// Log is told, once a minute at the most, that the network refuses frames; nil is slog.Default.
	Log *slog.Logger
}

// Port is a nic.Port on UDP sockets. One goroutine uses it.
type Port struct {
	cfg      Config
	counters nic.PortCounters
	epoll    int
	own      []*batch.Socket // of the device's addresses
	groups   []*batch.Socket // of multicast groups
	astray   bool            // some of them are members on an interface that is gone
	in       batch.Inbox     // from all of them
	out      transmission
	closed   bool
}

var _ nic.Port = (*Port)(nil)

// Open binds the sockets. A port that is taken gives an error that wraps EADDRINUSE, an address that the host has not one
// that wraps EADDRNOTAVAIL; both say what to do.
func Open(cfg Config) (*Port, error) {
	p, err := newPort(cfg)
	if err != nil {
		return nil, err
	}
	if err := p.SetAddrs(cfg.Addrs); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// newPort makes a port without addresses.
func newPort(cfg Config) (*Port, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("open a UDP port: a device needs at least one address")
	}
	if cfg.Port == 0 {
		cfg.Port = wire.Port
	}
	if cfg.SendSockets <= 0 {
		cfg.SendSockets = 8
		if !slices.ContainsFunc(cfg.Addrs, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() }) {
			cfg.SendSockets = 1
		}
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
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open a UDP port: %w", err)
	}
	p := &Port{cfg: cfg, epoll: epoll}
	p.in.Init(recvSize, p.open, &p.counters)
	p.out.init(&p.cfg)
	p.out.Losses = batch.Losses{Counters: &p.counters, Log: cfg.Log}
	return p, nil
}

// SetAddrs changes the addresses of the device, when netlink told of a change: new ones are bound, others are given up,
// those that stay lose no datagram. After an error the addresses are as before.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	c, err := p.prepare(addrs, p.openReceiver)
	if err == nil {
		p.adopt(c)
	}
	return err
}

// change is sockets for other addresses.
type change struct {
	next   []*batch.Socket // of all addresses
	opened []*batch.Socket // those of them that are new
}

// undo closes what is new, which also takes it out of the epoll set.
func (c *change) undo() {
	for _, r := range c.opened {
		unix.Close(r.FD)
	}
}

// prepare opens sockets for the addresses that are new. Nothing changes yet.
func (p *Port) prepare(addrs []netip.Addr, open func(netip.Addr) (*batch.Socket, error)) (c *change, err error) {
	c = new(change)
	defer func() {
		if err != nil {
			c.undo()
		}
	}()
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		is := func(r *batch.Socket) bool { return r.Addr == a }
		if slices.ContainsFunc(c.next, is) {
			continue
		}
		if i := slices.IndexFunc(p.own, is); i >= 0 {
			c.next = append(c.next, p.own[i])
			continue
		}
		r, err := open(a)
		if err != nil {
			return c, err
		}
		c.opened, c.next = append(c.opened, r), append(c.next, r)
		if err := p.out.open(a.Is4(), &p.cfg); err != nil {
			return c, err
		}
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.FD)}
		if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, r.FD, &ev); err != nil {
			return c, fmt.Errorf("watch UDP socket on %s: %w", a, err)
		}
	}
	return c, nil
}

// adopt makes the sockets of a change the port's.
func (p *Port) adopt(c *change) {
	for _, r := range p.own {
		if !slices.Contains(c.next, r) {
			unix.Close(r.FD) // leaves the epoll set by itself
		}
	}
	p.own = c.next
	p.in.Sockets = append(slices.Clone(p.own), p.groups...)
}

// Addrs returns the addresses that the port receives on.
func (p *Port) Addrs() []netip.Addr {
	addrs := make([]netip.Addr, len(p.own))
	for i, r := range p.own {
		addrs[i] = r.Addr
	}
	return addrs
}

// ReceiveBuffer returns the bytes that the kernel keeps for each address while nobody receives, its own bookkeeping
// included: payload fills about half. What is in flight towards the port should stay below.
func (p *Port) ReceiveBuffer() int {
	if len(p.own) == 0 {
		return 0
	}
	return batch.ReceiveBuffer(p.own[0].FD)
}

// Descriptor implements nic.Port. It stays the same when addresses change. It does not show what an earlier Recv left
// behind because its packets were all filled: a call that fills them is to be followed by another. After a bulk transfer it is
// readable for a fifth of a millisecond more, until a Recv gives back what the port holds.
func (p *Port) Descriptor() int { return p.epoll }

// Counters implements nic.Port.
func (p *Port) Counters() *nic.PortCounters { return &p.counters }

// Close implements nic.Port.
func (p *Port) Close() error {
	if p.closed {
		return nil
	}
	p.closed = true
	for _, r := range p.in.Sockets {
		unix.Close(r.FD)
	}
	p.in.Sockets, p.own, p.groups = nil, nil, nil
	p.out.v4.close()
	p.out.v6.close()
	return unix.Close(p.epoll)
}
