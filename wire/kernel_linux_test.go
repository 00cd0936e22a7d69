package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
)

// What the ICRC rests on, asked of the kernel: which IPv4 identification it gives to the datagrams of an unconnected
// socket with IP_PMTUDISC_DO or IP_PMTUDISC_PROBE.

const segmentLen = 1040 // BTH, 1024 bytes, ICRC

// group makes n packets in a row, the last one shorter, with the ICRC for identification 0, 1, 2 ...
func group(t *testing.T, p *Path, n int) (b []byte) {
	t.Helper()
	mem := &Buffer{B: fill(2048)}
	burst := NewBurst(1)
	for i := range n {
		f := burst.Next()
		f.Path = p
		f.SetHeader(RCSendMiddle)
		f.BTH().SetDestQP(0x11)
		f.BTH().SetPSN(ib.PSN(i))
		size := 1024
		if i == n-1 {
			size = 100
		}
		f.Add(mem, uint64(i), size)
		var err error
		if b, err = f.AppendTo(b, uint16(i)); err != nil {
			t.Fatal(err)
		}
		burst.Consume(1)
	}
	return b
}

// udpSocket returns a bound socket that discovers the path MTU as mode says, and its port.
func udpSocket(t *testing.T, addr netip.Addr, port, mode int) (fd, bound int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, mode); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: addr.As4()}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	timeout := unix.NsecToTimeval(int64(2 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		t.Fatal(err)
	}
	return fd, sa.(*unix.SockaddrInet4).Port
}

