package raw

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/net/bpf"
)

// frameOf makes the whole Ethernet frame of a datagram along path, with the identification id.
func frameOf(t testing.TB, p *wire.Path, e wire.Ethernet, id uint16, payload []byte) []byte {
	t.Helper()
	udp, err := add(t, wire.NewBurst(1), p, wire.RCSendOnly, 77, false, payload).AppendTo(nil, id)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, e.HeaderLen(p), e.HeaderLen(p)+len(udp))
	var f wire.Framer
	f.Put(b, &e, p, wire.Port, id, len(udp))
	return append(b, udp...)
}

// fixSum makes the checksum of the IPv4 header right again.
func fixSum(ip []byte) {
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^fold(sum(0, ip[:20])))
}

func testPaths() []*wire.Path { return []*wire.Path{path(0, false), path(0, true)} }

// What the framer writes is read, with and without a tag, and minimal frames with their padding.
func TestReadWhatIsWritten(t *testing.T) {
	for _, p := range testPaths() {
		p.TrafficClass, p.HopLimit = 0x6a, 3
		for _, e := range []wire.Ethernet{{}, {Tagged: true, VLAN: 42, Priority: 5}} {
			frame := frameOf(t, p, e, 0xbeef, fill(100, 1))
			frame = append(frame, make([]byte, 7)...)
			var h headers
			var d wire.Datagram
			var ok bool
			if d.Bytes, ok = h.read(frame, wire.Port, &d); !ok {
				t.Fatalf("refused: % x", frame)
			}
			var packet wire.Packet
			if drop := wire.Parse(&packet, &d); drop != wire.Accepted || packet.PSN() != 77 || packet.Len != 100 {
				t.Fatalf("%v: %+v", drop, d)
			}
			if d.Source != p.Source || d.Dest != p.Dest || d.SourcePort != p.SourcePort || d.TrafficClass != 0x6a || d.HopLimit != 3 || d.NoDF {
				t.Errorf("%+v", d)
			}
			if p.Source.Addr().Is4() && (d.ID != 0xbeef || !d.IDKnown) {
				t.Errorf("identification %#x, known %v", d.ID, d.IDKnown)
			}
		}
	}
}

// damage is one way in which headers are no good.
var damage = []struct {
	name   string
	is6    bool
	change func(ip []byte) []byte // of the IP packet
}{
	{"a fragment with more behind it", false, func(b []byte) []byte { b[6] |= 0x20; fixSum(b); return b }},
	{"a later fragment", false, func(b []byte) []byte { b[7] = 5; fixSum(b); return b }},
	{"options", false, func(b []byte) []byte {
		b = append(append(append([]byte(nil), b[:20]...), 1, 1, 1, 1), b[20:]...)
		b[0] = 0x46
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
		return b
	}},
	{"a wrong header checksum", false, func(b []byte) []byte { b[10]++; return b }},
	{"a total length of 0", false, func(b []byte) []byte { b[2], b[3] = 0, 0; fixSum(b); return b }},
	{"a total length beyond the frame", false, func(b []byte) []byte { b[2]++; fixSum(b); return b }},
	{"a total length that ends early", false, func(b []byte) []byte { b[3]--; fixSum(b); return b }},
	{"TCP", false, func(b []byte) []byte { b[9] = 6; fixSum(b); return b }},
	{"version 6 in an IPv4 frame", false, func(b []byte) []byte { b[0] = 0x65; fixSum(b); return b }},
	{"another port", false, func(b []byte) []byte { b[23]++; return b }},
	{"a UDP length that is too long", false, func(b []byte) []byte { b[25]++; return b }},
	{"a UDP length of 0", false, func(b []byte) []byte { b[24], b[25] = 0, 0; return b }},
	{"a cut header", false, func(b []byte) []byte { return b[:19] }},
	{"nothing behind Ethernet", false, func(b []byte) []byte { return nil }},
	{"an extension header", true, func(b []byte) []byte { b[6] = 0; return b }},
	{"a fragment header", true, func(b []byte) []byte { b[6] = 44; return b }},
	{"a payload length beyond the frame", true, func(b []byte) []byte { b[4]++; return b }},
	{"a payload length of 0", true, func(b []byte) []byte { b[4], b[5] = 0, 0; return b }},
	{"version 4 in an IPv6 frame", true, func(b []byte) []byte { b[0] = 0x45; return b }},
	{"another port", true, func(b []byte) []byte { b[43]++; return b }},
	{"a cut header", true, func(b []byte) []byte { return b[:39] }},
}

