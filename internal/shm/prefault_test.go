package shm

import (
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// What the owner has made or Prefault makes is entered in both mappings; what nobody made stays a hole.
func TestPrefault(t *testing.T) {
	noLeak(t)
	page := unix.Getpagesize()
	if page != 4096 {
		t.Skip("pages of ", page)
	}
	const size = 3*prefaultStep + 4096
	fd := must[int](t)(Create("prefault", size))
	closing(t, fd)
	own, other := must[[]byte](t)(Map(fd, size)), must[[]byte](t)(Map(fd, size))
	defer Unmap(own)
	defer Unmap(other)
	if begin, _ := pages(own); madvise(begin, 4096, unix.MADV_POPULATE_READ) == unix.EINVAL {
		t.Skip("Linux before 5.14")
	}
	have := func(what string, mem []byte, from, to int, want bool) {
		t.Helper()
		for i, is := range entered(t, mem[from*page:to*page]) {
			if is != want {
				t.Fatalf("%s: page %d: entered %v, want %v", what, from+i, is, want)
			}
		}
	}
	Prefault(own[10*page+1 : 20*page-1]) // pages 10 to 19
	Prefault(own[2*prefaultStep-page : 2*prefaultStep+page])
	own[size-1] = 1
	own[15*page] = 7
	have("made", own, 10, 20, true)
	have("left", own, 20, 2*prefaultStep/page-1, false)
	have("not yet", other, 10, 20, false)

	PrefaultPresent(other[15*page+5 : size])
	have("before", other, 0, 15, false)
	have("first", other, 15, 20, true)
	have("hole", other, 20, 2*prefaultStep/page-1, false)
	have("across a step", other, 2*prefaultStep/page-1, 2*prefaultStep/page+1, true)
	have("hole", other, 2*prefaultStep/page+1, size/page-1, false)
	have("last", other, size/page-1, size/page, true)
	if other[15*page] != 7 || other[size-1] != 1 {
		t.Error("wrong bytes")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Blocks != (1+10+2+1)*8 { // the first page is the question's above
		t.Errorf("%d blocks, %v", st.Blocks, err)
	}

	Prefault(nil)
	PrefaultPresent(nil)
	PrefaultPresent(make([]byte, 10)) // ordinary memory does no harm
}

// Of large memory the first 256 MiB are gone through, each page once.
func TestPrefaultBound(t *testing.T) {
	mem := must[[]byte](t)(unix.Mmap(-1, 0, prefaultMost+prefaultStep, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE))
	defer unix.Munmap(mem)
	next, sum := uintptr(0), uintptr(0)
	steps(mem, func(at, n uintptr) bool {
		if next != 0 && at != next || n > prefaultStep {
			t.Errorf("%d bytes at %#x, want those from %#x", n, at, next)
		}
		next, sum = at+n, sum+n
		return true
	})
	if sum != prefaultMost {
		t.Errorf("%d bytes, want %d", sum, prefaultMost)
	}
}

// entered says which pages of mem the page table has.
func entered(t *testing.T, mem []byte) (is []bool) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	begin, end := pages(mem)
	words := make([]byte, (end-begin)/4096*8)
	if _, err := f.ReadAt(words, int64(begin/4096*8)); err != nil {
		t.Fatal(err)
	}
	for ; len(words) > 0; words = words[8:] {
		is = append(is, binary.NativeEndian.Uint64(words)>>63 != 0)
	}
	return is
}
