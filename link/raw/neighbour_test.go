package raw

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Frames to nobody are taken and counted as lost, and others do not wait for them.
func TestUnresolved(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	there, nowhere, noRoute := path(0, false), *path(0, false), *path(0, false)
	meet(t, from, to, there)
	nowhere.Dest = ib.GIDFromAddr(netip.MustParseAddr("10.9.0.77"))
	noRoute.Dest = ib.GIDFromAddr(netip.MustParseAddr("192.0.2.1"))
	mixed := *there
	mixed.Dest = path(0, true).Dest
	lost := from.Counters().SendErrors.Load()
	out := wire.NewBurst(16)
	for i, p := range []*wire.Path{there, &nowhere, there, &noRoute, there, &mixed, there} {
		add(t, out, p, wire.RCSendOnly, i, true, fill(600, 1))
	}
	for i, g := range exchange(t, from, to, out, 4) {
		if g.psn != 2*i {
			t.Errorf("packet %d has PSN %d", i, g.psn)
		}
	}
	// The one to nobody waits until the kernel has given up.
	for end := time.Now().Add(giveUp + time.Second); ; time.Sleep(5 * time.Millisecond) {
		from.Recv(0, make([]wire.Packet, 1))
		if k := from.Counters().SendErrors.Load() - lost; k == 3 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d frames lost, want 3", k)
		}
	}
	if len(from.out.held) != 0 {
		t.Errorf("%d frames wait still", len(from.out.held))
	}
}

// The first frames to a neighbour that nobody has spoken to arrive, in their order, and the port's descriptor shows that
// they can go. What is too much to wait for is lost.
func TestFirstFrames(t *testing.T) {
	n := newNetwork(t, 0)
	for _, is6 := range []bool{false, true} {
		from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
		p := path(0, is6)
		n.at(t, 0, func() error {
			list, err := netlink.NeighList(n.index[0], netlink.FAMILY_ALL)
			for i := range list {
				_ = netlink.NeighDel(&list[i])
			}
			return err
		})
		out := wire.NewBurst(maxHeld + 8)
		for i := range maxHeld + 3 {
			add(t, out, p, wire.RCSendOnly, i, true, fill(i, 1))
		}
		if k, err := from.Send(0, out.Frames()); k != out.Len() || err != nil {
			t.Fatalf("Send took %d of %d frames, %v", k, out.Len(), err)
		}
		if k := len(from.out.held); k == 0 {
			t.Log("the neighbour was known already")
		}
		packets, got := make([]wire.Packet, 8), 0
		for end := time.Now().Add(2 * time.Second); got < maxHeld; {
			events := []unix.PollFd{{Fd: int32(from.Descriptor()), Events: unix.POLLIN}}
			if _, err := unix.Poll(events, 20); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			if events[0].Revents != 0 {
				from.Recv(0, make([]wire.Packet, 1))
			}
			k := to.Recv(0, packets)
			for i := range packets[:k] {
				if int(packets[i].PSN()) != got || packets[i].Len != got {
					t.Fatalf("packet %d has PSN %d and %d bytes", got, packets[i].PSN(), packets[i].Len)
				}
				got++
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d packets came: sender %s; receiver %s", got, maxHeld, tell(from.Counters()), tell(to.Counters()))
			}
		}
		// The descriptor is silent again: a shard that sleeps on it does.
		from.Recv(0, packets)
		events := []unix.PollFd{{Fd: int32(from.Descriptor()), Events: unix.POLLIN}}
		if k, _ := unix.Poll(events, 0); k != 0 && from.Recv(0, packets) == 0 {
			if k, _ = unix.Poll(events, 0); k != 0 {
				t.Error("the descriptor stays readable, and nothing comes")
			}
		}
		from.Close()
		to.Close()
	}
}

// What does not fit the MTU is lost as with any other NIC, and nothing else is.
func TestMTU(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	for _, is6 := range []bool{false, true} {
		p := path(0, is6)
		meet(t, from, to, p)
		lost := from.Counters().SendErrors.Load()
		most := 1500 - ipv4Header - udpHeader - wire.BTHSize - wire.ICRCSize
		if is6 {
			most -= ipv6Header - ipv4Header
		}
		out := wire.NewBurst(16)
		for i := range 6 {
			k := most
			if i == 3 {
				k += 4
			}
			add(t, out, p, wire.RCSendOnly, i, true, fill(k, 1))
		}
		exchange(t, from, to, out, 5)
		if k := from.Counters().SendErrors.Load() - lost; k != 1 {
			t.Errorf("%d frames lost, want 1", k)
		}
	}
}

