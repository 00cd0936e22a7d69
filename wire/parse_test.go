package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// seal makes a datagram of b, which has room for the ICRC at its end, with the right ICRC for identification id.
func seal(p *Path, id uint16, b []byte) Datagram {
	end := len(b) - ICRCSize
	binary.LittleEndian.PutUint32(b[end:], uint32(slowICRC(p, id, b[:end])))
	return Datagram{Bytes: b, Source: p.Source, Dest: p.Dest, SourcePort: p.SourcePort, IDKnown: true, ID: id}
}

// packet makes the bytes of a packet with an addressable destination, n bytes long all in all.
func packet(op Opcode, n, pad int) []byte {
	b := make([]byte, n)
	h := (*BTH)(b)
	h.SetOpcode(op)
	h.SetDestQP(0x11)
	h.SetPadCount(uint8(pad))
	for i := BTHSize; i < n; i++ {
		b[i] = byte(i)
	}
	return b
}

// Field bug B4: what is no packet is dropped and counted by its reason: opcode 0xff and a pad longer than the payload too.
func TestParseReasons(t *testing.T) {
	good := func() []byte { return packet(RCSendOnly, 40, 0) }
	edit := func(f func(b []byte)) []byte {
		b := good()
		f(b)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want Drop
	}{
		{"good", good(), Accepted},
		{"one byte short of a BTH", good()[:11], DropTooShort},
		{"unknown opcode, and everything else wrong too", edit(func(b []byte) { b[0], b[1], b[7] = 0xff, 0x3f, 0 }), DropUnknownOpcode},
		{"RD", edit(func(b []byte) { b[0] = 0x44 }), DropUnknownOpcode},
		{"version 1", edit(func(b []byte) { b[1] = 1 }), DropVersion},
		{"BTH alone", good()[:12], DropLength},
		{"BTH and three bytes", good()[:15], DropLength},
		{"RETH cut short", packet(RCWriteOnly, 28+3, 0), DropLength},
		{"RETH whole, pad without payload", packet(RCWriteOnly, 28+4, 3), DropPad},
		{"longer than UDP carries", packet(RCSendOnly, 65508, 0), DropLength},
		{"as long as UDP carries", packet(RCSendOnly, 65507, 0), Accepted},
		{"pad is all there is", packet(RCSendOnly, 12+3+4, 3), Accepted},
		{"pad of a runt", packet(RCSendOnly, 12+2+4, 3), DropPad},
		{"destination 0", edit(func(b []byte) { b[7] = 0 }), DropDestQP0},
		{"reserved bits set", edit(func(b []byte) { b[4], b[8] = 0xff, 0xff }), Accepted},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []*Path{path4, path6} {
				d := Datagram{Bytes: c.b, Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort, IDKnown: true}
				if len(c.b) > ICRCSize && len(c.b) <= 65507 && len(c.b) >= BTHSize+ICRCSize {
					d = seal(path, 0, c.b)
				}
				var p Packet
				if got := Parse(&p, &d); got != c.want {
					t.Errorf("%v, want %v", got, c.want)
				}
				if c.want != Accepted && p.Header != nil {
					t.Error("the packet was touched")
				}
			}
		})
	}
	for d := Accepted; d <= NumDrops; d++ {
		if d.String() == "" {
			t.Errorf("drop %d has no name", d)
		}
	}
}

// TestParseEverySize puts every opcode into every size up to 200 bytes, with every pad count (CVE-2026-46043).
func TestParseEverySize(t *testing.T) {
	room := make([]byte, 200)
	for size := range 201 {
		for op := range 256 {
			for pad := range 4 {
				b := room[:size]
				clear(b)
				d := Datagram{Bytes: b, Source: path4.Source, Dest: path4.Dest, IDKnown: true}
				if size > 0 {
					b[0] = byte(op)
				}
				if size >= BTHSize {
					h := (*BTH)(b)
					h.SetDestQP(5)
					h.SetPadCount(uint8(pad))
				}
				need := Opcode(op).HeaderLen() + pad + ICRCSize
				if size >= BTHSize+ICRCSize {
					start := startChecksum(&d.Source, &d.Dest, 0, 8+size, 0, dontFragment)
					start.BTH(b[:BTHSize]).Update(b[BTHSize : size-ICRCSize]).Put(b[size-ICRCSize:])
				}
				var p Packet
				accepted := Parse(&p, &d) == Accepted
				if want := Opcode(op).Valid() && size >= need; accepted != want {
					t.Fatalf("opcode %#x, %d bytes, pad %d: accepted %v", op, size, pad, accepted)
				}
				if accepted && (p.Len != size-need || len(p.Header) != Opcode(op).HeaderLen()) {
					t.Fatalf("opcode %#x, %d bytes, pad %d: payload %d, header %d", op, size, pad, p.Len, len(p.Header))
				}
			}
		}
	}
}

