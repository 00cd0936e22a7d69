package shm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreateAndMap(t *testing.T) {
	noLeak(t)
	const size = 10_000 // not a multiple of the page
	fd := must[int](t)(Create("test", size))
	defer unix.Close(fd)
	a := must[[]byte](t)(Map(fd, size))
	b := must[[]byte](t)(Map(fd, 100))
	r := must[[]byte](t)(MapReadOnly(fd, size))
	if len(a) != size || len(b) != 100 {
		t.Errorf("mapped %d and %d bytes", len(a), len(b))
	}
	a[99] = 7
	if b[99] != 7 || r[99] != 7 {
		t.Error("mappings do not share")
	}
	if err := unix.Ftruncate(fd, 0); err != unix.EPERM {
		t.Errorf("shrink: %v", err)
	}
	if err := unix.Ftruncate(fd, 2*size); err != unix.EPERM {
		t.Errorf("grow: %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != unix.EPERM {
		t.Errorf("another seal: %v", err)
	}
	if err := errors.Join(Unmap(a), Unmap(b), Unmap(r)); err != nil {
		t.Error(err)
	}
	for _, size := range []int{0, -1} {
		if _, err := Create("test", size); !errors.Is(err, unix.EINVAL) {
			t.Errorf("create of size %d: %v", size, err)
		}
	}
}

// Every kind of descriptor that a hostile client can pass for memory.
func TestMapRefuses(t *testing.T) {
	noLeak(t)
	const size = 8192
	memfd := func(flags, seals int) int {
		fd := must[int](t)(unix.MemfdCreate("hostile", flags|unix.MFD_CLOEXEC))
		closing(t, fd)
		if err := unix.Ftruncate(fd, size); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	const s, g, e = unix.F_SEAL_SHRINK, unix.F_SEAL_GROW, unix.F_SEAL_SEAL
	const w, f = unix.F_SEAL_WRITE, unix.F_SEAL_FUTURE_WRITE
	file := must[*os.File](t)(os.Create(filepath.Join(t.TempDir(), "file")))
	defer file.Close()
	file.Truncate(size)
	sock, _ := socketpair(t)
	event := must[int](t)(NewEvent())
	closing(t, event)
	dir := must[int](t)(unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	closing(t, dir)
	sealable := unix.MFD_ALLOW_SEALING

	cases := []struct {
		name  string
		fd    int
		size  int
		errno error
		says  string
	}{
		{"regular file", int(file.Fd()), size, unix.EINVAL, "not a memfd"},
		{"socket", sock, size, unix.EINVAL, "not a memfd"},
		{"eventfd", event, size, unix.EINVAL, "not a memfd"},
		{"directory", dir, size, unix.EINVAL, ""},
		{"closed descriptor", 1 << 20, size, unix.EBADF, ""},
		{"negative descriptor", -1, size, unix.EBADF, ""},
		{"cannot be sealed", memfd(0, 0), size, unix.EINVAL, "SHRINK|GROW"},
		{"unsealed", memfd(sealable, 0), size, unix.EINVAL, "SHRINK|GROW|SEAL"},
		{"may shrink", memfd(sealable, g|e), size, unix.EINVAL, "seals SHRINK:"},
		{"may grow", memfd(sealable, s|e), size, unix.EINVAL, "seals GROW:"},
		{"may be sealed", memfd(sealable, s|g), size, unix.EINVAL, "seals SEAL:"},
		{"sealed against writing", memfd(sealable, s|g|e|w), size, unix.EPERM, "against writing"},
		{"sealed against future writing", memfd(sealable, s|g|e|f), size, unix.EPERM, "against writing"},
		{"short", memfd(sealable, s|g|e), size + 1, unix.EINVAL, "8192 bytes, not 8193"},
		{"no size", memfd(sealable, s|g|e), 0, unix.EINVAL, "size 0"},
		{"negative size", memfd(sealable, s|g|e), -4096, unix.EINVAL, "size -4096"},
	}
	if shmFile, err := os.CreateTemp("/dev/shm", "softnic-test"); err == nil {
		os.Remove(shmFile.Name())
		defer shmFile.Close()
		shmFile.Truncate(size)
		cases = append(cases, struct {
			name  string
			fd    int
			size  int
			errno error
			says  string
		}{"file of a tmpfs", int(shmFile.Fd()), size, unix.EINVAL, "SHRINK|GROW"})
	}
	for _, c := range cases {
		mem, err := Map(c.fd, c.size)
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v that says %q", c.name, err, c.errno, c.says)
		}
		if mem != nil {
			t.Errorf("%s: mapped", c.name)
		}
		if _, err := MapReadOnly(c.fd, c.size); (err == nil) != (c.errno == unix.EPERM) {
			t.Errorf("%s: read-only: %v", c.name, err)
		}
	}
}

func TestMapRefusesHugePages(t *testing.T) {
	noLeak(t)
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil {
		t.Skip("no huge pages: ", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 2<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Sealed); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(fd, 4096); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "huge") {
		t.Errorf("%v", err)
	}
}

// What is published can be written by nobody else, whatever is tried with the descriptor.
func TestPublished(t *testing.T) {
	noLeak(t)
	const size = 4096
	fd, mem, err := Published("page", size)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	view := must[[]byte](t)(MapReadOnly(fd, size))
	mem[0] = 9
	if view[0] != 9 {
		t.Error("the publisher's write is not seen")
	}
	if _, err := Map(fd, size); !errors.Is(err, unix.EPERM) {
		t.Errorf("map: %v", err)
	}
	if _, err := unix.Mmap(fd, 0, size, unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EPERM {
		t.Errorf("mmap: %v", err)
	}
	if err := unix.Mprotect(view, unix.PROT_READ|unix.PROT_WRITE); err != unix.EACCES {
		t.Errorf("mprotect: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err != unix.EPERM {
		t.Errorf("pwrite: %v", err)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, size); err != unix.EPERM {
		t.Errorf("punch: %v", err)
	}
	if err := errors.Join(Unmap(view), Unmap(mem)); err != nil {
		t.Error(err)
	}
	if _, _, err := Published("page", 0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("size 0: %v", err)
	}
}
