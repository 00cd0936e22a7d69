package udp

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func gid(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }

// receiveOne waits for one packet.
func receiveOne(p *Port, patience time.Duration) *wire.Packet {
	packets := make([]wire.Packet, 1)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if p.Recv(0, packets) == 1 {
			return &packets[0]
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// A datagram to a group reaches the ports that have joined it, in IPv4 and IPv6, with a right ICRC, and no others.
func TestGroups(t *testing.T) {
	for _, c := range []struct{ name, a, b, group, other string }{
		{"IPv4", "10.0.0.1", "10.0.0.2", "239.1.2.3", "239.1.2.4"},
		{"IPv6", "fd00::1", "fd00::2", "ff15::1:2:3", "ff15::1:2:4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := c.a + "/24"
			if c.name == "IPv6" {
				first = c.a + "/64"
			}
			inNamespace(t, 9000, first, func(lo netlink.Link) {
				// One end of a cable: what is sent to a group on it comes back to the members here.
				veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 9000}, PeerName: "eth1"}
				if err := netlink.LinkAdd(veth); err != nil {
					t.Log("no cable, so no test: ", err)
					return
				}
				link, far := must(netlink.LinkByName("eth0")), must(netlink.LinkByName("eth1"))
				if err := netlink.LinkSetUp(far); err != nil {
					t.Error(err)
					return
				}
				bits := "/24"
				if c.name == "IPv6" {
					bits = "/64"
				}
				for _, a := range []string{c.a, c.b} {
					_ = netlink.AddrDel(lo, must(netlink.ParseAddr(a+bits)))
					addr := must(netlink.ParseAddr(a + bits))
					addr.Flags |= 2 // IFA_F_NODAD
					if err := netlink.AddrAdd(link, addr); err != nil {
						t.Error(err)
						return
					}
				}
				if err := netlink.LinkSetUp(link); err != nil {
					t.Error(err)
					return
				}
				var ports []*Port
				for _, a := range []string{c.a, c.b} {
					p, err := Open(Config{Addrs: []netip.Addr{netip.MustParseAddr(a)}, Interface: link.Attrs().Index})
					if err != nil {
						t.Error(err)
						return
					}
					defer p.Close()
					ports = append(ports, p)
				}
				a, b := ports[0], ports[1]
				send := func(to string, psn uint32) {
					out := wire.NewBurst(4)
					path := &wire.Path{Source: gid(c.a), Dest: gid(to), HopLimit: 3}
					add(t, out, path, wire.UDSendOnly, psn, true, &wire.Buffer{B: make([]byte, 100)}, 100)
					if n, err := a.Send(0, out.Frames()); n != 1 || err != nil {
						t.Errorf("Send took %d frames, %v", n, err)
					}
				}
				// The kernel may take a moment before it has a way to groups.
				for begun := time.Now(); a.Counters().SentPackets.Load() == 0 && time.Since(begun) < 5*time.Second; time.Sleep(time.Millisecond) {
					send(c.group, 1)
				}
				if p := receiveOne(b, 20*time.Millisecond); p != nil {
					t.Error("a packet for a group that was not joined")
				}
				if err := b.Join(gid(c.group)); err != nil {
					t.Error(err)
					return
				}
				if err := a.Join(gid(c.group)); err != nil { // both of one host
					t.Error(err)
					return
				}
				send(c.other, 2)
				send(c.group, 3)
				p := receiveOne(b, time.Second)
				if p == nil || p.PSN() != 3 || p.Dest != gid(c.group) || p.Source != gid(c.a) || p.HopLimit != 3 {
					t.Errorf("received %+v", p)
				}
				// Unicast goes on, and addresses may change meanwhile.
				if err := b.SetAddrs(b.Addrs()); err != nil {
					t.Error(err)
				}
				send(c.b, 4)
				if p := receiveOne(b, time.Second); p == nil || p.PSN() != 4 || p.Dest != gid(c.b) {
					t.Errorf("received %+v", p)
				}
				b.Leave(gid(c.group))
				b.Leave(gid(c.group))
				send(c.group, 5)
				if p := receiveOne(b, 20*time.Millisecond); p != nil {
					t.Error("a packet for a group that was left")
				}
			})
		})
	}
}

// A device whose interface went away and came back with another index is in its groups again, though its only address is
// a link-local one; and what fails is tried again.
func TestGroupsFollowTheInterface(t *testing.T) {
	inNamespace(t, 9000, "10.0.0.1/24", func(netlink.Link) {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 9000}, PeerName: "eth1"}
		if err := netlink.LinkAdd(veth); err != nil {
			t.Log("no cable, so no test: ", err)
			return
		}
		far, link := must(netlink.LinkByName("eth0")), must(netlink.LinkByName("eth1"))
		for l, a := range map[netlink.Link]string{far: "fe80::2/64", link: "fe80::1/64"} {
			addr := must(netlink.ParseAddr(a))
			addr.Flags |= 2 // IFA_F_NODAD
			if err := errors.Join(netlink.LinkSetUp(l), netlink.AddrAdd(l, addr)); err != nil {
				t.Error(err)
				return
			}
		}
		open := func(a string, on netlink.Link) *Port {
			return must(Open(Config{Addrs: []netip.Addr{netip.MustParseAddr(a)}, Interface: on.Attrs().Index}))
		}
		a, b := open("fe80::2", far), open("fe80::1", link)
		defer a.Close()
		defer b.Close()
		group := gid("ff12::1:2:3")
		if err := b.Join(group); err != nil {
			t.Error(err)
			return
		}
		for range 2 {
			if err := b.SetInterface(9999); !errors.Is(err, unix.ENODEV) {
				t.Errorf("moved to an interface that is not there: %v", err)
			}
		}
		if err := errors.Join(b.SetInterface(link.Attrs().Index), b.SetAddrs([]netip.Addr{netip.MustParseAddr("fe80::1")})); err != nil {
			t.Errorf("it is back: %v", err)
		}
		if len(b.groups) != 1 || len(b.in.Sockets) != 2 || b.astray {
			t.Errorf("%d groups, %d sockets, astray %v", len(b.groups), len(b.in.Sockets), b.astray)
		}
		path := &wire.Path{Source: gid("fe80::2"), Dest: group, HopLimit: 1}
		var p *wire.Packet
		// The kernel may take a moment before it has a way to groups.
		for begun := time.Now(); p == nil && time.Since(begun) < 5*time.Second; p = receiveOne(b, 10*time.Millisecond) {
			out := wire.NewBurst(4)
			add(t, out, path, wire.UDSendOnly, 1, true, &wire.Buffer{B: make([]byte, 100)}, 100)
			if n, err := a.Send(0, out.Frames()); n != 1 || err != nil {
				t.Errorf("Send took %d frames, %v", n, err)
			}
		}
		if p == nil || p.Dest != group {
			t.Errorf("received %+v", p)
		}
	})
}

// A device without an address of the family cannot be in a group.
func TestGroupOfOtherFamily(t *testing.T) {
	p, err := Open(Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.77")}, Port: 14791})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Join(gid("ff02::5")); err == nil {
		t.Error("joined")
	}
	if len(p.in.Sockets) != 1 {
		t.Errorf("%d sockets", len(p.in.Sockets))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