func TestDamagedHeaders(t *testing.T) {
	for _, c := range damage {
		frame := frameOf(t, path(0, c.is6), wire.Ethernet{}, 0, fill(100, 1))
		frame = append(frame[:offIP:offIP], c.change(bytes.Clone(frame[offIP:]))...)
		var h headers
		var d wire.Datagram
		if _, ok := h.read(frame, wire.Port, &d); ok {
			t.Errorf("%s (IPv6 %v): read", c.name, c.is6)
		}
	}
}

// Whatever comes, the headers are read without a panic, and what is given on lies inside the frame.
func FuzzHeaders(f *testing.F) {
	for _, p := range testPaths() {
		f.Add(frameOf(f, p, wire.Ethernet{}, 1, fill(32, 1)))
		f.Add(frameOf(f, p, wire.Ethernet{Tagged: true}, 1, nil))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var h headers
		var d wire.Datagram
		b, ok := h.read(frame, wire.Port, &d)
		if ok && len(b) > len(frame)-offIP-ipv4Header-udpHeader {
			t.Errorf("%d bytes of payload in a frame of %d", len(b), len(frame))
		}
		d.Bytes = b
		var packet wire.Packet
		_ = wire.Parse(&packet, &d)
	})
}

// The filter lets through what is for the port at one of the addresses. What the kernel knows beside the frame is tested
// where a kernel is.
func TestFilter(t *testing.T) {
	many := func(n int) (a []netip.Addr) {
		for i := range n {
			a = append(a, netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}))
			b := netip.MustParseAddr("fd08::").As16()
			b[14], b[15] = byte(i>>8), byte(i)
			a = append(a, netip.AddrFrom16(b))
		}
		return a
	}
	for _, others := range []int{0, 1, 150} {
		for _, mine := range [][]netip.Addr{nil, addrs(1)[:1], addrs(1)[1:], addrs(1)} {
			vm, err := bpf.NewVM(datagrams(append(many(others), mine...), wire.Port))
			if err != nil {
				t.Fatal(err)
			}
			passes := func(frame []byte) bool {
				n, err := vm.Run(frame)
				if err != nil {
					t.Fatal(err)
				}
				return n >= len(frame)
			}
			for _, p := range testPaths() {
				want := false
				for _, a := range mine {
					want = want || ib.GIDFromAddr(a) == p.Dest
				}
				frame := frameOf(t, p, wire.Ethernet{}, 0, fill(100, 1))
				if passes(frame) != want {
					t.Errorf("%d other addresses, %v: %v passes %v", others, mine, p.Dest, !want)
				}
				for _, other := range []*wire.Path{{Source: p.Source, Dest: p.Source}, {Source: p.Dest, Dest: p.Source}} {
					if passes(frameOf(t, other, wire.Ethernet{}, 0, nil)) {
						t.Errorf("%v passes", other.Dest)
					}
				}
				frame[12] = 0x88 // another EtherType
				if passes(frame) {
					t.Error("another protocol passes")
				}
			}
		}
	}
	vm, err := bpf.NewVM(datagrams(addrs(1), wire.Port))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range damage {
		switch c.name {
		case "a later fragment", "options", "TCP", "another port", "an extension header", "a fragment header", "version 6 in an IPv4 frame":
			frame := frameOf(t, path(0, c.is6), wire.Ethernet{}, 0, fill(100, 1))
			frame = append(frame[:offIP:offIP], c.change(bytes.Clone(frame[offIP:]))...)
			if n, _ := vm.Run(frame); n != 0 {
				t.Errorf("%s passes", c.name)
			}
		}
	}
}
