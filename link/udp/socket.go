package udp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"golang.org/x/sys/unix"
)

// openReceiver makes the socket that receives on one address. Being bound to the address it gets nothing that was meant
// for another, so nobody has to look at destinations.
//
// It is not bound to the interface: datagrams from this host to itself come by way of lo, whatever the address.
func (p *Port) openReceiver(a netip.Addr) (*batch.Socket, error) {
	return p.receiver(a, func(fd int, a netip.Addr) error { return batch.BindDevice(fd, a, p.cfg.Port, p.cfg.Interface) })
}

// receiver makes a socket that receives, to be bound by bind.
func (p *Port) receiver(a netip.Addr, bind func(fd int, a netip.Addr) error) (*batch.Socket, error) {
	fd, err := batch.NewUDP(a.Is4())
	if err != nil {
		return nil, fmt.Errorf("UDP socket for %s: %w", a, err)
	}
	batch.SetBuffers(fd, p.cfg.ReceiveBuffer, 0)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	var opts []batch.Option
	if a.Is4() {
		opts = []batch.Option{{unix.IPPROTO_IP, unix.IP_RECVTOS, 1}, {unix.IPPROTO_IP, unix.IP_RECVTTL, 1}}
	} else {
		opts = []batch.Option{
			{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1}, {unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1},
			// rxe and hardware send UDP checksum 0 over IPv6 too, which Linux drops unless told otherwise.
			{unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1},
		}
	}
	if err := batch.SetOptions(fd, opts); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("UDP socket for %s: %w", a, err)
	}
	if !p.cfg.NoOffload {
		// Linux before 5.0 has no UDP_GRO: datagrams then come one by one.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if err := bind(fd, a); err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &batch.Socket{FD: fd, Addr: a, GID: ib.GIDFromAddr(a)}
	if !p.cfg.Hardware {
		r.Hold()
	}
	return r, nil
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
	fd, err := batch.NewUDP(is4)
	if err != nil {
		return sender{}, fmt.Errorf("UDP socket to send with: %w", err)
	}
	batch.SetBuffers(fd, 0, cfg.SendBuffer)
	// Path MTU discovery in probe mode sets DF, and on a socket that is not connected the identification is 0, 1, 2 ...
	// within a group and 0 alone: the ICRC covers it, so it has to be known. Also, forged ICMP cannot shrink the path.
	opts := []batch.Option{
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}, {unix.IPPROTO_IP, unix.IP_RECVERR, 0},
		{unix.IPPROTO_IP, unix.IP_TTL, hopLimit}, {unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, hopLimit},
	}
	any := netip.IPv4Unspecified()
	if !is4 {
		any = netip.IPv6Unspecified()
		opts = []batch.Option{
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 0}, {unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hopLimit},
			{unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, hopLimit},
		}
	}
	err = batch.SetOptions(fd, opts)
	if err == nil {
		// Nobody reads from this socket.
		err = batch.RefuseAll(fd)
	}
	var port int
	for range 64 {
		if err != nil {
			break
		}
		port = firstSourcePort + rand.IntN(sourcePorts)
		if err = batch.Bind(fd, any, port, 0); !errors.Is(err, unix.EADDRINUSE) {
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