func TestParseUnknownID(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{16, 20, 44, 1040, 4112} {
		for _, id := range []uint16{0, 1, 7, 255, 256, 0x8000, 0xffff} {
			d := seal(path4, id, packet(RCSendOnly, n, 0))
			var p Packet
			for _, expected := range []uint16{0, 1, 7, 1000} {
				d.ID, d.IDKnown = expected, false
				if drop := Parse(&p, &d); drop != Accepted {
					t.Fatalf("id %d where %d was expected, %d bytes: %v", id, expected, n, drop)
				}
				if d.ID != id {
					t.Fatalf("found id %d, want %d", d.ID, id)
				}
				d.ID, d.IDKnown = expected, true
				if drop := Parse(&p, &d); (drop == Accepted) != (id == expected) {
					t.Fatalf("id %d, known to be %d: %v", id, expected, drop)
				}
			}
			// A flipped bit is found although any identification would do: 32 candidates for one bit each.
			for range 50 {
				i := rnd.IntN(n)
				bit := byte(1) << rnd.IntN(8)
				if i == 4 || i == 0 || i == 1 {
					continue
				}
				d.Bytes[i] ^= bit
				d.ID, d.IDKnown = 0, false
				if drop := Parse(&p, &d); drop != DropICRC {
					t.Fatalf("%d bytes, bit %#x of byte %d flipped: %v", n, bit, i, drop)
				}
				d.Bytes[i] ^= bit
			}
		}
	}
}

func TestParseIPv6IsExact(t *testing.T) {
	d := seal(path6, 0, packet(RCSendOnly, 100, 0))
	d.IDKnown = false
	var p Packet
	if drop := Parse(&p, &d); drop != Accepted {
		t.Fatal(drop)
	}
	delta := uint32(IDDelta(0x1234, 96))
	end := d.Bytes[96:]
	binary.LittleEndian.PutUint32(end, binary.LittleEndian.Uint32(end)^delta)
	if drop := Parse(&p, &d); drop != DropICRC {
		t.Errorf("%v, want the ICRC to be wrong", drop)
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	d := seal(path4, 9, packet(RCSendOnly, 4112, 0))
	var p Packet
	if n := testing.AllocsPerRun(100, func() {
		d.ID, d.IDKnown = 0, false
		if Parse(&p, &d) != Accepted {
			t.Fatal("dropped")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParse4KiB(b *testing.B) {
	d := seal(path4, 0, packet(RCSendOnly, 4112, 0))
	b.SetBytes(4096)
	b.ReportAllocs()
	var p Packet
	for b.Loop() {
		if Parse(&p, &d) != Accepted {
			b.Fatal("dropped")
		}
	}
}

func BenchmarkParseForeignID4KiB(b *testing.B) {
	d := seal(path4, 0x1234, packet(RCSendOnly, 4112, 0))
	b.SetBytes(4096)
	b.ReportAllocs()
	var p Packet
	for b.Loop() {
		d.ID, d.IDKnown = 0, false
		if Parse(&p, &d) != Accepted {
			b.Fatal("dropped")
		}
	}
}

// A group that the kernel merged is parsed with one Datagram, whose segments differ in their bytes and identification.
func TestParseMerged(t *testing.T) {
	for _, p := range []*Path{path4, path6} {
		merged := Datagram{Source: p.Source, Dest: p.Dest, SourcePort: p.SourcePort, Merged: true}
		for i := range 140 {
			n := 64
			if i%50 == 49 {
				n = 24 // the last of a group is shorter
			}
			d := seal(p, uint16(i), packet(RCSendMiddle, n, 0))
			merged.Bytes, merged.ID, merged.IDKnown = d.Bytes, uint16(i), i%2 == 0
			var q Packet
			if drop := Parse(&q, &merged); drop != Accepted || q.Len != n-BTHSize-ICRCSize {
				t.Fatalf("%v, segment %d: %v, %d bytes", p.Source.Addr(), i, drop, q.Len)
			}
			if merged.IDKnown = true; p.Source.Is4() {
				merged.ID++
				if drop := Parse(&q, &merged); drop != DropICRC {
					t.Fatalf("segment %d with the identification of the next: %v", i, drop)
				}
			}
			merged.Bytes[len(merged.Bytes)-1] ^= 1
			if merged.ID = uint16(i); Parse(&q, &merged) != DropICRC {
				t.Fatalf("%v, segment %d: a bad ICRC was accepted", p.Source.Addr(), i)
			}
		}
	}
}