// A peer whose address moves to another interface card is found again.
func TestNeighbourMoves(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	p := path(0, false)
	meet(t, from, to, p)
	before := *from.out.where.find(0, p)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	n.at(t, 1, func() error {
		l, err := netlink.LinkByIndex(n.index[1])
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, mac)
	})
	n.at(t, 0, func() error { // as the kernel does when it hears of it
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: n.index[0], IP: net.ParseIP(v4[1]), HardwareAddr: mac, State: netlink.NUD_REACHABLE,
		})
	})
	// meet's clock begins where that of the first meeting did; an hour later the answer is old.
	now := clock.Time(3 * time.Hour)
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		if h := from.out.where.find(now, p); h.ethernet.Dest == [6]byte(mac) && before.ethernet.Dest != [6]byte(mac) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("frames still go to where the peer was")
		}
	}
	meet(t, from, to, p)
}

// Behind a gateway it is the gateway's address that frames go to.
func TestGateway(t *testing.T) {
	n := newNetwork(t, 0)
	const beyond4, beyond6 = "10.99.0.1", "fd99::1"
	n.at(t, 1, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, s := range []string{beyond4 + "/32", beyond6 + "/128"} {
			a, err := netlink.ParseAddr(s)
			if err != nil {
				return err
			}
			a.Flags |= unix.IFA_F_NODAD
			if err := netlink.AddrAdd(lo, a); err != nil {
				return err
			}
		}
		return nil
	})
	n.at(t, 0, func() error {
		for _, r := range [][2]string{{beyond4 + "/32", v4[1]}, {beyond6 + "/128", v6[1]}} {
			dst, err := netlink.ParseIPNet(r[0])
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: n.index[0], Dst: dst, Gw: net.ParseIP(r[1])}); err != nil {
				return err
			}
		}
		return nil
	})
	from := n.raw(t, 0, Config{})
	to := n.raw(t, 1, Config{Addrs: []netip.Addr{netip.MustParseAddr(beyond4), netip.MustParseAddr(beyond6)}})
	for i, beyond := range []string{beyond4, beyond6} {
		p := path(0, i == 1)
		p.Dest = ib.GIDFromAddr(netip.MustParseAddr(beyond))
		meet(t, from, to, p)
		messages(t, from, to, p)
	}
}

// Two devices of one host on different interfaces meet on lo, whatever their addresses.
func TestSameHost(t *testing.T) {
	n := newNetwork(t, 0)
	from := n.raw(t, 0, Config{Addrs: addrs(0)[:1]})
	to := n.raw(t, 0, Config{Addrs: addrs(0)[1:]})
	second := netip.MustParseAddr("10.9.0.9")
	n.at(t, 0, func() error {
		l, err := netlink.LinkByIndex(n.index[0])
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(second.String() + "/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			return err
		}
		return to.SetAddrs([]netip.Addr{second})
	})
	p := path(0, false)
	p.Dest = ib.GIDFromAddr(second)
	meet(t, from, to, p)
	messages(t, from, to, p)
	if h := from.out.where.find(0, p); h.ifindex != loopback {
		t.Errorf("frames leave by interface %d", h.ifindex)
	}
}

// An address given up gets nothing and can be had by others; one that stays loses nothing.
func TestSetAddrs(t *testing.T) {
	from, to, p := openPair(t, Config{})
	first, second := p.Dest.Addr(), onLoopback()
	if err := to.SetAddrs([]netip.Addr{first, second, second}); err != nil || len(to.Addrs()) != 2 {
		t.Fatalf("%v, %v", to.Addrs(), err)
	}
	toSecond := *p
	toSecond.Dest = ib.GIDFromAddr(second)
	out := wire.NewBurst(8)
	add(t, out, p, wire.RCSendOnly, 1, false, nil)
	add(t, out, &toSecond, wire.RCSendOnly, 2, false, nil)
	exchange(t, from, to, out, 2)
	if err := to.SetAddrs([]netip.Addr{second, netip.MustParseAddr("203.0.113.9")}); err == nil || len(to.Addrs()) != 2 {
		t.Errorf("an address of others: %v, %v", to.Addrs(), err)
	}
	if err := to.SetAddrs([]netip.Addr{second}); err != nil {
		t.Fatal(err)
	}
	other := open(t, Config{Interface: loopback, Addrs: []netip.Addr{first}})
	add(t, out, p, wire.RCSendOnly, 3, false, nil)
	add(t, out, &toSecond, wire.RCSendOnly, 4, false, nil)
	if got := exchange(t, from, to, out, 1); len(got) != 1 || got[0].psn != 4 {
		t.Errorf("got %v", got)
	}
	if k := other.Recv(0, make([]wire.Packet, 4)); k != 1 {
		t.Errorf("the new owner got %d packets", k)
	}
}

