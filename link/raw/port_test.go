package raw

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// On the loopback interface frames arrive as they were sent, in groups and alone.
func TestLoopback(t *testing.T) {
	for _, noOffload := range []bool{false, true} {
		t.Run(fmt.Sprintf("NoOffload=%v", noOffload), func(t *testing.T) {
			from, to, path := openPair(t, Config{NoOffload: noOffload})
			messages(t, from, to, path)
			if from.out.GSO == noOffload {
				t.Errorf("groups: %v", from.out.GSO)
			}
		})
	}
}

// There is one IPv6 loopback address: the port sends to itself, away from 4791, which others may be using.
func TestLoopbackIPv6(t *testing.T) {
	needRaw(t)
	g := ib.GIDFromAddr(netip.IPv6Loopback())
	p, err := Open(Config{Interface: loopback, Addrs: []netip.Addr{netip.IPv6Loopback()}, Port: 21791})
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EADDRINUSE) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	messages(t, p, p, &wire.Path{Source: g, Dest: g, SourcePort: 50001})
}

// Between two hosts, every pair of links understands each other: single frames, groups that the kernel leaves whole, and
// groups that it has to split.
func TestInteroperability(t *testing.T) {
	links := map[string]func(*network, *testing.T, int) nic.Port{
		"raw":            func(n *network, t *testing.T, end int) nic.Port { return n.raw(t, end, Config{}) },
		"raw one by one": func(n *network, t *testing.T, end int) nic.Port { return n.raw(t, end, Config{NoOffload: true}) },
		"udp":            func(n *network, t *testing.T, end int) nic.Port { return n.udp(t, end) },
	}
	for _, pair := range [][2]string{{"raw", "raw"}, {"raw", "udp"}, {"udp", "raw"}, {"raw one by one", "udp"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			n := newNetwork(t, 0)
			from, to := links[pair[0]](n, t, 0), links[pair[1]](n, t, 1)
			for _, is6 := range []bool{false, true} {
				meet(t, from, to, path(0, is6))
				messages(t, from, to, path(0, is6))
			}
			if p, ok := from.(*Port); ok && p.out.GSO == strings.Contains(pair[0], "one") {
				t.Errorf("groups: %v", p.out.GSO)
			}
		})
	}
}

// A VLAN interface makes frames carry a tag, with the service level for a priority; what arrives has lost it.
func TestVLAN(t *testing.T) {
	n := newNetwork(t, 42)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	for _, is6 := range []bool{false, true} {
		meet(t, from, to, path(0, is6))
		messages(t, from, to, path(0, is6))
		h := from.out.where.find(0, path(0, is6))
		if h == nil || !h.ethernet.Tagged || h.ethernet.VLAN != 42 || h.ifindex == n.index[0] {
			t.Errorf("frames leave like this: %+v", h)
		}
	}
	if n := to.Counters().ReceivedPackets.Load(); n == 0 || to.Counters().Dropped[wire.DropIP].Load() != 0 {
		t.Error(tell(to.Counters()))
	}
}

func TestRefused(t *testing.T) {
	needRaw(t)
	a := onLoopback()
	open(t, Config{Interface: loopback, Addrs: []netip.Addr{a}})
	if _, err := Open(Config{Interface: loopback, Addrs: []netip.Addr{a}}); !errors.Is(err, unix.EADDRINUSE) ||
		!strings.Contains(err.Error(), "stop it or give") {
		t.Errorf("an address that is taken: %v", err)
	}
	if _, err := Open(Config{Interface: loopback, Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("an address of others: %v", err)
	}
	if _, err := Open(Config{Interface: 1 << 30, Addrs: []netip.Addr{onLoopback()}}); err == nil {
		t.Error("an interface that is not there")
	}
	if _, err := Open(Config{Interface: loopback}); err == nil {
		t.Error("a port without address")
	}
}

// inThread runs f on a thread of its own, which ends with it.
func inThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Without CAP_NET_RAW the error says what is wanting.
func TestNoCapability(t *testing.T) {
	err := inThread(func() error {
		none := [2]unix.CapUserData{}
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return nil
		}
		_, err := Open(Config{Interface: loopback, Addrs: []netip.Addr{onLoopback()}})
		return err
	})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "needs CAP_NET_RAW") {
		t.Errorf("got %v", err)
	}
}
