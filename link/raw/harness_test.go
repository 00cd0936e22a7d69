package raw

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/link/udp"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// needRaw skips a test for want of CAP_NET_RAW.
func needRaw(t testing.TB) {
	t.Helper()
	fd, err := newPacketSocket()
	if nettest.Unable(err) {
		t.Skip("no packet socket: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

var lastAddr atomic.Uint32

// onLoopback returns an address of 127/8 that no other test, of this process or another, is likely to use.
func onLoopback() netip.Addr {
	n := lastAddr.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(128 + os.Getpid()%64), byte(os.Getpid() / 64), byte(n)})
}

func open(t testing.TB, cfg Config) *Port {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// openPair returns two ports on lo and the path from the first to the second.
func openPair(t testing.TB, cfg Config) (from, to *Port, path *wire.Path) {
	t.Helper()
	needRaw(t)
	a, b := onLoopback(), onLoopback()
	cfg.Interface = loopback
	cfg.Addrs = []netip.Addr{a}
	from = open(t, cfg)
	cfg.Addrs = []netip.Addr{b}
	to = open(t, cfg)
	return from, to, &wire.Path{Source: ib.GIDFromAddr(a), Dest: ib.GIDFromAddr(b), SourcePort: 50001}
}

// add appends a frame with this payload; it goes by its PSN.
func add(t testing.TB, out *wire.Burst, path *wire.Path, op wire.Opcode, psn int, stable bool, b []byte) *wire.Frame {
	t.Helper()
	f := out.Next()
	if f == nil {
		t.Fatal("the burst is full")
	}
	f.Path, f.Stable = path, stable
	f.SetHeader(op)
	f.BTH().SetDestQP(0x11)
	f.BTH().SetPSN(ib.NewPSN(uint32(psn)))
	f.Add(&wire.Buffer{B: b}, 0, len(b))
	return f
}

func fill(n int, seed uint64) []byte {
	b := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// received is what a test keeps of a packet.
type received struct {
	op       wire.Opcode
	psn      int
	tos, ttl uint8
	sl       uint8
	payload  []byte
}

// exchange sends what the burst holds and receives until n packets came, or for a second.
func exchange(t testing.TB, from, to nic.Port, out *wire.Burst, n int) (got []received) {
	t.Helper()
	packets := make([]wire.Packet, 16)
	now := clock.Time(time.Hour)
	for begin := time.Now(); len(got) < n || out.Len() > 0; {
		took, err := from.Send(now, out.Frames())
		if err != nil {
			t.Fatal(err)
		}
		out.Consume(took)
		k := to.Recv(now, packets)
		for i := range packets[:k] {
			p := &packets[i]
			r := received{op: p.Opcode, psn: int(p.PSN()), tos: p.TrafficClass, ttl: p.HopLimit, sl: p.SL}
			for _, piece := range p.Payload {
				r.payload = append(r.payload, piece.Mem.Bytes(piece.Off, piece.Len)...)
			}
			got = append(got, r)
		}
		if k == 0 && time.Since(begin) > time.Second {
			t.Fatalf("%d of %d packets came; sender %s; receiver %s", len(got), n, tell(from.Counters()), tell(to.Counters()))
		}
	}
	return got
}

func tell(c *nic.PortCounters) string {
	s := fmt.Sprintf("sent %d lost %d received %d socket drops %d", c.SentPackets.Load(), c.SendErrors.Load(),
		c.ReceivedPackets.Load(), c.SocketDrops.Load())
	for i := range c.Dropped {
		if n := c.Dropped[i].Load(); n > 0 {
			s += fmt.Sprintf(", %v %d", wire.Drop(i), n)
		}
	}
	return s
}

// messages sends messages of every shape, and expects them as they were sent, in order.
func messages(t testing.TB, from, to nic.Port, base *wire.Path) {
	t.Helper()
	for _, marks := range []struct{ tos, ttl, wantTTL uint8 }{{0, 0, 64}, {0x6a, 7, 7}} {
		path := *base
		path.TrafficClass, path.HopLimit, path.FlowLabel, path.SL = marks.tos, marks.ttl, 0x12345, 5
		out := wire.NewBurst(256)
		var want []received
		frame := func(op wire.Opcode, n int, stable bool) {
			psn := len(want)
			b := fill(n, uint64(psn))
			add(t, out, &path, op, psn, stable, b)
			want = append(want, received{op: op, psn: psn, tos: marks.tos, ttl: marks.wantTTL, payload: b})
		}
		frame(wire.RCSendOnly, 0, true)
		frame(wire.RCWriteFirst, 1024, true)
		for range 40 {
			frame(wire.RCWriteMiddle, 1024, true)
		}
		frame(wire.RCWriteLast, 1001, true)
		for i := range 20 {
			frame(wire.RCReadResponseMiddle, 1024, false)
			frame(wire.RCSendOnly, 3*i, i%3 == 0)
		}
		for range 30 {
			frame(wire.RCSendOnly, 64, false)
		}
		got := exchange(t, from, to, out, len(want))
		for i := range want {
			g, w := got[i], want[i]
			if g.op != w.op || g.psn != w.psn || g.tos != w.tos || g.ttl != w.ttl || !bytes.Equal(g.payload, w.payload) {
				t.Fatalf("packet %d: got %v psn %d tos %#x ttl %d %d bytes, want %v psn %d tos %#x ttl %d %d bytes",
					i, g.op, g.psn, g.tos, g.ttl, len(g.payload), w.op, w.psn, w.tos, w.ttl, len(w.payload))
			}
		}
	}
}

// network is two network namespaces with a veth pair between them: an interface, and addresses on it, at each end.
type network struct {
	ends  [2]int // namespaces
	index [2]int
	names [2]string
}

// Addresses of the two ends.
var (
	v4 = [2]string{"10.9.0.1", "10.9.0.2"}
	v6 = [2]string{"fd09::1", "fd09::2"}
)

// newNetwork makes namespaces of the test's own, or skips. With a VLAN the addresses are on interfaces of that on top.
func newNetwork(t *testing.T, vlan int) *network {
	t.Helper()
	needRaw(t)
	n := &network{}
	for i := range n.ends {
		err := nettest.Inside(-1, func() error {
			fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			n.ends[i] = fd
			return err
		})
		if nettest.Unable(err) {
			t.Skip("no network namespace: ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(n.ends[i]) })
	}
	n.connect(t, vlan)
	return n
}

// connect joins the namespaces by a veth pair, and gives its ends their addresses.
func (n *network) connect(t *testing.T, vlan int) {
	t.Helper()
	n.at(t, 0, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "end0", MTU: 1500}, PeerName: "end1", PeerNamespace: netlink.NsFd(n.ends[1]),
		})
	})
	noVLAN := false
	for i := range n.ends {
		n.at(t, i, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			link, err := netlink.LinkByName(fmt.Sprintf("end%d", i))
			if err != nil {
				return err
			}
			for _, l := range []netlink.Link{lo, link} {
				if err := netlink.LinkSetUp(l); err != nil {
					return err
				}
			}
			if vlan != 0 {
				a := netlink.LinkAttrs{Name: fmt.Sprintf("vlan%d", i), ParentIndex: link.Attrs().Index}
				if err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: a, VlanId: vlan}); errors.Is(err, unix.EOPNOTSUPP) {
					noVLAN = true
					return nil
				} else if err != nil {
					return err
				}
				if link, err = netlink.LinkByName(a.Name); err != nil {
					return err
				}
				if err := netlink.LinkSetUp(link); err != nil {
					return err
				}
			}
			n.index[i], n.names[i] = link.Attrs().Index, link.Attrs().Name
			for _, s := range []string{v4[i] + "/24", v6[i] + "/64"} {
				a, err := netlink.ParseAddr(s)
				if err != nil {
					return err
				}
				a.Flags |= unix.IFA_F_NODAD
				if err := netlink.AddrAdd(link, a); err != nil {
					return err
				}
			}
			return nil
		})
		if noVLAN {
			t.Skip("this kernel has no VLAN interfaces")
		}
	}
}