// send sends b as one datagram, or as segments of size bytes.
func send(t *testing.T, fd int, to netip.Addr, port int, b []byte, size int) {
	t.Helper()
	var oob []byte
	if size > 0 {
		oob = make([]byte, unix.CmsgSpace(2))
		binary.NativeEndian.PutUint64(oob, uint64(unix.CmsgLen(2)))
		binary.NativeEndian.PutUint32(oob[8:], unix.SOL_UDP)
		binary.NativeEndian.PutUint32(oob[12:], unix.UDP_SEGMENT)
		binary.NativeEndian.PutUint16(oob[16:], uint16(size))
	}
	err := unix.Sendmsg(fd, b, oob, &unix.SockaddrInet4{Port: port, Addr: to.As4()}, 0)
	if size > 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIO)) {
		t.Skipf("UDP_SEGMENT: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKernelGroupsKeepOrder needs no privilege: segments of a group arrive in order, merged or not, so that the place
// in the group is the identification that the sender assumed.
func TestKernelGroupsKeepOrder(t *testing.T) {
	lo := netip.MustParseAddr("127.0.0.1")
	from, fromPort := udpSocket(t, lo, 0, unix.IP_PMTUDISC_PROBE)
	to, toPort := udpSocket(t, lo, 0, unix.IP_PMTUDISC_PROBE)
	if err := unix.SetsockoptInt(to, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		t.Skipf("UDP_GRO: %v", err)
	}
	p := &Path{Source: ib.GIDFromAddr(lo), Dest: ib.GIDFromAddr(lo), SourcePort: uint16(fromPort)}
	send(t, from, lo, toPort, group(t, p, 6), segmentLen)
	buf := make([]byte, 65536)
	oob := make([]byte, 128)
	for next := 0; next < 6; {
		n, oobn, _, _, err := unix.Recvmsg(to, buf, oob, 0)
		if err != nil {
			t.Fatal(err)
		}
		size := n
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if m.Header.Level == unix.SOL_UDP && m.Header.Type == unix.UDP_GRO {
				size = int(binary.NativeEndian.Uint32(m.Data))
			}
		}
		for b := buf[:n]; len(b) > 0; next++ {
			d := Datagram{
				Bytes: b[:min(size, len(b))], Source: p.Source, Dest: p.Dest, SourcePort: p.SourcePort, ID: uint16(next),
			}
			var pkt Packet
			if drop := Parse(&pkt, &d); drop != Accepted || d.ID != uint16(next) || pkt.PSN() != ib.PSN(next) {
				t.Fatalf("segment %d: %v, identification %d, PSN %v", next, drop, d.ID, pkt.PSN())
			}
			b = b[len(d.Bytes):]
		}
	}
}

// tunnel moves the calling test into a network namespace of its own that has one interface, and returns the other end:
// what the kernel sends can be read there as it would be on a wire, and what is written there it receives. local is the
// kernel's address, and any other of 192.0.2.0/24 is behind the tunnel.
func tunnel(t *testing.T) (fd int, local netip.Addr) {
	t.Helper()
	// The thread is never unlocked: it ends with the test, and the namespace with it.
	runtime.LockOSThread()
	skip := func(what string, err error) {
		if err != nil {
			t.Skipf("needs CAP_SYS_ADMIN, CAP_NET_ADMIN and /dev/net/tun: %s: %v", what, err)
		}
	}
	skip("unshare", unix.Unshare(unix.CLONE_NEWNET))
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	skip("open", err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	ifr, err := unix.NewIfreq("wire0")
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	skip("TUNSETIFF", unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	link, err := netlink.LinkByName("wire0")
	if err != nil {
		t.Fatal(err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}
	if err := errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	return fd, netip.MustParseAddr("192.0.2.1")
}

// readUDP returns the next IPv4 UDP packet out of the tunnel; the kernel also sends things of its own.
func readUDP(t *testing.T, fd int) []byte {
	t.Helper()
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 2000); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		} else if n == 0 {
			t.Fatal("nothing came out of the tunnel")
		}
		b := make([]byte, 65536)
		n, err := unix.Read(fd, b)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		if n > 20 && b[0] == 0x45 && b[9] == unix.IPPROTO_UDP {
			return b[:n]
		}
	}
}

// TestKernelIdentification needs privilege: it looks at the packets themselves.
func TestKernelIdentification(t *testing.T) {
	tun, local := tunnel(t)
	remote := netip.MustParseAddr("192.0.2.2")
	for mode, name := range map[int]string{unix.IP_PMTUDISC_DO: "DO", unix.IP_PMTUDISC_PROBE: "PROBE"} {
		fd, port := udpSocket(t, local, 0, mode)
		p := &Path{Source: ib.GIDFromAddr(local), Dest: ib.GIDFromAddr(remote), SourcePort: uint16(port)}
		check := func(what string, want uint16) {
			t.Helper()
			d, _ := datagram(t, readUDP(t, tun), 0)
			if d.ID != want || d.NoDF {
				t.Errorf("%s, %s: identification %d, want %d; DF clear: %v", name, what, d.ID, want, d.NoDF)
			}
			var pkt Packet
			if drop := Parse(&pkt, &d); drop != Accepted {
				t.Errorf("%s, %s: %v", name, what, drop)
			}
		}
		for i := range 3 {
			send(t, fd, remote, Port, group(t, p, 1), 0)
			check(fmt.Sprint("single datagram ", i), 0)
		}
		for range 2 {
			send(t, fd, remote, Port, group(t, p, 6), segmentLen)
			for i := range 6 {
				check(fmt.Sprint("segment ", i), uint16(i))
			}
		}
	}
}

// TestKernelForeignSender sends packets with identifications of their own into the kernel, and reads them where nobody
// can see an identification, as a UDP socket's owner does.
func TestKernelForeignSender(t *testing.T) {
	tun, local := tunnel(t)
	fd, _ := udpSocket(t, local, Port, unix.IP_PMTUDISC_PROBE)
	p := &Path{Source: ib.GIDFromAddr(netip.MustParseAddr("192.0.2.2")), Dest: ib.GIDFromAddr(local), SourcePort: 0xd872}
	f := writeOnly(NewBurst(1), p, &Buffer{B: fill(2000)}, 1001)
	for _, id := range []uint16{0, 1, 0x1234, 0xffff} {
		udp, err := f.AppendTo(nil, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(tun, AppendEthernet(nil, p, id, udp)[ethernetLen:]); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, sa, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			t.Fatal(err)
		}
		d := Datagram{Bytes: buf[:n], Source: p.Source, Dest: p.Dest, SourcePort: uint16(sa.(*unix.SockaddrInet4).Port)}
		var pkt Packet
		if drop := Parse(&pkt, &d); drop != Accepted || d.ID != id {
			t.Errorf("identification %#x: %v, found %#x", id, drop, d.ID)
		}
		d.Bytes[40] ^= 1
		d.ID = 0
		if drop := Parse(&pkt, &d); drop != DropICRC {
			t.Errorf("identification %#x: a flipped bit passed: %v", id, drop)
		}
	}
}
