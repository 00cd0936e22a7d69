package dma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/wire"
)

func TestCopyPayload(t *testing.T) {
	src := pattern(make([]byte, 300), 1)
	kinds := map[string]func([]byte) Region{
		"direct": NewEmbedded,
		"called": func(b []byte) Region { return &memory{b, NewEmbedded(b).(*direct)} },
	}
	for dname, dkind := range kinds {
		for sname, skind := range kinds {
			sm := skind(src)
			payload := []wire.Piece{{Mem: sm, Off: 10, Len: 100}, {Mem: sm, Off: 50, Len: 0}, {Mem: sm, Off: 0, Len: 3}, {Mem: sm, Off: 200, Len: 100}}
			want := append(append(append([]byte{}, src[10:110]...), src[0:3]...), src[200:300]...)
			dst := make([]byte, 512)
			span := Span{Mem: dkind(dst), Off: 16, Len: 300}
			if err := CopyPayload(span, 97, payload); err != nil {
				t.Fatalf("%s to %s: %v", sname, dname, err)
			}
			if !bytes.Equal(dst[16+97:16+300], want) {
				t.Errorf("%s to %s: wrong bytes", sname, dname)
			}
			if n := bytes.Count(dst, []byte{0}); n < 512-203 {
				t.Errorf("%s to %s: bytes outside were written", sname, dname)
			}
			var f *Fault
			if err := CopyPayload(span, 98, payload); !errors.As(err, &f) || f.Mem != wire.Memory(span.Mem) {
				t.Errorf("%s to %s: past the end: %v", sname, dname, err)
			}
			if err := CopyPayload(span, top, payload); !errors.As(err, &f) {
				t.Errorf("%s to %s: offset that wraps: %v", sname, dname, err)
			}
			got := make([]byte, len(want))
			if err := ReadPieces(got, payload); err != nil || !bytes.Equal(got, want) {
				t.Errorf("read pieces of %s: %v", sname, err)
			}
			for _, n := range []int{len(want) - 1, len(want) + 1} {
				if err := ReadPieces(make([]byte, n), payload); !errors.As(err, &f) {
					t.Errorf("read pieces of %s into %d bytes: %v", sname, n, err)
				}
			}
		}
	}
	// Pieces of memory with and without addresses, by turns.
	direct, called := kinds["direct"](src), kinds["called"](src)
	dst := make([]byte, 300)
	mixed := []wire.Piece{{Mem: direct, Len: 50}, {Mem: called, Off: 50, Len: 60}, {Mem: direct, Off: 110, Len: 90}, {Mem: direct, Off: 200, Len: 100}}
	for i := range mixed {
		clear(dst)
		turned := append(append([]wire.Piece{}, mixed[i:]...), mixed[:i]...)
		want := append(append([]byte{}, src[mixed[i].Off:]...), src[:mixed[i].Off]...)
		if err := CopyPayload(Span{Mem: NewEmbedded(dst), Len: 300}, 0, turned); err != nil || !bytes.Equal(dst, want) {
			t.Errorf("mixed from %d: %v", i, err)
		}
	}
	if err := CopyPayload(Span{}, 0, nil); err != nil {
		t.Errorf("nothing to no memory: %v", err)
	}
}

// A fault is the fault of the side whose page it is, and what precedes it is written.
func TestFaultIsCharged(t *testing.T) {
	for _, c := range []struct {
		name     string
		srcProt  int
		dstProt  int
		srcFault bool
	}{
		{"source gone", unix.PROT_NONE, unix.PROT_READ | unix.PROT_WRITE, true},
		{"destination gone", unix.PROT_READ | unix.PROT_WRITE, unix.PROT_NONE, false},
		{"destination read-only", unix.PROT_READ, unix.PROT_READ, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, dst := pages(t, 3), pages(t, 3)
			pattern(src, 9)
			protect(t, src[2*pageSize:], c.srcProt)
			protect(t, dst[2*pageSize:], c.dstProt)
			sm, dm := NewShared(src, nil), NewShared(dst, nil)
			err := CopyPayload(Span{Mem: dm, Len: uint64(len(dst))}, 0, []wire.Piece{
				{Mem: sm, Off: 0, Len: pageSize}, {Mem: sm, Off: uint64(pageSize), Len: 2 * pageSize},
			})
			want, bad := wire.Memory(dm), dst
			if c.srcFault {
				want, bad = sm, src
			}
			var f *Fault
			if !errors.As(err, &f) || f.Mem != want || !within(f.Addr, bad[2*pageSize:]) {
				t.Fatalf("got %+v", f)
			}
			if !bytes.Equal(dst[:pageSize], src[:pageSize]) {
				t.Error("the piece before the fault was not written")
			}
		})
	}
}

