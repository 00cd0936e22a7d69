package dma

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A list of entries in regions of every kind, cut into packets of every size and put together again, in any order.
func TestGatherAndScatter(t *testing.T) {
	own := pages(t, 4)
	process := ownProcess(t, own)
	rapid.Check(t, func(t *rapid.T) {
		tab := NewTable(8, seeded())
		pd := new(Domain)
		regions := []Region{NewEmbedded(make([]byte, 8192)), newMemory(8192), process}
		var mrs []*MR
		for _, r := range regions {
			clearRegion(r, 8192)
			mr := &MR{Domain: pd, Region: r, Offset: 4096 - 64, Base: 1 << 40, Length: 4096, Access: ib.AccessLocalWrite}
			if err := tab.Insert(mr); err != nil {
				t.Fatal(err)
			}
			mrs = append(mrs, mr)
		}
		// Entries do not overlap: each takes its own part of its region.
		var sges []ib.SGE
		total, place := 0, uint64(0)
		for range rapid.IntRange(0, 20).Draw(t, "entries") {
			n := rapid.SampledFrom([]uint32{0, 1, 7, 64, 100, 200}).Draw(t, "length")
			e := ib.SGE{Addr: 1<<40 + place, Length: n, LKey: rapid.SampledFrom(mrs).Draw(t, "region").LKey}
			if n == 0 {
				e.LKey = 0xdeadbeef
			}
			place += uint64(n)
			total += int(n)
			sges = append(sges, e)
		}
		message := pattern(make([]byte, total), 5)
		mtu := rapid.IntRange(1, 600).Draw(t, "mtu")
		var offs []int
		for off := 0; off < total; off += mtu {
			offs = append(offs, off)
		}
		offs = rapid.Permutation(offs).Draw(t, "order")

		for _, off := range offs {
			part := message[off:min(off+mtu, total)]
			cut := rapid.IntRange(0, len(part)).Draw(t, "cut")
			payload := []wire.Piece{{Mem: &wire.Buffer{B: message}, Off: uint64(off), Len: cut}, {Mem: &wire.Buffer{B: part}, Off: uint64(cut), Len: len(part) - cut}}
			if v, err := tab.Scatter(pd, sges, uint64(off), payload); v != OK || err != nil {
				t.Fatalf("scatter %d bytes at %d: %v, %v", len(part), off, v, err)
			}
		}
		for _, off := range offs {
			n := min(mtu, total-off)
			f := frame()
			if v := tab.Gather(f, pd, sges, uint64(off), n); v != OK || f.PayloadLen() != n {
				t.Fatalf("gather %d bytes at %d: %v, %d", n, off, v, f.PayloadLen())
			}
			got := make([]byte, n)
			if err := ReadPieces(got, f.Payload()); err != nil || !bytes.Equal(got, message[off:off+n]) {
				t.Fatalf("gathered %d bytes at %d: %v", n, off, err)
			}
		}
		// One byte more than there is.
		if v := tab.Gather(frame(), pd, sges, uint64(total), 1); v != BadRange {
			t.Fatalf("gather beyond: %v", v)
		}
		one := []wire.Piece{{Mem: &wire.Buffer{B: []byte{1}}, Len: 1}}
		if v, err := tab.Scatter(pd, sges, uint64(total), one); v != BadRange || err != nil {
			t.Fatalf("scatter beyond: %v %v", v, err)
		}
		if v, err := tab.Scatter(pd, sges, top, one); v != BadRange || err != nil {
			t.Fatalf("scatter far beyond: %v %v", v, err)
		}
		if v := tab.Gather(frame(), pd, sges, uint64(total), 0); v != OK {
			t.Fatalf("gather of nothing: %v", v)
		}
	})
}

func clearRegion(r Region, n int) { r.Write(make([]byte, n), 0) }

func frame() *wire.Frame {
	f := wire.NewBurst(1).Next()
	f.SetHeader(0)
	return f
}

