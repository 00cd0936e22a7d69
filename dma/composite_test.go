package dma

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/wire"
)

// threeParts is what a program's memory looks like: own, shared, own. The bytes of all are those of flat. The middle begins
// a page into its region, the end 8 bytes into its page.
func threeParts(t testing.TB) (whole Region, own, shared, end []byte) {
	t.Helper()
	own, shared, end = pages(t, 1), pages(t, 3), pages(t, 1)
	whole, err := NewComposite(
		Part{ownProcess(t, own), 0, uint64(pageSize)},
		Part{NewShared(shared, nil), uint64(pageSize), uint64(2 * pageSize)},
		Part{ownProcess(t, end), 8, uint64(pageSize) - 8})
	if err != nil {
		t.Fatal(err)
	}
	return whole, own, shared[pageSize:], end
}

func TestCompositeIsItsParts(t *testing.T) {
	c, own, shared, end := threeParts(t)
	flat := pattern(make([]byte, 4*pageSize-8), 5)
	if c.Size() != uint64(len(flat)) {
		t.Fatalf("%d bytes", c.Size())
	}
	if err := c.Write(flat, 0); err != nil {
		t.Fatal(err)
	}
	if all := bytes.Join([][]byte{own, shared, end[8:]}, nil); !bytes.Equal(all, flat) {
		t.Fatal("the parts are not what was written")
	}
	dice := rand.New(rand.NewPCG(3, 4))
	other, _, _, _ := threeParts(t)
	if err := other.Write(make([]byte, len(flat)), 0); err != nil {
		t.Fatal(err)
	}
	mirror := make([]byte, len(flat))
	got := make([]byte, len(flat))
	for range 300 {
		off, n := dice.IntN(len(flat)), 1+dice.IntN(2*pageSize)
		n = min(n, len(flat)-off)
		to := dice.IntN(len(flat) - n + 1)
		b := c.Bytes(uint64(off), n)
		first, last := off/pageSize, (off+n-1)/pageSize
		if direct := first >= 1 && last <= 2; direct != (b != nil) || direct && !bytes.Equal(b, flat[off:off+n]) {
			t.Fatalf("bytes [%d,%d): %d of them", off, off+n, len(b))
		}
		if err := c.Read(got[:n], uint64(off)); err != nil || !bytes.Equal(got[:n], flat[off:off+n]) {
			t.Fatalf("read [%d,%d): %v", off, off+n, err)
		}
		payload := []wire.Piece{{Mem: c, Off: uint64(off), Len: n}}
		if err := ReadPieces(got[:n], payload); err != nil || !bytes.Equal(got[:n], flat[off:off+n]) {
			t.Fatalf("pieces [%d,%d): %v", off, off+n, err)
		}
		if err := CopyPayload(Span{other, uint64(to), uint64(n)}, 0, payload); err != nil {
			t.Fatal(err)
		}
		copy(mirror[to:], flat[off:off+n])
	}
	if err := other.Read(got, 0); err != nil || !bytes.Equal(got, mirror) {
		t.Fatalf("copies between composites: %v", err)
	}
}

func TestCompositeAtomics(t *testing.T) {
	c, own, shared, end := threeParts(t)
	page := uint64(pageSize)
	for off, b := range map[uint64][]byte{page - 8: own[pageSize-8:], page: shared, 3*page - 8: shared[2*pageSize-8:], 3 * page: end[8:]} {
		if _, err := c.Atomic(off, FetchAdd, 7, 0); err != nil || b[0] != 7 {
			t.Errorf("at %d: %v, %d", off, err, b[0])
		}
	}
	var f *Fault
	for _, off := range []uint64{page - 4, 4*page - 15, top} {
		if _, err := c.Atomic(off, FetchAdd, 1, 0); !errors.As(err, &f) || f.Mem != wire.Memory(c) {
			t.Errorf("at %d: %v", off, err)
		}
	}
}

// Requests name the whole, so a fault of any part has to be the whole's.
func TestCompositeFaults(t *testing.T) {
	page := uint64(pageSize)
	for _, bad := range []int{0, 1, 3} { // own, first page shared, own
		c, own, shared, end := threeParts(t)
		protect(t, [][]byte{own, shared[:pageSize], nil, end}[bad], unix.PROT_NONE)
		off := uint64(bad) * page
		good := &wire.Buffer{B: make([]byte, 4*pageSize)}
		private := make([]byte, 64)
		for name, err := range map[string]error{
			"read":            c.Read(private, off),
			"write":           c.Write(private, off),
			"atomic":          second(c.Atomic(off, FetchAdd, 1, 0)),
			"pieces":          ReadPieces(make([]byte, 4*pageSize-8), []wire.Piece{{Mem: c, Len: 4*pageSize - 8}}),
			"destination":     CopyPayload(Span{c, 0, 4*page - 8}, 0, []wire.Piece{{Mem: good, Len: 4*pageSize - 8}}),
			"source":          CopyPayload(Span{NewEmbedded(make([]byte, 4*page)), 0, 4 * page}, 0, []wire.Piece{{Mem: c, Len: 4*pageSize - 8}}),
			"source, bounced": CopyPayload(Span{ownProcess(t, pages(t, 4)), 0, 4 * page}, 0, []wire.Piece{{Mem: c, Len: 4*pageSize - 8}}),
		} {
			var f *Fault
			if !errors.As(err, &f) || f.Mem != wire.Memory(c) {
				t.Errorf("part of page %d gone: %s: %v", bad, name, err)
			}
		}
	}
	c, _, _, _ := threeParts(t)
	for name, err := range map[string]error{
		"read past the end":  c.Read(make([]byte, 9), 4*page-16),
		"write that wraps":   c.Write(make([]byte, 9), top),
		"copy past the end":  CopyPayload(Span{c, 4*page - 16, 64}, 0, []wire.Piece{{Mem: &wire.Buffer{B: make([]byte, 64)}, Len: 64}}),
		"pieces past an end": ReadPieces(make([]byte, 64), []wire.Piece{{Mem: c, Off: 4*page - 16, Len: 64}}),
	} {
		var f *Fault
		if !errors.As(err, &f) || f.Mem != wire.Memory(c) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.Bytes(0, -1) != nil || c.Bytes(top, 1) != nil || c.Bytes(4*page-8, 1) != nil {
		t.Error("bytes outside")
	}
}

func TestNewCompositeRefuses(t *testing.T) {
	r := NewEmbedded(make([]byte, 64))
	for _, parts := range [][]Part{
		{{r, 0, 0}}, {{r, 0, 65}}, {{r, 64, 1}}, {{r, top, 2}}, {{r, 0, 64}, {r, 60, 5}},
		{{vast{size: top}, 0, top}, {r, 0, 1}},
	} {
		if _, err := NewComposite(parts...); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: %v", parts, err)
		}
	}
	c, err := NewComposite(Part{r, 0, 32}, Part{r, 0, 32})
	if err != nil || c.Size() != 64 {
		t.Errorf("twice the same: %v", err)
	}
}

func TestCompositeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	a, _, _, _ := threeParts(t)
	b, _, _, _ := threeParts(t)
	n := 4*pageSize - 8
	private := make([]byte, n)
	payload := []wire.Piece{{Mem: a, Len: n}}
	if allocs := testing.AllocsPerRun(100, func() {
		if CopyPayload(Span{b, 0, uint64(n)}, 0, payload) != nil || ReadPieces(private, payload) != nil {
			t.Error("copy")
		}
		if a.Bytes(uint64(pageSize), pageSize) == nil {
			t.Error("bytes")
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
