package shm

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// self opens this process's own memory, by number or by descriptors.
func self(t *testing.T, way string) *Process {
	t.Helper()
	pid, mem, maps := 0, -1, -1
	if way == "number" {
		pid = os.Getpid()
	} else {
		mem = must[int](t)(unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0))
		maps = must[int](t)(unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	}
	p, err := OpenProcess(pid, mem, maps)
	if way == "number" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)) {
		t.Skip(err) // a container without process_vm_readv
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestProcessCheck(t *testing.T) {
	for _, way := range []string{"number", "descriptors"} {
		noLeak(t)
		p := self(t, way)
		page := uint64(unix.Getpagesize())
		mem := must[[]byte](t)(unix.Mmap(-1, 0, int(4*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
		defer unix.Munmap(mem)
		unix.Mprotect(mem[page:2*page], unix.PROT_READ)
		unix.Mprotect(mem[3*page:], unix.PROT_NONE)
		base := uint64(uintptr(unsafe.Pointer(&mem[0])))
		for _, c := range []struct {
			first, n uint64
			write    bool
			want     error
		}{
			{0, page, true, nil},
			{0, 3 * page, false, nil},
			{2*page - 1, 1, true, unix.EACCES},
			{0, page + 1, true, unix.EACCES},
			{2 * page, page, true, nil},
			{2 * page, page + 1, false, unix.EACCES},
			{3*page - 1, 0, true, nil},
			{-base, 1, false, unix.EFAULT},
			{-base - 1, 1, false, unix.EFAULT},
			{-base - 1, 2, false, unix.EFAULT},
		} {
			if err := p.Check(base+c.first, c.n, c.write); !errors.Is(err, c.want) {
				t.Errorf("%s: %d bytes at %d, write %v: %v; want %v", way, c.n, c.first, c.write, err, c.want)
			}
			// The same where the kernel cannot be asked.
			if last := base + c.first + c.n - 1; c.n > 0 && last >= base+c.first {
				maps := must[int](t)(unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0))
				if err := p.checkLines(maps, base+c.first, last, c.write); !errors.Is(err, c.want) {
					t.Errorf("%s: %d bytes at %d by lines, write %v: %v; want %v", way, c.n, c.first, c.write, err, c.want)
				}
				unix.Close(maps)
			}
		}
	}
}

func TestRanges(t *testing.T) {
	for _, way := range []string{"number", "descriptors"} {
		p := self(t, way)
		// The second half is beyond the end of the file: not there for anybody, whereas descriptors reach into pages that
		// are merely protected.
		fd := must[int](t)(Create("half", 1<<15))
		defer unix.Close(fd)
		mem := must[[]byte](t)(unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
		defer unix.Munmap(mem)
		base := uint64(uintptr(unsafe.Pointer(&mem[0])))
		src, dst := make([]byte, MaxRanges*100), make([]byte, MaxRanges*100)
		for i := range src {
			src[i] = byte(i * 7)
		}
		var w, r Ranges
		for i := range MaxRanges {
			if w.Full() {
				t.Error("full")
			}
			w.Add(src[i*100:(i+1)*100], base+uint64(i)*1000)
			r.Add(dst[i*100:(i+1)*100], base+uint64(i)*1000)
		}
		if !w.Full() || w.Len() != MaxRanges {
			t.Error("not full")
		}
		if _, _, err := p.WriteRanges(&w); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		if _, _, err := p.ReadRanges(&r); err != nil || !bytes.Equal(src, dst) {
			t.Errorf("%s: %v", way, err)
		}
		// The third of four faults after 60 bytes.
		r.Reset()
		clear(dst)
		for i, off := range []uint64{0, 1000, 1<<15 - 60, 2000} {
			r.Add(dst[i*100:(i+1)*100], base+off)
		}
		i, n, err := p.ReadRanges(&r)
		if i != 2 || n != 60 || err != unix.EFAULT || !bytes.Equal(dst[:200], src[:200]) || dst[301] != 0 {
			t.Errorf("%s: read range %d, %d bytes, %v", way, i, n, err)
		}
	}
}

func TestParseMapping(t *testing.T) {
	for _, c := range []struct {
		line        string
		first, last uint64
		prot        string
		ok          bool
	}{
		{"5636dfb8c000-5636dfb8f000 r--p 00000000 fe:00 247741                     /usr/bin/sed", 0x5636dfb8c000, 0x5636dfb8efff, "r--p", true},
		{"7f0000000000-7f0000001000 rw-s 00000000 00:01 12 /memfd:a b (deleted)", 0x7f0000000000, 0x7f0000000fff, "rw-s", true},
		{"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]", 0xffffffffff600000, 0xffffffffff600fff, "--xp", true},
		{"", 0, 0, "", false},
		{"1000-2000", 0, 0, "", false},
		{"1000-2000 r", 0, 0, "", false},
		{"1000 rw-p", 0, 0, "", false},
		{"x-2000 rw-p", 0, 0, "", false},
		{"1000-x rw-p", 0, 0, "", false},
		{"2000-2000 rw-p", 0, 0, "", false},
		{"2000-1000 rw-p", 0, 0, "", false},
	} {
		m, ok := parseMapping(c.line)
		if ok != c.ok || ok && m != (mapping{c.first, c.last, c.prot}) {
			t.Errorf("%q: %+v, %v", c.line, m, ok)
		}
	}
}
