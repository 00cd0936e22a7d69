package shm

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Sealed is the set of seals without which memory is not mapped: its owner can neither shrink it, which would end who
// touches what is gone, nor grow it, nor seal it further.
const Sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes size bytes of zeroed memory that can be passed to others, sealed as [Map] wants it. The name appears in
// /proc. The caller closes fd.
func Create(name string, size int) (fd int, err error) {
	fd, err = newMemfd(name, size)
	if err != nil {
		return -1, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Sealed); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("seal shared memory %s: %w", name, err)
	}
	return fd, nil
}

func newMemfd(name string, size int) (fd int, err error) {
	if size <= 0 {
		return -1, fmt.Errorf("create shared memory %s: size %d: %w", name, size, unix.EINVAL)
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags) // Linux before 6.3
	}
	if err != nil {
		return -1, fmt.Errorf("create shared memory %s: %w", name, err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("create shared memory %s of %d bytes: %w", name, size, err)
	}
	return fd, nil
}

// Published makes size bytes of zeroed memory that the caller alone can write: mem is its own mapping, and fd is for
// others, who can map it only for reading ([MapReadOnly]).
func Published(name string, size int) (fd int, mem []byte, err error) {
	fd, err = newMemfd(name, size)
	if err != nil {
		return -1, nil, err
	}
	mem, err = mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	// The seal forbids new writable mappings; this one came before it.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Sealed|unix.F_SEAL_FUTURE_WRITE); err != nil {
		return -1, nil, errors.Join(fmt.Errorf("seal published memory %s: %w", name, err), Unmap(mem), unix.Close(fd))
	}
	return fd, mem, nil
}

// Map maps the first size bytes of memory that another process made, for reading and writing. It refuses whatever could
// fault later or be taken away; the error says what is wrong and wraps EINVAL, or EPERM for memory that is sealed
// against writing. fd stays the caller's and may be closed.
//
// Even so every access is to be guarded: its owner cannot shrink the memory, but punches holes at will, and the machine
// may run out of memory to fill them.
func Map(fd, size int) ([]byte, error) {
	seals, err := judge(fd, size)
	if err != nil {
		return nil, err
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return nil, fmt.Errorf("map shared memory: it is sealed against writing: %w", unix.EPERM)
	}
	return mmap(fd, size, unix.PROT_READ|unix.PROT_WRITE)
}

// MapReadOnly maps the first size bytes of memory that another process published, for reading. It refuses as [Map] does,
// but memory sealed against writing is welcome.
func MapReadOnly(fd, size int) ([]byte, error) {
	if _, err := judge(fd, size); err != nil {
		return nil, err
	}
	return mmap(fd, size, unix.PROT_READ)
}

// Unmap ends a mapping. Nobody may touch the bytes any more: what is mapped next may get their addresses.
func Unmap(mem []byte) error {
	if err := unix.Munmap(mem); err != nil {
		return fmt.Errorf("unmap shared memory: %w", err)
	}
	return nil
}

// judge asks whether size bytes of fd will stay there, and returns the seals.
func judge(fd, size int) (seals int, err error) {
	if size <= 0 {
		return 0, fmt.Errorf("map shared memory: size %d: %w", size, unix.EINVAL)
	}
	seals, err = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		if err == unix.EBADF {
			return 0, fmt.Errorf("map shared memory: %w", err)
		}
		return 0, fmt.Errorf("map shared memory: the descriptor is not a memfd: %w", unix.EINVAL)
	}
	if missing := Sealed &^ seals; missing != 0 {
		return 0, fmt.Errorf("map shared memory: it lacks the seals %s: %w", sealNames(missing), unix.EINVAL)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("map shared memory: %w", err)
	}
	if fs.Type == unix.HUGETLBFS_MAGIC {
		// Its pages come from a pool that others can empty: a hole in it cannot be filled again.
		return 0, fmt.Errorf("map shared memory: huge pages are not accepted: %w", unix.EINVAL)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("map shared memory: %w", err)
	}
	if st.Size < int64(size) {
		return 0, fmt.Errorf("map shared memory: it has %d bytes, not %d: %w", st.Size, size, unix.EINVAL)
	}
	return seals, nil
}

func sealNames(seals int) string {
	var names []string
	for _, s := range []struct {
		bit  int
		name string
	}{{unix.F_SEAL_SHRINK, "SHRINK"}, {unix.F_SEAL_GROW, "GROW"}, {unix.F_SEAL_SEAL, "SEAL"}} {
		if seals&s.bit != 0 {
			names = append(names, s.name)
		}
	}
	return strings.Join(names, "|")
}

func mmap(fd, size, prot int) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return mem, nil
}
