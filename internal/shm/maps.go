package shm

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Check asks whether the process itself may read, and if write also write, every byte of [addr, addr+n). The error names
// the first page that it may not; it wraps EFAULT where nothing is mapped, EACCES where the protection forbids it.
//
// Memory has to be checked before it is written, because the kernel lets /proc/self/mem write pages that their owner made
// read-only. Where the mappings are not to be seen, writing is refused with EPERM and reading is left to show at the
// first access.
func (p *Process) Check(addr, n uint64, write bool) error {
	if n == 0 {
		return nil
	}
	last := addr + (n - 1)
	if last < addr {
		return p.errorf(unix.EFAULT, "%d bytes at %#x pass the end of the address space", n, addr)
	}
	if write && !p.vm {
		if flags, err := unix.FcntlInt(uintptr(p.mem), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
			return p.errorf(unix.EPERM, "its /proc/self/mem was not opened to read and write")
		}
	}
	fd := p.maps
	if fd < 0 {
		if p.pid <= 0 {
			if write {
				return p.errorf(unix.EPERM, "its mappings cannot be seen, so that it cannot be written")
			}
			return nil
		}
		var err error
		fd, err = unix.Open("/proc/"+strconv.Itoa(p.pid)+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("mappings of process %d: %w", p.pid, err)
		}
		defer unix.Close(fd)
	}
	// A kernel that can be asked about an address need not print all of its process's mappings.
	for next := addr; ; {
		m, errno := askMapping(fd, next)
		switch {
		case errno == unix.ENOENT:
			return p.errorf(unix.EFAULT, "nothing is mapped at %#x", next)
		case errno != 0:
			return p.checkLines(fd, addr, last, write)
		case !m.allows(write):
			return p.errorf(unix.EACCES, "the page at %#x is %s", next, m.prot)
		case m.last >= last:
			return nil
		}
		next = m.last + 1
	}
}

// checkLines is Check of [addr, last] by what /proc/PID/maps says.
func (p *Process) checkLines(fd int, addr, last uint64, write bool) error {
	next := addr // every byte before it is good
	lines := bufio.NewScanner(&preader{fd: fd})
	lines.Buffer(make([]byte, 0, 8192), 1<<20)
	for lines.Scan() {
		m, ok := parseMapping(lines.Text())
		switch {
		case !ok:
			return p.errorf(unix.EIO, "mapping %q makes no sense", lines.Text())
		case m.last < next:
			continue
		case m.first > next:
			return p.errorf(unix.EFAULT, "nothing is mapped at %#x", next)
		case !m.allows(write):
			return p.errorf(unix.EACCES, "the page at %#x is %s", next, m.prot)
		case m.last >= last:
			return nil
		}
		next = m.last + 1
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("mappings of process %d: %w", p.pid, err)
	}
	return p.errorf(unix.EFAULT, "nothing is mapped at %#x", next)
}

func (p *Process) errorf(errno unix.Errno, format string, args ...any) error {
	return fmt.Errorf("memory of process %d: %s: %w", p.pid, fmt.Sprintf(format, args...), errno)
}

// mapping is a line of /proc/self/maps.
type mapping struct {
	first, last uint64
	prot        string // "rw-p"
}

// allows reports whether the process itself may read there, and if write also write.
func (m *mapping) allows(write bool) bool { return m.prot[0] == 'r' && (!write || m.prot[1] == 'w') }

// parseMapping reads "5636dfb8c000-5636dfb8f000 r--p 00000000 fe:00 247741  /usr/bin/sed".
func parseMapping(line string) (m mapping, ok bool) {
	span, rest, ok := strings.Cut(line, " ")
	if !ok || len(rest) < 4 {
		return m, false
	}
	m.prot = rest[:4]
	first, end, ok := strings.Cut(span, "-")
	if !ok {
		return m, false
	}
	var err1, err2 error
	m.first, err1 = strconv.ParseUint(first, 16, 64)
	m.last, err2 = strconv.ParseUint(end, 16, 64)
	if err1 != nil || err2 != nil || m.last <= m.first {
		return m, false
	}
	m.last--
	return m, true
}

// preader reads a file from its start whatever its offset, which the process that passed the descriptor may move.
type preader struct {
	fd  int
	off int64
}

func (r *preader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Pread(r.fd, b, r.off)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		r.off += int64(n)
		return n, nil
	}
}
