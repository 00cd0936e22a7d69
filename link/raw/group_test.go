package raw

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// isMember tells whether the kernel of one end is a member of the IPv4 group 239.1.2.3.
func (n *network) isMember(t *testing.T, end int) (is bool) {
	t.Helper()
	n.at(t, end, func() error {
		b, err := os.ReadFile("/proc/thread-self/net/igmp")
		is = bytes.Contains(b, []byte("030201EF"))
		return err
	})
	return is
}

// A member receives what is sent to the group, the first datagram too, and the kernel tells the network of it; nobody
// receives before joining or after leaving.
func TestGroups(t *testing.T) {
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	for _, is6 := range []bool{false, true} {
		p := path(0, is6)
		group := netip.MustParseAddr("239.1.2.3")
		if is6 {
			group = netip.MustParseAddr("ff0e::1:2:3")
		}
		p.Dest = ib.GIDFromAddr(group)
		send := func(psn int) {
			out := wire.NewBurst(1)
			add(t, out, p, wire.UDSendOnly, psn, false, fill(100, 1))
			if k, err := from.Send(0, out.Frames()); k != 1 || err != nil {
				t.Fatalf("Send took %d frames, %v", k, err)
			}
		}
		send(1)
		n.at(t, 1, func() error { return to.Join(p.Dest) })
		out := wire.NewBurst(4)
		for i := range 3 {
			add(t, out, p, wire.UDSendOnly, 2+i, false, fill(100, 1))
		}
		if got := exchange(t, from, to, out, 3); got[0].psn != 2 || got[2].psn != 4 {
			t.Errorf("%s: %v", group, got)
		}
		if !is6 && !n.isMember(t, 1) {
			t.Error("the kernel is no member")
		}
		to.Leave(p.Dest)
		to.Leave(p.Dest)
		send(5)
		if k := to.Recv(0, make([]wire.Packet, 4)); k != 0 {
			t.Errorf("%s: %d packets for who left", group, k)
		}
		if !is6 && n.isMember(t, 1) {
			t.Error("the kernel is still a member")
		}
	}
	if k := from.Counters().SendErrors.Load(); k != 0 {
		t.Errorf("%d frames lost", k)
	}
	if err := to.Join(ib.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))); err == nil {
		t.Error("joined what is no group")
	}
	only4 := n.raw(t, 0, Config{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.9")}})
	if err := only4.Join(ib.GIDFromAddr(netip.MustParseAddr("ff0e::1"))); !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("a group of another family: %v", err)
	}
}

// On the loopback interface all devices of the host meet in a group.
func TestGroupOnLoopback(t *testing.T) {
	from, to, p := openPair(t, Config{})
	p.Dest = ib.GIDFromAddr(netip.MustParseAddr("239.1.2.4"))
	for _, port := range []*Port{from, to} {
		if err := port.Join(p.Dest); err != nil {
			t.Fatal(err)
		}
	}
	out := wire.NewBurst(1)
	add(t, out, p, wire.UDSendOnly, 1, false, fill(100, 1))
	exchange(t, from, to, out, 1)
	if k := from.Recv(0, make([]wire.Packet, 4)); k != 1 { // the device tells its own
		t.Errorf("the sender got %d packets", k)
	}
}
