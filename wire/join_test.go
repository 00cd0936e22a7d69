package wire

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// middle makes a packet of a message: 64 bytes of payload that are all the number's last byte.
func middle(op Opcode, psn uint32, ask bool) []byte {
	b := packet(op, op.HeaderLen()+64+ICRCSize, 0)
	h := (*BTH)(b)
	h.SetPSN(ib.NewPSN(psn))
	h.SetAckReq(ask)
	for i := op.HeaderLen(); i < len(b)-ICRCSize; i++ {
		b[i] = byte(psn)
	}
	return b
}

// joined parses a datagram and joins others to it, as far as they follow, and returns the packet.
func joined(t *testing.T, j *Joiner, p *Packet, datagrams ...Datagram) (n int) {
	t.Helper()
	if drop := Parse(p, &datagrams[0]); drop != Accepted {
		t.Fatalf("the first datagram is dropped: %v", drop)
	}
	for n = 1; n < len(datagrams) && j.Join(p, &datagrams[n]); n++ {
	}
	if p.Packets() != n {
		t.Fatalf("%d packets were joined, the run has %d", n, p.Packets())
	}
	return n
}

// Packets that follow each other are a run, which taken apart is those packets; numbers wrap.
func TestJoin(t *testing.T) {
	for _, path := range []*Path{path4, path6} {
		for _, op := range []Opcode{RCSendMiddle, RCWriteMiddle, RCReadResponseMiddle, XRCSendMiddle} {
			five := func() (ds []Datagram) {
				for i := range uint32(5) {
					ds = append(ds, seal(path, uint16(i), middle(op, 0xfffffe+i, i == 4)))
				}
				return ds
			}
			j := NewJoiner(16)
			var p, q Packet
			if n := joined(t, j, &p, five()...); n != 5 {
				t.Fatalf("%v: a run of %d, want 5", op, n)
			}
			if n := joined(t, j, &q, five()...); n != 5 || q.Len != p.Len {
				t.Fatalf("%v: a run of %d beside the first, want 5", op, n)
			}
			if !p.BTH().AckReq() || p.Len != 5*64 {
				t.Errorf("%v: asks %v, %d bytes", op, p.BTH().AckReq(), p.Len)
			}
			var single Single
			for i := range 5 {
				var want Packet
				d := seal(path, uint16(i), middle(op, 0xfffffe+uint32(i), i == 4))
				Parse(&want, &d)
				g, err := single.Of(&p, i).AppendTo(nil, uint16(i))
				if w, _ := want.AppendTo(nil, uint16(i)); err != nil || !bytes.Equal(g, w) {
					t.Errorf("%v: packet %d is % x, %v, want % x", op, i, g, err, w)
				}
			}
		}
	}
}

// What does not follow is not joined, and leaves the run as it was.
func TestJoinRefuses(t *testing.T) {
	second := func(edit func(b []byte)) Datagram {
		b := middle(RCWriteMiddle, 8, false)
		edit(b)
		return seal(path4, 1, b)
	}
	bth := func(b []byte) *BTH { return (*BTH)(b) }
	plain := middle(RCWriteMiddle, 7, false)
	for _, c := range []struct {
		name  string
		first []byte
		d     Datagram
	}{
		{"another opcode", plain, seal(path4, 1, middle(RCSendMiddle, 8, false))},
		{"the last packet", plain, seal(path4, 1, middle(RCWriteLast, 8, false))},
		{"another queue pair", plain, second(func(b []byte) { bth(b).SetDestQP(0x12) })},
		{"another partition", plain, second(func(b []byte) { bth(b).SetPKey(0x8001) })},
		{"a gap", plain, second(func(b []byte) { bth(b).SetPSN(9) })},
		{"the same again", plain, second(func(b []byte) { bth(b).SetPSN(7) })},
		{"a reserved bit", plain, second(func(b []byte) { b[8] |= 1 })},
		{"a congestion mark", plain, second(func(b []byte) { b[4] |= 0x80 })},
		{"shorter", plain, seal(path4, 1, middle(RCWriteMiddle, 8, false)[:76])},
		{"longer", plain, seal(path4, 1, append(middle(RCWriteMiddle, 8, false), 0, 0, 0, 0))},
		{"a pad", plain, second(func(b []byte) { bth(b).SetPadCount(1) })},
		{"a pad before", edited(plain, func(b []byte) { bth(b).SetPadCount(1) }), second(func([]byte) {})},
		{"asked before", middle(RCWriteMiddle, 7, true), second(func([]byte) {})},
		{"first packets", middle(RCSendFirst, 7, false), seal(path4, 1, middle(RCSendFirst, 8, false))},
		{"unreliable", middle(UCWriteMiddle, 7, false), seal(path4, 1, middle(UCWriteMiddle, 8, false))},
		{"no payload", plain[:16], seal(path4, 1, middle(RCWriteMiddle, 8, false)[:16])},
		{"another source domain", middle(XRCSendMiddle, 7, false), seal(path4, 1, edited(middle(XRCSendMiddle, 8, false), func(b []byte) { b[15]++ }))},
		{"a wrong ICRC", plain, func() Datagram { d := second(func([]byte) {}); d.Bytes[20] ^= 1; return d }()},
	} {
		d := seal(path4, 0, bytes.Clone(c.first))
		var p Packet
		j := NewJoiner(4)
		if Parse(&p, &d) != Accepted {
			t.Errorf("%s: the first packet is refused", c.name)
			continue
		}
		header, length := bytes.Clone(p.Header), p.Len
		if j.Join(&p, &c.d) || p.Packets() != 1 || p.Len != length || !bytes.Equal(p.Header, header) || len(p.Payload) > 1 {
			t.Errorf("%s: joined, or changed: %d packets of %d bytes", c.name, p.Packets(), p.Len)
		}
	}
}

