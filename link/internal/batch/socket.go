package batch

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Option is what setsockopt is told: level, name, value.
type Option [3]int

// SetOptions sets one after another until one fails.
func SetOptions(fd int, opts []Option) error {
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return fmt.Errorf("setsockopt %d/%d: %w", o[0], o[1], err)
		}
	}
	return nil
}

// SetBuffers asks for buffers past the system's limit, and if that is not allowed for as much as is.
func SetBuffers(fd, receive, send int) {
	set := func(force, ordinary, n int) {
		if n > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, ordinary, n)
		}
	}
	set(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receive)
	set(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, send)
}

// ReceiveBuffer returns the bytes that the kernel keeps while nobody receives, its own bookkeeping included.
func ReceiveBuffer(fd int) int {
	n, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	return n
}

// NewUDP makes a UDP socket of one address family.
func NewUDP(is4 bool) (int, error) {
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

// JoinGroup makes the kernel a member of a multicast group on an interface, for as long as the socket is open. An interface
// with index 0 is found by one of its IPv4 addresses, own.
func JoinGroup(fd int, group netip.Addr, ifindex int, own netip.Addr) error {
	if group.Is4() {
		m := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(ifindex)}
		if own.Is4() {
			m.Address = own.As4()
		}
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &m)
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
		&unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(ifindex)})
}

// RefuseAll attaches a filter to a socket that nobody reads from, so that nothing piles up in it.
func RefuseAll(fd int) error {
	return Attach(fd, unix.SO_ATTACH_FILTER, []bpf.Instruction{bpf.RetConstant{Val: 0}})
}

// Attach gives a socket a program by an option of SOL_SOCKET, in place of an earlier one.
func Attach(fd, option int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, option, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
}

// Bind gives a UDP socket its address and port. Link-local IPv6 addresses need the interface.
func Bind(fd int, a netip.Addr, port, ifindex int) error {
	if a.Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: a.As4()})
	}
	sa := &unix.SockaddrInet6{Port: port, Addr: a.As16()}
	if a.IsLinkLocalUnicast() {
		sa.ZoneId = uint32(ifindex)
	}
	return unix.Bind(fd, sa)
}

// BindDevice binds a socket to an address of a device and the port of RoCEv2, exclusively: whoever comes second must be
// told. The error says what to do.
func BindDevice(fd int, a netip.Addr, port uint16, ifindex int) error {
	// No SO_REUSEADDR, and SO_REUSEPORT at most afterwards.
	err := Bind(fd, a, int(port), ifindex)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("UDP port %d on %s is taken: another softnicd or the kernel's rdma_rxe owns it; "+
			"stop it or give this device another address: %w", port, a, err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("UDP port %d on %s cannot be had: this host does not have the address; "+
			"add it to an interface or give this device another: %w", port, a, err)
	}
	return fmt.Errorf("bind UDP port %d on %s: %w", port, a, err)
}