func TestListVerdicts(t *testing.T) {
	tab := NewTable(8, seeded())
	pd := new(Domain)
	mem := make([]byte, 256)
	rw := insert(t, tab, &MR{Domain: pd, Region: NewEmbedded(mem), Base: 0x1000, Length: 128, Access: ib.AccessLocalWrite})
	ro := insert(t, tab, &MR{Domain: pd, Region: NewEmbedded(mem), Base: 0x1000, Length: 128})
	edge := insert(t, tab, &MR{Domain: pd, Region: NewEmbedded(mem), Base: top - 7, Length: 8, Access: ib.AccessLocalWrite})
	zero := insert(t, tab, &MR{Domain: pd, Region: NewEmbedded(mem), Base: 0, Length: 128, Access: ib.AccessLocalWrite})
	for _, c := range []struct {
		name            string
		d               *Domain
		list            []ib.SGE
		off             uint64
		n               int
		gather, scatter Verdict
	}{
		{"whole", pd, []ib.SGE{{Addr: 0x1000, Length: 128, LKey: rw.LKey}}, 0, 128, OK, OK},
		{"longer than the region, used in part", pd, []ib.SGE{{Addr: 0x1000, Length: 1000, LKey: rw.LKey}}, 28, 100, OK, OK},
		{"longer than the region, used beyond", pd, []ib.SGE{{Addr: 0x1000, Length: 1000, LKey: rw.LKey}}, 29, 100, BadRange, BadRange},
		{"begins before, used inside", pd, []ib.SGE{{Addr: 0xf00, Length: 1000, LKey: rw.LKey}}, 0x100, 10, BadRange, BadRange},
		{"no right to write", pd, []ib.SGE{{Addr: 0x1000, Length: 128, LKey: ro.LKey}}, 0, 1, OK, BadAccess},
		{"second entry bad", pd, []ib.SGE{{Addr: 0x1000, Length: 8, LKey: rw.LKey}, {Addr: 0x1000, Length: 8, LKey: 1}}, 0, 9, BadKey, BadKey},
		{"second entry bad, not used", pd, []ib.SGE{{Addr: 0x1000, Length: 8, LKey: rw.LKey}, {Addr: 0x1000, Length: 8, LKey: 1}}, 0, 8, OK, OK},
		{"domain", new(Domain), []ib.SGE{{Addr: 0x1000, Length: 8, LKey: rw.LKey}}, 0, 8, BadDomain, BadDomain},
		{"up to the last address", pd, []ib.SGE{{Addr: top - 7, Length: 8, LKey: edge.LKey}}, 4, 4, OK, OK},
		{"around the last address into a region at 0", pd, []ib.SGE{{Addr: top - 7, Length: 16, LKey: zero.LKey}}, 8, 8, BadRange, BadRange},
		{"empty list", pd, nil, 0, 1, BadRange, BadRange},
		{"empty list, nothing", pd, nil, 0, 0, OK, OK},
	} {
		if v := tab.Gather(frame(), c.d, c.list, c.off, c.n); v != c.gather {
			t.Errorf("%s: gather: %v", c.name, v)
		}
		v, err := tab.Scatter(c.d, c.list, c.off, []wire.Piece{{Mem: &wire.Buffer{B: make([]byte, c.n)}, Len: c.n}})
		if v != c.scatter || err != nil {
			t.Errorf("%s: scatter: %v, %v", c.name, v, err)
		}
	}
}

func TestScatterFault(t *testing.T) {
	tab := NewTable(8, seeded())
	pd := new(Domain)
	b := pages(t, 1)
	mr := insert(t, tab, &MR{Domain: pd, Region: NewShared(b, nil), Length: uint64(len(b)), Access: ib.AccessLocalWrite})
	protect(t, b, 0)
	var f *Fault
	src := &wire.Buffer{B: make([]byte, 10)}
	v, err := tab.Scatter(pd, []ib.SGE{{Length: 10, LKey: mr.LKey}}, 0, []wire.Piece{{Mem: src, Len: 10}})
	if v != OK || !errors.As(err, &f) || f.Mem != wire.Memory(mr.Region) {
		t.Errorf("%v, %v", v, err)
	}
}
