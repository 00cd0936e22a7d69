package wire

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/softnic/softnicd/ib"
)

func path(source, dest string) *Path {
	return &Path{
		Source: ib.GIDFromAddr(netip.MustParseAddr(source)), Dest: ib.GIDFromAddr(netip.MustParseAddr(dest)),
		SourcePort: 0xc123, TrafficClass: 0x6a, HopLimit: 63, FlowLabel: 0x12345,
	}
}

var (
	path4 = path("192.0.2.1", "198.51.100.7")
	path6 = path("2001:db8::1", "2001:db8:1:2:3:4:5:6")
)

// slowICRC makes the ICRC of a UDP payload (without its ICRC) from the masked headers, written out.
func slowICRC(p *Path, id uint16, b []byte) Checksum {
	n := len(b) + 8 + ICRCSize
	in := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if p.Source.Is4() {
		total := n + 20
		in = append(in, 0x45, 0xff, byte(total>>8), byte(total), byte(id>>8), byte(id), 0x40, 0, 0xff, 17, 0xff, 0xff)
		in = append(append(in, p.Source[12:]...), p.Dest[12:]...)
	} else {
		in = append(in, 0x6f, 0xff, 0xff, 0xff, byte(n>>8), byte(n), 17, 0xff)
		in = append(append(in, p.Source[:]...), p.Dest[:]...)
	}
	in = append(in, byte(p.SourcePort>>8), byte(p.SourcePort), 0x12, 0xb7, byte(n>>8), byte(n), 0xff, 0xff)
	at := len(in)
	in = append(in, b...)
	in[at+4] = 0xff
	return Checksum(slowCRC(in))
}

func TestChecksumAgainstOracle(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, p := range []*Path{path4, path6} {
		for n := BTHSize; n < 300; n++ {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			id := uint16(rnd.Uint32())
			want := slowICRC(p, id, b)
			// The border between header and payload may be anywhere behind the BTH.
			head := BTHSize + rnd.IntN(n-BTHSize+1)
			got := StartChecksum(p, 8+n+ICRCSize, id).BTH(b[:head]).Update(b[head:])
			if got != want {
				t.Fatalf("%v, %d bytes, %d of them header: %#x, want %#x", p.Dest, n, head, got, want)
			}
			var end [4]byte
			got.Put(end[:])
			if end != [4]byte{byte(want), byte(want >> 8), byte(want >> 16), byte(want >> 24)} {
				t.Fatalf("put % x of %#x", end, want)
			}
		}
	}
}

func TestChecksumMasks(t *testing.T) {
	other := *path4
	other.TrafficClass, other.HopLimit, other.FlowLabel = 1, 2, 3
	if StartChecksum(path4, 40, 7) != StartChecksum(&other, 40, 7) {
		t.Error("traffic class, hop limit and flow label must not count")
	}
	if StartChecksum(path4, 40, 7) == StartChecksum(path4, 40, 8) {
		t.Error("the IPv4 identification must count")
	}
	if StartChecksum(path6, 40, 7) != StartChecksum(path6, 40, 8) {
		t.Error("IPv6 has no identification")
	}
}

func TestIDDelta(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	sizes := []int{12, 13, 16, 255, 256, 257, 1040, 4112, 4124, 65000, 65503}
	for _, n := range sizes {
		b := make([]byte, n)
		base := StartChecksum(path4, 8+n+ICRCSize, 0).BTH(b[:12]).Update(b[12:])
		for range 300 {
			id := uint16(rnd.Uint32())
			with := StartChecksum(path4, 8+n+ICRCSize, id).BTH(b[:12]).Update(b[12:])
			if got := IDDelta(id, n); got != with^base {
				t.Fatalf("id %#x, %d bytes: delta %#x, want %#x", id, n, got, with^base)
			}
			if got, ok := FindID(with^base, n); !ok || got != id {
				t.Fatalf("id %#x, %d bytes: found %#x, %v", id, n, got, ok)
			}
		}
	}
	found := 0
	const tries = 1 << 20
	for range tries {
		if id, ok := FindID(Checksum(rnd.Uint32()), 1040); ok {
			found++
			if _, again := FindID(IDDelta(id, 1040), 1040); !again {
				t.Fatal("a delta is not its own")
			}
		}
	}
	// One delta in 65536 is that of some identification: 16 here, give or take.
	if found < 2 || found > 50 {
		t.Errorf("%d of %d random deltas have an identification", found, tries)
	}
}

func TestChecksumAllocatesNothing(t *testing.T) {
	b := make([]byte, 4096)
	var head [40]byte
	n := testing.AllocsPerRun(100, func() {
		var out [4]byte
		c := StartChecksum(path4, 8+40+4096+4, 1).BTH(head[:]).Update(b)
		(c ^ IDDelta(5, 4136)).Put(out[:])
		_, _ = FindID(c, 4136)
		StartChecksum(path6, 8+40+4096+4, 1).BTH(head[:]).Put(out[:])
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkChecksumHeaders(b *testing.B) {
	var head [28]byte
	for b.Loop() {
		_ = StartChecksum(path4, 100, 1).BTH(head[:])
	}
}

func BenchmarkIDDelta(b *testing.B) {
	for b.Loop() {
		_ = IDDelta(0x1234, 4124)
	}
}

func BenchmarkFindID(b *testing.B) {
	for b.Loop() {
		_, _ = FindID(0x12345678, 4124)
	}
}

// Segments of a group differ in their identification alone, and what they have in common is summed up once.
func TestNumbered(t *testing.T) {
	for _, p := range []*Path{path4, path6} {
		for _, n := range []int{24, 4120, 65500} {
			base := StartChecksum(p, n, 0)
			for _, id := range []uint16{0, 1, 2, 63, 127, 128, 0x8000, 0xffff} {
				if got, want := base.Numbered(p, id), StartChecksum(p, n, id); got != want {
					t.Errorf("%v, %d bytes, identification %d: %08x, want %08x", p.Source.Addr(), n, id, got, want)
				}
			}
		}
	}
}
