package raw

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/softnic/softnicd/link/internal/batch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// newPacketSocket makes a packet socket that is not bound yet, so nothing comes until its filter is there.
func newPacketSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return -1, fmt.Errorf("packet socket: the raw link needs CAP_NET_RAW; "+
			"grant it (setcap cap_net_raw+ep, or AmbientCapabilities= of systemd) or use the udp link: %w", err)
	}
	if err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	// A virtio_net_hdr in front of each frame says how it is to be split, or how it was not.
	if err := batch.SetOptions(fd, []batch.Option{{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1}}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("packet socket: PACKET_VNET_HDR: %w", err)
	}
	return fd, nil
}

// listen makes a packet socket that receives from one interface what the filter lets pass.
func listen(ifindex int, program []bpf.Instruction, buffer int) (*batch.Socket, error) {
	fd, err := newPacketSocket()
	if err != nil {
		return nil, err
	}
	batch.SetBuffers(fd, buffer, 0)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	// The tag that the kernel takes off, for the priority in it.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)
	// Linux before 4.20 has not got this; then the filter refuses them, which costs more.
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err = batch.Attach(fd, unix.SO_ATTACH_FILTER, program); err == nil {
		err = bind(fd, ifindex)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on interface %d: %w", ifindex, err)
	}
	return &batch.Socket{FD: fd}, nil
}

// bind makes a packet socket receive from one interface.
func bind(fd, ifindex int) error {
	return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: ifindex})
}

func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// guard is a UDP socket that holds the port of an address.
type guard struct {
	fd   int
	addr netip.Addr
}

func openGuard(a netip.Addr, port uint16, ifindex int) (*guard, error) {
	fd, err := batch.NewUDP(a.Is4())
	if err != nil {
		return nil, fmt.Errorf("UDP socket for %s: %w", a, err)
	}
	if err = batch.RefuseAll(fd); err == nil {
		err = batch.BindDevice(fd, a, port, ifindex)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &guard{fd, a}, nil
}
