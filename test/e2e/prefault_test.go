package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
)

// What is registered is entered in the daemon's page table before the first message, whether the application has touched
// it or not, and the application is who made its pages.
func TestRegisteredMemoryIsPresent(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	pid := d.cmd.Process.Pid
	ctx := d.open("softnic0")
	const size = 64 << 20
	page := must(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	defer unix.Munmap(page)
	if err := unix.Madvise(page, unix.MADV_POPULATE_WRITE); err == unix.EINVAL {
		t.Skip("Linux before 5.14")
	}
	shared := func() [2]int { return [2]int{status(t, pid, "RssShmem"), status(t, os.Getpid(), "RssShmem")} }
	empty := shared()
	a, b := newSide(ctx, size), newSide(ctx, size)
	join(a, b)
	for i, now := range shared() {
		if more, want := now-empty[i], 2*size>>10; more < want {
			t.Errorf("%s has %d KiB entered of %d", []string{"the daemon", "the application"}[i], more, want)
		}
	}
	before := minorFaults(t, pid)
	for off := 0; off < size; off += 1 << 20 {
		check(t, a.rdma(uint64(off), ib.WRRDMAWrite, off, 1<<20, b.mr.Addr()+uint64(off), b.mr.RKey()))
		check(t, a.expect(timeout(t), uint64(off)))
	}
	if n := minorFaults(t, pid) - before; n > 2*size/4096/16 {
		t.Errorf("%d faults for %d pages", n, 2*size/4096)
	} else {
		t.Logf("%d faults for %d pages", n, 2*size/4096)
	}
}

// minorFaults is how often a process has touched a page that was not in its table.
func minorFaults(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	n, err = strconv.Atoi(fields[10-3]) // proc_pid_stat(5): minflt is field 10, the state behind the name 3
	check(t, err)
	return n
}