// A closed port has nothing left, and refuses.
func TestClosed(t *testing.T) {
	n := newNetwork(t, 0)
	ignore := goleak.IgnoreCurrent()
	p := n.raw(t, 0, Config{})
	out := wire.NewBurst(1)
	add(t, out, path(0, false), wire.RCSendOnly, 1, false, nil)
	if k, err := p.Send(0, out.Frames()); k != 1 || err != nil { // asks the resolver
		t.Errorf("Send took %d frames, %v", k, err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, ignore)
	if k, err := p.Send(0, out.Frames()); k != 0 || err == nil {
		t.Errorf("Send took %d frames, %v", k, err)
	}
	if k := p.Recv(0, make([]wire.Packet, 1)); k != 0 {
		t.Errorf("Recv gave %d packets", k)
	}
}

func TestAccept(t *testing.T) {
	from, to, p := openPair(t, Config{Accept: func(g ib.GID) bool { return g.Addr() == netip.MustParseAddr("192.0.2.1") }})
	out := wire.NewBurst(8)
	add(t, out, p, wire.RCSendOnly, 1, false, nil)
	if k, err := from.Send(0, out.Frames()); k != 1 || err != nil {
		t.Fatalf("Send took %d frames, %v", k, err)
	}
	for end := time.Now().Add(time.Second); to.Counters().Filtered.Load() == 0; {
		if to.Recv(0, make([]wire.Packet, 1)) != 0 || time.Now().After(end) {
			t.Fatal(tell(to.Counters()))
		}
	}
}

// A link that goes down and up, and an interface that goes away and comes back with another index, are as good as before.
func TestInterfaceComesBack(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	p := path(0, false)
	meet(t, from, to, p)
	group := *p
	group.Dest = ib.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))
	n.at(t, 1, func() error { return to.Join(group.Dest) })

	link := func(f func(netlink.Link) error) func() error {
		return func() error {
			l, err := netlink.LinkByIndex(n.index[0])
			if err != nil {
				return err
			}
			return f(l)
		}
	}
	n.at(t, 0, link(netlink.LinkSetDown))
	out := wire.NewBurst(1)
	add(t, out, p, wire.RCSendOnly, 1, false, nil)
	if k, err := from.Send(0, out.Frames()); k != 1 || err != nil {
		t.Fatalf("on a link that is down, Send took %d frames, %v", k, err)
	}
	n.at(t, 0, link(netlink.LinkSetUp))
	meet(t, from, to, p)

	before := n.index
	n.at(t, 0, link(netlink.LinkDel))
	n.at(t, 0, func() error { // takes the old index
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "other0"}, PeerName: "other1", PeerNamespace: netlink.NsFd(n.ends[1])})
	})
	n.connect(t, 0)
	for i, port := range []*Port{from, to} {
		if n.index[i] == before[i] {
			t.Skip("the kernel gave the same index again")
		}
		n.at(t, i, func() error { return errors.Join(port.SetInterface(n.index[i]), port.SetAddrs(addrs(i))) })
	}
	meet(t, from, to, p)
	messages(t, from, to, p)
	meet(t, from, to, &group)
}

// An answer that comes at any moment while frames are looked at loses none and lets none overtake another.
func TestAnswerAnyTime(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	p := path(0, false)
	meet(t, from, to, p)
	way := from.out.where.find(0, p)
	asks := make(chan *neighbour, 1)
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for i := 0; !stop.Load(); {
			select {
			case k := <-asks:
				i++
				for range i % 256 { // some of these moments are between two looks
					stop.Load()
				}
				k.hop.Store(way)
				k.asking.Store(false)
			default:
			}
		}
	}()
	real := from.out.where.ask
	from.out.where.ask = asks
	defer func() { from.out.where.ask = real }()
	lost := from.Counters().SendErrors.Load()
	const together = 16
	out, packets := wire.NewBurst(together), make([]wire.Packet, 8)
	for i := range 2000 {
		from.out.where.forget()
		for k := range together {
			add(t, out, p, wire.RCSendOnly, k, true, fill(8, 1))
		}
		if sent, err := from.Send(clock.Time(i)*clock.Time(10*time.Second), out.Frames()); sent != together || err != nil {
			t.Fatalf("sent %d, %v", sent, err)
		}
		out.Consume(together)
		for from.out.release(); len(from.out.held) > 0; from.out.release() {
		}
		next := 0
		for end := time.Now().Add(time.Second); next < together && time.Now().Before(end); {
			for j := range packets[:to.Recv(0, packets)] {
				if psn := int(packets[j].PSN()); psn != next {
					t.Fatalf("round %d: packet %d came where %d was due", i, psn, next)
				}
				next++
			}
		}
		if next != together {
			t.Fatalf("round %d: %d of %d packets came", i, next, together)
		}
	}
	if k := from.Counters().SendErrors.Load() - lost; k > 0 {
		t.Errorf("%d frames lost", k)
	}
}
