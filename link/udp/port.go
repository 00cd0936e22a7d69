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
	// Port is the UDP port; 0 is 4791. The ICRC takes 4791 in any case, so another port is for tests.
	Port uint16
	// SendSockets is how many source ports each address family has; 0 is 8.
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
	in       reception       // from all of them
	out      transmission
	closed   bool
}

var _ nic.Port = (*Port)(nil)

// Open binds the sockets. A port that is taken gives an error that wraps EADDRINUSE, an address that the host has not one
// that wraps EADDRNOTAVAIL; both say what to do.
func Open(cfg Config) (*Port, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("open a UDP port: a device needs at least one address")
	}
	if cfg.Port == 0 {
		cfg.Port = wire.Port
	}
	if cfg.SendSockets <= 0 {
		cfg.SendSockets = 8
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
	p.in.Init(recvSize)
	p.out.init(&p.cfg)
	p.out.Losses = batch.Losses{Counters: &p.counters, Log: cfg.Log}
	if err := p.SetAddrs(cfg.Addrs); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// SetAddrs changes the addresses of the device, when netlink told of a change: new ones are bound, others are given up,
// those that stay lose no datagram. After an error the addresses are as before.
func (p *Port) SetAddrs(addrs []netip.Addr) error {
	var opened []*batch.Socket
	undo := func(err error) error {
		for _, r := range opened {
			unix.Close(r.FD)
		}
		return err
	}
	next := make([]*batch.Socket, 0, len(addrs))
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if slices.ContainsFunc(next, func(r *batch.Socket) bool { return r.Addr == a }) {
			continue
		}
		if i := slices.IndexFunc(p.own, func(r *batch.Socket) bool { return r.Addr == a }); i >= 0 {
			next = append(next, p.own[i])
			continue
		}
		r, err := p.openReceiver(a)
		if err != nil {
			return undo(err)
		}
		opened = append(opened, r)
		next = append(next, r)
		if err := p.out.open(a.Is4(), &p.cfg); err != nil {
			return undo(err)
		}
	}
	for i, r := range opened {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(r.FD)}
		if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, r.FD, &ev); err != nil {
			for _, r := range opened[:i] {
				_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, r.FD, nil)
			}
			return undo(fmt.Errorf("watch UDP socket on %s: %w", r.Addr, err))
		}
	}
	for _, r := range p.own {
		if !slices.Contains(next, r) {
			unix.Close(r.FD) // leaves the epoll set by itself
		}
	}
	p.own = next
	p.in.Sockets = append(slices.Clone(next), p.groups...)
	return nil
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
// behind because its packets were all filled: a call that fills them is to be followed by another.
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