func TestFaultsOfOneRegion(t *testing.T) {
	b := pages(t, 2)
	protect(t, b[pageSize:], unix.PROT_NONE)
	r := NewShared(b, nil)
	var f *Fault
	page := uint64(pageSize)
	for name, err := range map[string]error{
		"read":             r.Read(make([]byte, 8), page-4),
		"write":            r.Write(make([]byte, 8), page-4),
		"atomic":           second(r.Atomic(page, FetchAdd, 1, 0)),
		"load of a swap":   second(r.Atomic(page+8, CompareSwap, 1, 0)),
		"pieces":           ReadPieces(make([]byte, 8), []wire.Piece{{Mem: r, Off: page - 4, Len: 8}}),
		"read past end":    r.Read(make([]byte, 8), 2*page-7),
		"write past end":   r.Write(make([]byte, 8), top),
		"atomic past end":  second(r.Atomic(2*page-7, FetchAdd, 1, 0)),
		"atomic misplaced": second(r.Atomic(4, FetchAdd, 1, 0)),
	} {
		if !errors.As(err, &f) || f.Mem != wire.Memory(r) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.Bytes(0, -1) != nil || r.Bytes(top, 1) != nil || r.Bytes(1, 2*pageSize) != nil {
		t.Error("bytes outside the region")
	}
	// The caller's own bytes are not the region's fault.
	bad := pages(t, 1)
	protect(t, bad, unix.PROT_NONE)
	if err := r.Read(bad[:8], 0); !errors.As(err, &f) || f.Mem != nil {
		t.Errorf("fault of the other side: %v", err)
	}
}

func second(_ uint64, err error) error { return err }

// The owner of sealed memory cannot shrink it but may punch holes: they read as zeros and do not fault.
func TestPunchedMemfd(t *testing.T) {
	size := 4 * pageSize
	fd, err := shm.Create("punched", size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b, err := shm.Map(fd, size)
	if err != nil {
		t.Fatal(err)
	}
	unmapped := false
	r := NewShared(b, func() error { unmapped = true; return shm.Unmap(b) })
	r.Write(pattern(make([]byte, size), 3), 0)
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(pageSize), int64(pageSize)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 0); err != unix.EPERM {
		t.Fatalf("sealed memory shrank: %v", err)
	}
	got := make([]byte, size)
	if err := r.Read(got, 0); err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(got[pageSize:2*pageSize], []byte{0}); n != pageSize {
		t.Errorf("%d zeros in the hole", n)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil || !unmapped {
		t.Errorf("close twice: %v", err)
	}
}

// An unsealed memfd is what the guard is for: its owner takes the pages from under a mapping, which is SIGBUS.
func TestTruncatedMemfdFaults(t *testing.T) {
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	unix.Ftruncate(fd, int64(2*pageSize))
	b, err := unix.Mmap(fd, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	unix.Ftruncate(fd, int64(pageSize))
	r := NewShared(b, nil)
	var f *Fault
	if err := r.Write(make([]byte, 2*pageSize), 0); !errors.As(err, &f) || f.Mem != wire.Memory(r) || !within(f.Addr, b[pageSize:]) {
		t.Errorf("got %v", err)
	}
}

func TestAtomics(t *testing.T) {
	for name, r := range map[string]Region{"direct": NewEmbedded(make([]byte, 64)), "process": ownProcess(t, pages(t, 1))} {
		set := func(v uint64) { r.Write(binary.NativeEndian.AppendUint64(nil, v), 16) }
		get := func() uint64 {
			var b [8]byte
			r.Read(b[:], 16)
			return binary.NativeEndian.Uint64(b[:])
		}
		for _, c := range []struct {
			op                     AtomicOp
			old, operand, cmp, now uint64
		}{
			{CompareSwap, 5, 9, 5, 9},
			{CompareSwap, 5, 9, 6, 5},
			{CompareSwap, top, 0, top, 0},
			{FetchAdd, 5, 9, 77, 14},
			{FetchAdd, top, 1, 0, 0},
			{FetchAdd, 1, top, 0, 0},
			{Store, 5, 9, 0, 9},
		} {
			set(c.old)
			old, err := r.Atomic(16, c.op, c.operand, c.cmp)
			if err != nil || old != c.old || get() != c.now {
				t.Errorf("%s: op %d on %d: old %d, now %d, %v", name, c.op, c.old, old, get(), err)
			}
		}
	}
}

func TestAtomicsAreAtomic(t *testing.T) {
	for name, r := range map[string]Region{"direct": NewEmbedded(make([]byte, 8)), "process": ownProcess(t, pages(t, 1))} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range 500 {
					if i%2 == 0 {
						r.Atomic(0, FetchAdd, 1, 0)
						continue
					}
					for old := uint64(0); ; {
						seen, err := r.Atomic(0, CompareSwap, old+1, old)
						if err != nil {
							t.Error(err)
							return
						}
						if seen == old {
							break
						}
						old = seen
					}
				}
			})
		}
		wg.Wait()
		if sum, _ := r.Atomic(0, FetchAdd, 0, 0); sum != 2000 {
			t.Errorf("%s: %d of 2000 additions", name, sum)
		}
	}
}

// ownProcess is a process region of this very process: the kernel does not mind.
func ownProcess(t testing.TB, b []byte) Region {
	t.Helper()
	p, err := shm.OpenProcess(unix.Getpid(), -1, -1)
	if refused(true, err) {
		t.Skip("process_vm_readv: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	r, err := NewProcess(p, uint64(address(b)), uint64(len(b)), true)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Who watches the last byte of a message sees all of it: the bytes before the last eight are there first. A copy that
// faults at the last eight shows it.
func TestLastBytesComeLast(t *testing.T) {
	for _, n := range []int{9, 16, 17, 64, 100, 256, 1024, 4096} {
		dst := pages(t, 2)
		src := pattern(make([]byte, n), 1)
		protect(t, dst[pageSize:], unix.PROT_NONE)
		span := Span{Mem: NewShared(dst, nil), Off: uint64(pageSize + 8 - n), Len: uint64(n)}
		if err := CopyPayload(span, 0, []wire.Piece{{Mem: NewEmbedded(src), Len: n}}); err == nil {
			t.Errorf("%d bytes: no fault", n)
		}
		if !bytes.Equal(dst[span.Off:pageSize], src[:n-8]) {
			t.Errorf("%d bytes: the last came before others", n)
		}
	}
}
