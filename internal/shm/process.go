package shm

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Process is the memory of another process, reached by system calls. It is safe for concurrent use until Close.
//
// There are two ways in. process_vm_readv takes many ranges in a call but needs a process number and the right to trace
// it, which the Yama security module refuses for processes that are not children. The other is a descriptor of
// /proc/self/mem that the process opened and passed. It works across process namespaces and cannot come to mean another
// process, but it reaches even into pages that their owner protected: [Process.Check] tells of those that are protected now,
// nothing of those that will be. The first is taken where it can be.
type Process struct {
	pid  int
	mem  int
	maps int
	vm   bool
}

// MaxRanges is the most ranges that one call reads or writes.
const MaxRanges = 16

// OpenProcess makes a Process of a process number (0: not visible from here) and descriptors of its /proc/self/mem and
// /proc/self/maps (-1: not passed), which become the Process's own unless there is an error.
//
// Without maps and process number nothing is known about the protection of pages, and memory cannot be written.
func OpenProcess(pid, mem, maps int) (*Process, error) {
	p := &Process{pid: pid, mem: mem, maps: maps}
	for _, f := range []struct {
		fd   int
		name string
	}{{mem, "mem"}, {maps, "maps"}} {
		if f.fd >= 0 {
			if err := checkProcFile(f.fd, f.name); err != nil {
				return nil, err
			}
		}
	}
	var err error = unix.ESRCH
	if pid > 0 {
		// Nothing is mapped at address 0: EFAULT says that everything else is right.
		var b [1]byte
		_, err = p.vmRead(b[:], 0)
		p.vm = errors.Is(err, unix.EFAULT) || err == nil
	}
	if !p.vm && mem < 0 {
		return nil, fmt.Errorf("memory of process %d: it cannot be reached by number, and no /proc/self/mem was passed: %w", pid, err)
	}
	return p, nil
}

// checkProcFile refuses descriptors of other things: reading a socket or a FUSE file could block or worse.
func checkProcFile(fd int, name string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("descriptor of /proc/self/%s: %w", name, err)
	}
	var buf [256]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil {
		return fmt.Errorf("descriptor of /proc/self/%s: %w", name, err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC || path.Base(string(buf[:n])) != name {
		return fmt.Errorf("descriptor of /proc/self/%s: it is %q: %w", name, buf[:n], unix.EINVAL)
	}
	return nil
}

// Read copies len(dst) bytes from addr and returns how many could be read, with an error if not all. EFAULT is memory
// that is not there, or not in dst; ESRCH a process that is no more.
func (p *Process) Read(dst []byte, addr uint64) (int, error) {
	done := 0
	for done < len(dst) {
		n, err := p.read(dst[done:], addr+uint64(done))
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// Write copies src to addr, and is like Read.
func (p *Process) Write(src []byte, addr uint64) (int, error) {
	done := 0
	for done < len(src) {
		n, err := p.write(src[done:], addr+uint64(done))
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (p *Process) read(dst []byte, addr uint64) (int, error) {
	if p.vm {
		return p.vmRead(dst, addr)
	}
	return progress(unix.Pread(p.mem, dst, int64(addr)))
}

func (p *Process) write(src []byte, addr uint64) (int, error) {
	if p.vm {
		return p.vmWrite(src, addr)
	}
	return progress(unix.Pwrite(p.mem, src, int64(addr)))
}

// progress makes errors of what /proc/self/mem says otherwise: EIO for EFAULT, and 0 bytes for a process that is gone.
func progress(n int, err error) (int, error) {
	switch {
	case err == unix.EINTR:
		return 0, nil
	case err == unix.EIO:
		return 0, unix.EFAULT
	case err != nil:
		return 0, err
	case n <= 0:
		return 0, unix.ESRCH
	}
	return n, nil
}

func (p *Process) vmRead(dst []byte, addr uint64) (int, error) {
	local, remote := [1]unix.Iovec{}, [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}}
	local[0].Base = &dst[0]
	local[0].SetLen(len(dst))
	return progress(unix.ProcessVMReadv(p.pid, local[:], remote[:], 0))
}

func (p *Process) vmWrite(src []byte, addr uint64) (int, error) {
	local, remote := [1]unix.Iovec{}, [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(src)}}
	local[0].Base = &src[0]
	local[0].SetLen(len(src))
	return progress(unix.ProcessVMWritev(p.pid, local[:], remote[:], 0))
}

// Close closes the descriptors.
func (p *Process) Close() error {
	var errs []error
	for _, fd := range []int{p.mem, p.maps} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	p.mem, p.maps, p.vm = -1, -1, false
	return errors.Join(errs...)
}
