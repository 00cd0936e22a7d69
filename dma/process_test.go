package dma

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/wire"
)

// peer is the child process: see child.
type peer struct {
	t         *testing.T
	cmd       *exec.Cmd
	sock      int
	base      uint64
	mem, maps int
}

func startPeer(t *testing.T) *peer {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "peer")
	defer theirs.Close()
	p := &peer{t: t, sock: pair[0]}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), "SOFTNIC_DMA_CHILD=1")
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(p.sock)
		p.cmd.Wait()
	})
	var buf [64]byte
	var fds [2]int
	n, nfds, err := shm.RecvMsg(p.sock, buf[:], fds[:], nil)
	if err != nil || nfds != 2 {
		t.Fatal(n, nfds, err)
	}
	p.base, err = strconv.ParseUint(string(buf[:n]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p.mem, p.maps = fds[0], fds[1]
	t.Cleanup(func() { unix.Close(p.mem); unix.Close(p.maps) })
	return p
}

func (p *peer) command(c byte) string {
	p.t.Helper()
	unix.Write(p.sock, []byte{c})
	var buf [64]byte
	n, err := unix.Read(p.sock, buf[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return string(buf[:n])
}

// refused reports whether the system does not let processes reach each other by number, as in many containers.
func refused(number bool, err error) bool {
	return number && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS))
}

// open makes a Process that reaches the child in one of the ways.
func (p *peer) open(way string) *shm.Process {
	p.t.Helper()
	pid, mem, maps := 0, -1, -1
	dup := func(fd int) int {
		fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		return fd
	}
	switch way {
	case "number":
		pid = p.cmd.Process.Pid
	case "descriptors":
		mem, maps = dup(p.mem), dup(p.maps)
	case "mem alone":
		mem = dup(p.mem)
	case "mem to read":
		var err error
		mem, err = unix.Open("/proc/"+strconv.Itoa(p.cmd.Process.Pid)+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			p.t.Skip(err)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		maps = dup(p.maps)
	}
	proc, err := shm.OpenProcess(pid, mem, maps)
	if refused(way == "number", err) {
		p.t.Skip(err)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { proc.Close() })
	return proc
}

func TestProcessRegion(t *testing.T) {
	for _, way := range []string{"number", "descriptors"} {
		t.Run(way, func(t *testing.T) {
			p := startPeer(t)
			proc := p.open(way)
			page := uint64(pageSize)
			want := pattern(make([]byte, childPages*pageSize), 1)
			for _, c := range []struct {
				name        string
				first, size uint64
				write       bool
				errno       error
			}{
				{"writable pages", 0, 4 * page, true, nil},
				{"nothing", 5 * page, 0, true, nil},
				{"read-only page, to read", 3 * page, 2 * page, false, nil},
				{"read-only page, to write", 3 * page, 2 * page, true, unix.EACCES},
				{"last byte read-only", 0, 4*page + 1, true, unix.EACCES},
				{"hole", 5 * page, 1, false, unix.EFAULT},
				{"into the hole", 3 * page, 2*page + 1, false, unix.EFAULT},
				{"over the hole", 4 * page, 3 * page, false, unix.EFAULT},
				{"begins in the hole", 6*page - 1, 2, false, unix.EFAULT},
				{"address 0", -p.base, 1, false, unix.EFAULT},
				{"around the end", -p.base - 1, 2, false, unix.EINVAL},
			} {
				r, err := NewProcess(proc, p.base+c.first, c.size, c.write)
				if !errors.Is(err, c.errno) || (err == nil) != (c.errno == nil) {
					t.Errorf("%s: %v, want %v", c.name, err, c.errno)
				}
				if err == nil && c.size > 0 {
					got := make([]byte, c.size)
					if err := r.Read(got, 0); err != nil || !bytes.Equal(got, want[c.first:c.first+c.size]) {
						t.Errorf("%s: read: %v", c.name, err)
					}
				}
			}

			r, err := NewProcess(proc, p.base, 4*page, true)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Write(bytes.Repeat([]byte{2}, pageSize), 0); err != nil {
				t.Fatal(err)
			}
			if got := p.command('s'); got != strconv.Itoa(2*pageSize) {
				t.Errorf("the child sees a sum of %s", got)
			}
			var f *Fault
			for name, err := range map[string]error{
				"read past the end":   r.Read(make([]byte, 2), 4*page-1),
				"write past the end":  r.Write(make([]byte, 2), 4*page-1),
				"read, wraps":         r.Read(make([]byte, 2), top),
				"atomic past the end": second(r.Atomic(4*page-7, FetchAdd, 1, 0)),
			} {
				if !errors.As(err, &f) || f.Mem != wire.Memory(r) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// Without its mappings nothing protects a process's read-only pages from being written.
func TestProcessWithoutMappings(t *testing.T) {
	p := startPeer(t)
	proc := p.open("mem alone")
	if _, err := NewProcess(proc, p.base, 8, true); !errors.Is(err, unix.EPERM) {
		t.Errorf("to write: %v", err)
	}
	readOnly := p.open("mem to read")
	if _, err := NewProcess(readOnly, p.base, 8, true); !errors.Is(err, unix.EPERM) {
		t.Errorf("to write what was opened to read: %v", err)
	}
	r, err := NewProcess(proc, p.base, 8, false)
	if err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	if err := r.Read(b[:], 0); err != nil || b[0] != 1 {
		t.Errorf("read: %v, %v", b, err)
	}
}

// Copies of different processes and directions do not share a system call.
func TestBatchesDoNotMix(t *testing.T) {
	p := startPeer(t)
	child, err := NewProcess(p.open("number"), p.base, uint64(pageSize), true)
	if err != nil {
		t.Fatal(err)
	}
	own := pattern(pages(t, 1), 77)
	self := ownProcess(t, own)
	want := pattern(make([]byte, pageSize), 1)

	got := make([]byte, 30)
	err = ReadPieces(got, []wire.Piece{{Mem: child, Len: 10}, {Mem: self, Len: 10}, {Mem: child, Off: 10, Len: 10}})
	if err != nil || !bytes.Equal(got, append(append(append([]byte{}, want[:10]...), own[:10]...), want[10:20]...)) {
		t.Errorf("read: %v, %v", err, got)
	}

	// The first ten bytes are written to the child, the last ten read from it.
	tab, pd := NewTable(4, seeded()), new(Domain)
	here := make([]byte, 10)
	far := insert(t, tab, &MR{Domain: pd, Region: child, Length: child.Size(), Access: ib.AccessLocalWrite})
	near := insert(t, tab, &MR{Domain: pd, Region: NewEmbedded(here), Length: 10, Access: ib.AccessLocalWrite})
	list := []ib.SGE{{Addr: 100, Length: 10, LKey: far.LKey}, {Length: 10, LKey: near.LKey}}
	payload := []wire.Piece{{Mem: &wire.Buffer{B: []byte("0123456789")}, Len: 10}, {Mem: child, Off: 200, Len: 10}}
	if v, err := tab.Scatter(pd, list, 0, payload); v != OK || err != nil {
		t.Fatal(v, err)
	}
	child.Read(got[:10], 100)
	if string(got[:10]) != "0123456789" || !bytes.Equal(here, want[200:210]) {
		t.Errorf("scattered %q and %v", got[:10], here)
	}
}

// holes is a region over all pages of the child, as if the hole had come after its registration.
func (p *peer) holes(proc *shm.Process) *process {
	return &process{proc, p.base, childPages * uint64(pageSize)}
}

func TestProcessFaults(t *testing.T) {
	for _, way := range []string{"number", "descriptors"} {
		t.Run(way, func(t *testing.T) {
			p := startPeer(t)
			r := p.holes(p.open(way))
			page := uint64(pageSize)
			near := pages(t, 2)
			good := NewShared(near, nil)
			var f *Fault
			check := func(name string, err error, mem wire.Memory, addr uintptr) {
				t.Helper()
				if !errors.As(err, &f) || f.Mem != mem || addr != 0 && f.Addr != addr {
					t.Errorf("%s: %+v, want address %#x", name, err, addr)
				}
			}
			hole := uintptr(p.base + 5*page)
			check("read", r.Read(make([]byte, 64), 5*page-8), r, hole)
			check("write", r.Write(make([]byte, 64), 5*page), r, hole)
			check("to direct", CopyPayload(Span{good, 0, 4096}, 0, []wire.Piece{
				{Mem: r, Off: 0, Len: 8}, {Mem: r, Off: 5*page - 8, Len: 64}, {Mem: r, Off: 8, Len: 8},
			}), r, hole)
			want := pattern(make([]byte, childPages*pageSize), 1)
			if !bytes.Equal(near[:8], want[:8]) || !bytes.Equal(near[72:80], make([]byte, 8)) {
				t.Errorf("the piece before the fault was not copied, or the one after it was: %v", near[:80])
			}
			check("from direct", CopyPayload(Span{r, 5*page - 4, 64}, 4, []wire.Piece{{Mem: good, Len: 8}}), r, hole)
			check("own to own", CopyPayload(Span{r, 0, 64}, 0, []wire.Piece{{Mem: r, Off: 5 * page, Len: 8}}), r, hole)
			check("pieces", ReadPieces(make([]byte, 73), []wire.Piece{{Mem: good, Len: 8}, {Mem: r, Off: 5*page - 64, Len: 65}}), r, hole)

			end := childPages * page
			check("to past the end", CopyPayload(Span{r, 0, end + 8}, end-4, []wire.Piece{{Mem: good, Len: 8}}), r, 0)
			check("from past the end", ReadPieces(make([]byte, 8), []wire.Piece{{Mem: r, Off: end - 4, Len: 8}}), r, 0)
			if !errors.Is(f, errBounds) {
				t.Errorf("from past the end: %v", f)
			}

			// The other side's page is gone: the kernel says EFAULT too.
			protect(t, near[pageSize:], unix.PROT_READ)
			if !raceEnabled { // its atomics write in C, where a fault ends the process
				check("to read-only memory here", CopyPayload(Span{good, 0, 2 * page}, page-8, []wire.Piece{{Mem: r, Len: 16}}), good, address(near)+uintptr(page))
			}
			protect(t, near[pageSize:], unix.PROT_NONE)
			check("from memory gone here", CopyPayload(Span{r, 0, 64}, 0, []wire.Piece{{Mem: good, Off: page, Len: 8}}), good, address(near)+uintptr(page))

			if way == "number" { // /proc/self/mem is known to write it
				p.command('r')
				check("made read-only", r.Write(make([]byte, 8), 0), r, uintptr(p.base))
			}
			p.cmd.Process.Kill()
			p.cmd.Wait()
			err := r.Read(make([]byte, 8), 0)
			check("dead", err, r, 0)
			if !errors.Is(err, syscall.ESRCH) {
				t.Errorf("dead: %v", err)
			}
			check("dead, pieces", ReadPieces(make([]byte, 16), []wire.Piece{{Mem: r, Len: 8}, {Mem: r, Len: 8}}), r, 0)
		})
	}
}

func TestOpenProcessRefuses(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "mem"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	status, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sock)
	for name, fd := range map[string]int{"file": int(file.Fd()), "another file of /proc": int(status.Fd()), "socket": sock} {
		if _, err := shm.OpenProcess(0, fd, -1); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := shm.OpenProcess(0, -1, -1); !errors.Is(err, unix.ESRCH) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := shm.OpenProcess(0, 1<<20, -1); !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %v", err)
	}
}
