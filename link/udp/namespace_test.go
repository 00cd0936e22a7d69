package udp

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs f in a network namespace of its own, where only lo is, with the MTU and the address given. Without the
// right to make one it skips.
func inNamespace(t *testing.T, mtu int, addr string, f func(lo netlink.Link)) {
	t.Helper()
	err := nettest.Inside(-1, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetMTU(lo, mtu)
		}
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if a, e := netlink.ParseAddr(addr); err == nil && e == nil {
			a.Flags |= unix.IFA_F_NODAD
			err = netlink.AddrAdd(lo, a)
		}
		if err != nil {
			t.Error(err)
			return nil
		}
		f(lo)
		return nil
	})
	if nettest.Unable(err) {
		t.Skip("no network namespace: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

// A path whose MTU is too small loses the frames and nothing else; what fits still goes in groups.
func TestMTU(t *testing.T) {
	inNamespace(t, 1280, "10.0.0.1/24", func(netlink.Link) {
		a := netip.MustParseAddr("10.0.0.1")
		p, err := Open(Config{Addrs: []netip.Addr{a}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		path := &wire.Path{Source: ib.GIDFromAddr(a), Dest: ib.GIDFromAddr(a)}
		out := wire.NewBurst(16)
		for i := range 8 {
			n := 4096
			if i >= 4 {
				n = 1024
			}
			add(t, out, path, wire.RCSendOnly, uint32(i), true, &wire.Buffer{B: make([]byte, n)}, n)
		}
		if n, err := p.Send(0, out.Frames()); n != 8 || err != nil {
			t.Errorf("Send took %d of 8 frames, %v", n, err)
		}
		packets := make([]wire.Packet, 8)
		if n := p.Recv(0, packets); n != 4 || packets[0].PSN() != 4 {
			t.Errorf("%d packets came, want 4", n)
		}
		if n := p.Counters().SendErrors.Load(); n != 4 {
			t.Errorf("%d frames lost, want 4", n)
		}
		if !p.out.GSO {
			t.Error("the port gave groups up")
		}
	})
}

// A link-local address is one on an interface.
func TestLinkLocal(t *testing.T) {
	inNamespace(t, 65536, "fe80::5/64", func(lo netlink.Link) {
		a := netip.MustParseAddr("fe80::5")
		p, err := Open(Config{Addrs: []netip.Addr{a}, Interface: lo.Attrs().Index})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		path := &wire.Path{Source: ib.GIDFromAddr(a), Dest: ib.GIDFromAddr(a), HopLimit: 1, TrafficClass: 4}
		packets := make([]wire.Packet, 16)
		n := 0
		// The kernel takes the address into use a moment after it was set, and later on a busy machine.
		for end := time.Now().Add(10 * time.Second); n == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			out := wire.NewBurst(16)
			for i := range 8 {
				add(t, out, path, wire.RCSendOnly, uint32(i), true, &wire.Buffer{B: make([]byte, 1024)}, 1024)
			}
			if n, err := p.Send(0, out.Frames()); n != 8 || err != nil {
				t.Errorf("Send took %d of 8 frames, %v", n, err)
			}
			n = p.Recv(0, packets)
		}
		if n != 8 || packets[0].Source != path.Source || packets[0].HopLimit != 1 || packets[0].TrafficClass != 4 {
			t.Errorf("%d packets came; lost %d", n, p.Counters().SendErrors.Load())
		}
	})
}
