package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

func init() {
	roles["poller"] = poller
	roles["resizer"] = resizer
}

// loop connects two sides of one device.
func loop(ctx *verbs.Context, size int) (a, b *side) {
	a, b = newSide(ctx, size), newSide(ctx, size)
	join(a, b)
	return a, b
}

// pollerEntries is what poller takes between its marks.
const pollerEntries = 60

// The marks are numbers of processes that cannot be.
const beginMark, endMark = 2000000001, 2000000002

// poller takes completions that are there, one at a time and many at a time, between two system calls that strace knows.
func poller(socket string) {
	a, b := loop(must(verbs.Open("", verbs.WithSocket(socket))), 4096)
	runtime.LockOSThread()
	// Go's scheduler does not learn of these calls: when others return it might have to wake a thread.
	mark := func(pid uintptr) { unix.RawSyscall(unix.SYS_GETPGID, pid, 0, 0) }
	var wc [pollerEntries]verbs.WC
	for _, batch := range []int{1, 30} {
		for i := range uint64(pollerEntries) {
			if err := a.rdma(i, ib.WRRDMAWrite, 0, 8, b.mr.Addr(), b.mr.RKey()); err != nil {
				panic(err)
			}
		}
		for must(a.cq.Peek(pollerEntries)) < pollerEntries {
			time.Sleep(time.Millisecond)
		}
		runtime.GC() // not in between
		mark(beginMark)
		n := 0
		for n < pollerEntries {
			k, err := a.cq.Poll(wc[:batch])
			if err != nil || k == 0 {
				panic(fmt.Sprint("poll: ", k, err))
			}
			n += k
		}
		mark(endMark)
	}
	say("done", nil)
}

// A poll that finds something makes no system call.
func TestPollMakesNoSystemCall(t *testing.T) {
	strace := progtest.Need(t, "strace")
	d := startDaemon(t, "--device", "softnic0=lo")
	file := filepath.Join(t.TempDir(), "strace")
	if r := finish(t, patience, exec.Command(strace, "-o", file, "true")); r.code != 0 {
		t.Skipf("strace may not trace here: %s", r.stderr)
	}
	a := cast(t, "poller", d.socket, func(c *exec.Cmd) {
		c.Args = append([]string{strace, "-f", "-o", file}, c.Args...)
		c.Path = strace
	})
	a.hear("done")
	f, err := os.Open(file)
	check(t, err)
	defer f.Close()
	inside, spans := "", 0 // the thread that is between its marks
	for s := bufio.NewScanner(f); s.Scan(); {
		thread, call, _ := strings.Cut(s.Text(), " ")
		switch {
		case strings.Contains(call, fmt.Sprintf("getpgid(%d", beginMark)):
			inside = thread
		case strings.Contains(call, fmt.Sprintf("getpgid(%d", endMark)):
			inside = ""
			spans++
		case strings.Contains(call, "getpgid") && strings.Contains(call, "resumed>"): // the rest of a mark
		case thread == inside && !ofTheRuntime(call):
			t.Errorf("a poll that finds something calls %s", call)
		}
	}
	if spans != 2 {
		t.Errorf("%d spans of polling in the trace, want 2", spans)
	}
}

// ofTheRuntime reports whether Go itself makes this call, whatever the program does: signals by which its scheduler
// preempts, memory that its collector or the race detector takes.
func ofTheRuntime(call string) bool {
	for _, s := range []string{"SIGURG", "rt_sigreturn", "MAP_ANONYMOUS", "mmap resumed>", "munmap", "madvise"} {
		if strings.Contains(call, s) {
			return true
		}
	}
	return false
}

// resizer polls, sends and resizes without end.
func resizer(socket string) {
	a, b := loop(must(verbs.Open("", verbs.WithSocket(socket))), 4096)
	go func() {
		for i := 0; ; i++ {
			if err := a.cq.Resize(256 << (i % 5)); err != nil {
				panic(err)
			}
			if i == 20 {
				say("busy", nil)
			}
		}
	}()
	traffic(a, b, 1<<62)
}

// traffic writes from one side to the other, 32 at a time, and wants every completion once and in order.
func traffic(a, b *side, messages uint64) {
	var wc [8]verbs.WC
	for posted, next := uint64(0), uint64(0); next < messages; {
		for posted < messages && posted-next < 32 {
			if err := a.rdma(posted, ib.WRRDMAWrite, 0, 8, b.mr.Addr(), b.mr.RKey()); err != nil {
				panic(err)
			}
			posted++
		}
		n, err := a.cq.Poll(wc[:])
		if err != nil {
			panic(err)
		}
		for i := range n {
			if wc[i].WRID != next || wc[i].Status != ib.WCSuccess {
				panic(fmt.Sprintf("completion of %d: %v, want %d", wc[i].WRID, wc[i].Status, next))
			}
			next++
		}
	}
}

