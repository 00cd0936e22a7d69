package dma

import (
	"fmt"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// The data path allocates nothing, whatever kind of memory it meets.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	tab := NewTable(8, seeded())
	pd := new(Domain)
	all := ib.AccessLocalWrite | ib.AccessRemoteWrite
	own := pages(t, 2)
	direct, process := NewShared(pages(t, 2), nil), ownProcess(t, own)
	called := newMemory(2 * pageSize)
	key := make(map[Region]*MR)
	for _, r := range []Region{direct, process, called} {
		key[r] = insert(t, tab, &MR{Domain: pd, Region: r, Length: r.Size(), Access: all})
	}
	burst := wire.NewBurst(4)
	private := make([]byte, 4096)
	list := func(r ...Region) (l []ib.SGE) {
		for i, r := range r {
			l = append(l, ib.SGE{Addr: uint64(i) * 512, Length: 512, LKey: key[r].LKey})
		}
		return l
	}
	pieces := func(r ...Region) (p []wire.Piece) {
		for i, r := range r {
			p = append(p, wire.Piece{Mem: r, Off: uint64(i) * 512, Len: 512})
		}
		return p
	}
	datagram := []wire.Piece{{Mem: &wire.Buffer{B: private}, Len: 1024}}
	one, two := list(direct), list(process, process)
	mixed := list(direct, process, process, direct, called)
	mr := key[direct]
	for name, f := range map[string]func(){
		"Local":  func() { tab.Local(pd, one[0], ib.AccessLocalWrite) },
		"Remote": func() { tab.Remote(pd, 1, mr.RKey, 8, 8, ib.AccessRemoteWrite) },
		"Gather": func() {
			f := burst.Next()
			f.SetHeader(0)
			if tab.Gather(f, pd, mixed, 100, 1000) != OK {
				t.Error("gather")
			}
			burst.Undo()
		},
		"Scatter":           func() { tab.Scatter(pd, mixed, 100, datagram) },
		"Scatter processes": func() { tab.Scatter(pd, two, 0, datagram) },
		"CopyPayload":       func() { CopyPayload(Span{direct, 0, 4096}, 8, datagram) },
		"CopyPayload process to direct": func() {
			CopyPayload(Span{direct, 0, 4096}, 8, pieces2)
		},
		"CopyPayload direct to process":  func() { CopyPayload(Span{process, 0, 4096}, 8, datagram) },
		"CopyPayload process to process": func() { CopyPayload(Span{process, 0, 4096}, 8, pieces2) },
		"Atomic":                         func() { direct.Atomic(8, FetchAdd, 1, 0) },
		"Atomic process":                 func() { process.Atomic(8, FetchAdd, 1, 0) },
		"ReadPieces":                     func() { ReadPieces(private[:2560], pieces3) },
	} {
		pieces2, pieces3 = pieces(process, process), pieces(direct, process, process, direct, called)
		f()
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

var pieces2, pieces3 []wire.Piece

func BenchmarkRemote(b *testing.B) {
	for _, n := range []int{4, 1024} {
		b.Run(fmt.Sprint(n, " keys"), func(b *testing.B) {
			tab := NewTable(1<<16, seeded())
			pd := new(Domain)
			keys := make([]ib.RKey, n)
			for i := range keys {
				mr := &MR{Domain: pd, Region: vast{size: 4096}, Length: 4096}
				tab.Insert(mr)
				keys[i] = mr.RKey
			}
			i := 0
			for b.Loop() {
				tab.Remote(pd, 1, keys[i&(n-1)], 8, 8, 0)
				i++
			}
		})
	}
}

func BenchmarkCopyPayload(b *testing.B) {
	for _, n := range []int{64, 1024, 4096} {
		src := []wire.Piece{{Mem: NewEmbedded(make([]byte, n)), Len: n}}
		dst := Span{Mem: NewEmbedded(make([]byte, n)), Len: uint64(n)}
		b.Run(byteCount(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			GuardGoroutine()
			for b.Loop() {
				CopyPayload(dst, 0, src)
			}
		})
	}
	b.Run("16x1KiB", func(b *testing.B) { // a run of packets
		var src []wire.Piece
		mem := NewEmbedded(make([]byte, 16<<10))
		for i := range 16 {
			src = append(src, wire.Piece{Mem: mem, Off: uint64(i) << 10, Len: 1024})
		}
		dst := Span{Mem: NewEmbedded(make([]byte, 16<<10)), Len: 16 << 10}
		b.SetBytes(16 << 10)
		GuardGoroutine()
		for b.Loop() {
			CopyPayload(dst, 0, src)
		}
	})
}

func byteCount(n int) string {
	if n < 1024 {
		return "64B"
	}
	return string(rune('0'+n/1024)) + "KiB"
}

func BenchmarkReadProcessPieces(b *testing.B) {
	r := ownProcess(b, pages(b, 2))
	dst := make([]byte, 64*16)
	var p []wire.Piece
	for i := range 16 {
		p = append(p, wire.Piece{Mem: r, Off: uint64(i) * 400, Len: 64})
	}
	b.Run("batch of 16", func(b *testing.B) {
		for b.Loop() {
			ReadPieces(dst, p)
		}
	})
	b.Run("1", func(b *testing.B) {
		for b.Loop() {
			ReadPieces(dst[:64], p[:1])
		}
	})
}