func edited(b []byte, f func(b []byte)) []byte {
	b = bytes.Clone(b)
	f(b)
	return b
}

// A run has no more pieces than anybody has room for, and a joiner makes none that it has no room for.
func TestJoinRoom(t *testing.T) {
	var ds []Datagram
	for i := range uint32(40) {
		ds = append(ds, seal(path4, uint16(i), middle(RCSendMiddle, i, false)))
	}
	var p Packet
	if n := joined(t, NewJoiner(100), &p, ds...); n != MaxPieces {
		t.Errorf("a run of %d packets, want %d", n, MaxPieces)
	}
	j := NewJoiner(5)
	if n := joined(t, j, &p, ds...); n != 5 {
		t.Errorf("room for 5: a run of %d packets", n)
	}
	var q Packet
	if n := joined(t, j, &q, ds...); n != 1 {
		t.Errorf("no room: a run of %d packets", n)
	}
	if j.Reset(); joined(t, j, &q, ds...) != 5 {
		t.Error("Reset makes no room")
	}
	if n := testing.AllocsPerRun(100, func() {
		j.Reset()
		Parse(&p, &ds[0])
		for i := 1; j.Join(&p, &ds[i]); i++ {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzJoin holds Join to this: two datagrams that it takes for a run are, taken apart, what Parse makes of each.
func FuzzJoin(f *testing.F) {
	f.Add(middle(RCWriteMiddle, 7, false), middle(RCWriteMiddle, 8, true), uint16(0))
	f.Add(middle(XRCSendMiddle, 0xffffff, false), middle(XRCSendMiddle, 0, false), uint16(9))
	f.Add(middle(RCReadResponseMiddle, 7, false), middle(RCReadResponseMiddle, 9, true), uint16(1))
	f.Fuzz(func(t *testing.T, a, b []byte, id uint16) {
		if len(a) < BTHSize+ICRCSize || len(b) < BTHSize+ICRCSize || len(a) > 9000 || len(b) > 9000 {
			return
		}
		ds := []Datagram{seal(path4, id, bytes.Clone(a)), seal(path4, id+1, bytes.Clone(b))}
		var want [2][]byte
		for i := range ds {
			var p Packet
			d := seal(path4, id+uint16(i), bytes.Clone(ds[i].Bytes))
			if Parse(&p, &d) == Accepted {
				want[i], _ = p.AppendTo(nil, id)
			}
		}
		var p Packet
		if Parse(&p, &ds[0]) != Accepted || !NewJoiner(2).Join(&p, &ds[1]) {
			return
		}
		var single Single
		for i := range 2 {
			if got, err := single.Of(&p, i).AppendTo(nil, id); err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("packet %d: % x, %v, want % x", i, got, err, want[i])
			}
		}
	})
}