// Up and down with a daemon that maps the rings, too, while others post and poll.
func TestResizeWithDaemon(t *testing.T) {
	d := startDaemon(t, "--device", "softnic0=lo")
	a, b := loop(d.open(""), 4096)
	done := make(chan struct{})
	var resizes atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; ; resizes.Add(1) {
			select {
			case <-done:
				return
			default:
			}
			if err := a.cq.Resize(64 << (resizes.Load() % 8)); err != nil {
				t.Errorf("resize: %v", err)
				return
			}
		}
	})
	traffic(a, b, 20_000)
	// On few processors one side of this is hardly there while the other works.
	const enough = 20
	for end := time.Now().Add(patience); resizes.Load() < enough && !t.Failed() && time.Now().Before(end); {
		traffic(a, b, 1000)
	}
	close(done)
	wg.Wait()
	if n := resizes.Load(); n < enough {
		t.Errorf("%d resizes under traffic", n)
	}
}

// An application that is killed in the middle of a resize is no more than one that is killed.
func TestResizerKilled(t *testing.T) {
	d := startDaemon(t, "--device", "softnic0=lo")
	ctx := d.open("")
	a, b := loop(ctx, 4096)
	for range 5 {
		r := cast(t, "resizer", d.socket)
		r.hear("busy")
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
		r.kill()
		traffic(a, b, 100)
	}
	eventually(t, "the daemon has given back what the dead had", patience, func() bool {
		list, err := ctx.CQs()
		check(t, err)
		return len(list) == 2
	})
	if s := d.stderr.String(); strings.Contains(s, "panic") || strings.Contains(s, "internal error") {
		t.Errorf("the daemon said\n%s", s)
	}
}

// A buffer may change before its receive completes, and is complete when it has.
func TestBufferChangesBefore(t *testing.T) {
	const size = 4 << 20
	d := startDaemon(t, "--device", "softnic0=lo")
	a, b := loop(d.open(""), size)
	fill(a.mem, 5)
	a.mem[0], a.mem[size-1] = 1, 1
	seen := false
	// A message takes a tenth of a millisecond: whoever polls has to have a processor at the right moment. Where he shares that of
	// the daemon he never has, until the kernel places them anew.
	until := time.Now().Add(patience)
	for try := uint64(0); try < 20 || !seen && time.Now().Before(until); try++ {
		if try%100 == 99 {
			time.Sleep(time.Millisecond)
		}
		b.mem[0], b.mem[size-1] = 0, 0
		check(t, b.recv(try, 0, size))
		check(t, a.send(try, 0, size))
		var wc [1]verbs.WC
		early, n := false, 0
		for end := time.Now().Add(patience); n == 0; {
			if time.Now().After(end) {
				t.Fatal("no completion")
			}
			changed := b.mem[0] == 1
			n = must(b.cq.Poll(wc[:]))
			early = early || changed && n == 0
		}
		if wc[0].Status != ib.WCSuccess || b.mem[0] != 1 || b.mem[size-1] != 1 {
			t.Fatalf("%v, and the buffer begins with %d and ends with %d", wc[0].Status, b.mem[0], b.mem[size-1])
		}
		check(t, a.expect(timeout(t), try))
		seen = seen || early
	}
	if !seen {
		t.Errorf("in %v of messages of 4 MiB nothing was in memory before the completion", patience)
	}
}

// A queue that overruns in one process, as seen by it and by another.
func TestOverrunWithDaemon(t *testing.T) {
	d := startDaemon(t, "--device", "softnic0=lo")
	mine, theirs := d.open(""), d.open("")
	a, b := loop(mine, 4096)
	x, y := loop(theirs, 4096)
	check(t, a.cq.Resize(64))
	for i := range uint64(64) {
		check(t, a.rdma(i, ib.WRRDMAWrite, 0, 8, b.mr.Addr(), b.mr.RKey()))
	}
	eventually(t, "64 completions", patience, func() bool { return must(a.cq.Peek(100)) == 64 })
	check(t, a.recv(64, 0, 8))
	check(t, b.send(1, 0, 8)) // the completion that does not fit
	seen := map[ib.EventType]bool{}
	for !seen[ib.EventCQErr] || !seen[ib.EventQPFatal] {
		e, err := mine.AsyncEvent(timeout(t))
		check(t, err)
		if e.CQ != nil && e.CQ != a.cq || e.QP != nil && e.QP != a.qp {
			t.Fatalf("event %v of something else", e.Type)
		}
		seen[e.Type] = true
	}
	wc := make([]verbs.WC, 100)
	if n := must(a.cq.Poll(wc)); n != 64 {
		t.Fatalf("%d completions, 64 fit", n)
	}
	if _, err := a.cq.Poll(wc); !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("poll: %v", err)
	}
	traffic(x, y, 100)
}