// at runs f in the namespace of one end.
func (n *network) at(t testing.TB, end int, f func() error) {
	t.Helper()
	if err := nettest.Inside(n.ends[end], f); err != nil {
		t.Fatal(err)
	}
}

func addrs(end int) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(v4[end]), netip.MustParseAddr(v6[end])}
}

// raw opens a raw port at one end.
func (n *network) raw(t testing.TB, end int, cfg Config) (p *Port) {
	t.Helper()
	cfg.Interface = n.index[end]
	if cfg.Addrs == nil {
		cfg.Addrs = addrs(end)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	n.at(t, end, func() (err error) { p, err = Open(cfg); return err })
	t.Cleanup(func() { p.Close() })
	return p
}

// udp opens an ordinary port at one end.
func (n *network) udp(t testing.TB, end int) (p *udp.Port) {
	t.Helper()
	n.at(t, end, func() (err error) {
		p, err = udp.Open(udp.Config{Interface: n.index[end], Addrs: addrs(end), Log: slog.New(slog.DiscardHandler)})
		return err
	})
	t.Cleanup(func() { p.Close() })
	return p
}

// path leads from one end to the other.
func path(from int, is6 bool) *wire.Path {
	a := v4
	if is6 {
		a = v6
	}
	gid := func(i int) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(a[i])) }
	return &wire.Path{Source: gid(from), Dest: gid(1 - from), SourcePort: 50001}
}

// meet sends until the way is known, and has what came received and forgotten.
func meet(t testing.TB, from, to nic.Port, path *wire.Path) {
	t.Helper()
	const hello, last = 1, 2 // PSNs
	out, packets := wire.NewBurst(1), make([]wire.Packet, 4)
	psn, done := hello, false
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		now := clock.Time(time.Hour + time.Since(begin))
		if !done {
			add(t, out, path, wire.RCSendOnly, psn, false, nil)
			if n, err := from.Send(now, out.Frames()); n != 1 || err != nil {
				t.Fatalf("Send took %d of 1 frame, %v", n, err)
			}
			out.Consume(1)
			done = psn == last
		}
		for n := 1; n > 0; {
			n = to.Recv(now, packets)
			for i := range packets[:n] {
				if packets[i].PSN() == last {
					return // and with it all that waited on the way
				}
				psn = last
			}
		}
		if time.Since(begin) > 3*time.Second {
			t.Fatalf("nothing comes through: sender %s; receiver %s", tell(from.Counters()), tell(to.Counters()))
		}
	}
}
