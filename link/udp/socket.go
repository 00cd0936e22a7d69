package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"golang.org/x/sys/unix"
)

// receiver is the socket that receives on one address. Being bound to the address it gets nothing that was meant for
// another, so nobody has to look at destinations.
//
// It is not bound to the interface: datagrams from this host to itself come by way of lo, whatever the address.
type receiver struct {
	fd    int
	addr  netip.Addr
	gid   ib.GID
	drops uint32 // SO_RXQ_OVFL, as last seen
}

func (p *Port) openReceiver(a netip.Addr) (*receiver, error) {
	fd, err := newSocket(a.Is4())
	if err != nil {
		return nil, fmt.Errorf("UDP socket for %s: %w", a, err)
	}
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, p.cfg.ReceiveBuffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	var opts []option
	if a.Is4() {
		opts = []option{{unix.IPPROTO_IP, unix.IP_RECVTOS, 1}, {unix.IPPROTO_IP, unix.IP_RECVTTL, 1}}
	} else {
		opts = []option{
			{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
			// rxe and hardware send UDP checksum 0 over IPv6 too, which Linux drops unless told otherwise.
			{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
		}
	}
	if err := setOptions(fd, opts); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("UDP socket for %s: %w", a, err)
	}
	if !p.cfg.NoOffload {
		// Linux before 5.0 has no UDP_GRO: datagrams then come one by one.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	// No SO_REUSEADDR, and SO_REUSEPORT at most afterwards: whoever comes second must be told.
	if err := bind(fd, a, int(p.cfg.Port), p.cfg.Interface); err != nil {
		unix.Close(fd)
		return nil, bindError(a, p.cfg.Port, err)
	}
	return &receiver{fd: fd, addr: a, gid: ib.GIDFromAddr(a)}, nil
}

func bindError(a netip.Addr, port uint16, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("UDP port %d on %s is taken: another softnicd or the kernel's rdma_rxe owns it; "+
			"stop it or give this device another address: %w", port, a, err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("UDP port %d on %s cannot be had: this host does not have the address; "+
			"add it to an interface or give this device another: %w", port, a, err)
	}
	return fmt.Errorf("bind UDP port %d on %s: %w", port, a, err)
}

// sender is a socket that sends from one port and any address.
type sender struct {
	fd   int
	port uint16
}

// canSplit reports whether the kernel knows UDP_SEGMENT, as Linux does since 4.18. Older ones would ignore the control
// message and send a group as one datagram.
func (s sender) canSplit() bool {
	_, err := unix.GetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	return err == nil
}

// family is the sending sockets of an address family.
type family struct{ sockets []sender }

// open makes the sockets unless they are there.
func (f *family) open(is4 bool, cfg *Config) error {
	for len(f.sockets) < cfg.SendSockets {
		s, err := openSender(is4, cfg)
		if err != nil {
			return err
		}
		f.sockets = append(f.sockets, s)
	}
	return nil
}

func (f *family) close() {
	for _, s := range f.sockets {
		unix.Close(s.fd)
	}
	f.sockets = nil
}

// Source ports of RoCEv2 are dynamic ones (IANA 49152-65535), as Linux and hardware choose them.
const (
	firstSourcePort = 49152
	sourcePorts     = 65536 - firstSourcePort
)

func openSender(is4 bool, cfg *Config) (sender, error) {
	fd, err := newSocket(is4)
	if err != nil {
		return sender{}, fmt.Errorf("UDP socket to send with: %w", err)
	}
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, cfg.SendBuffer)
	// Path MTU discovery in probe mode sets DF, and on a socket that is not connected the identification is 0, 1, 2 ...
	// within a group and 0 alone: the ICRC covers it, so it has to be known. Also, forged ICMP cannot shrink the path.
	opts := []option{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}, {unix.IPPROTO_IP, unix.IP_RECVERR, 0},
		{unix.IPPROTO_IP, unix.IP_TTL, hopLimit}, {unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit},
	}
	any := netip.IPv4Unspecified()
	if !is4 {
		any = netip.IPv6Unspecified()
		opts = []option{
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 0}, {unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit},
			{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit},
		}
	}
	err = setOptions(fd, opts)
	if err == nil {
		// Nobody reads from this socket. The filter refuses everything, so that nothing piles up in it.
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}})
	}
	var port int
	for range 64 {
		if err != nil {
			break
		}
		port = firstSourcePort + rand.IntN(sourcePorts)
		if err = bind(fd, any, port, 0); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		err = nil
		port = 0
	}
	if err == nil && port == 0 {
		err = unix.EADDRINUSE
	}
	if err != nil {
		unix.Close(fd)
		return sender{}, fmt.Errorf("UDP socket to send with: %w", err)
	}
	return sender{fd, uint16(port)}, nil
}

// hopLimit is what leaves when a path does not say, as Linux has it for RoCEv2.
const hopLimit = 64

type option struct{ level, name, value int }

func setOptions(fd int, opts []option) error {
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("setsockopt %d/%d: %w", o.level, o.name, err)
		}
	}
	return nil
}

// setBuffer asks for a buffer past the system's limit, and if that is not allowed for as much as is.
func setBuffer(fd, force, ordinary, n int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, ordinary, n)
	}
}

func newSocket(is4 bool) (int, error) {
	domain := unix.AF_INET6
	if is4 {
		domain = unix.AF_INET
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil || is4 {
		return fd, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func bind(fd int, a netip.Addr, port, ifindex int) error {
	if a.Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: a.As4()})
	}
	sa := &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	if a.IsLinkLocalUnicast() {
		sa.ZoneId = uint32(ifindex)
	}
	return unix.Bind(fd, sa)
}
