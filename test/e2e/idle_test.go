package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
)

// What the heartbeat costs: a timer of the Go runtime that wakes the thread which beats, four times a second. The timer
// is an epoll_pwait that times out, threads hand over by futex, the clock may be a system call, and the runtime's monitor
// takes a nap before it sleeps again.
var beating = []string{"poll", "ppoll", "epoll_pwait", "futex", "clock_gettime", "nanosleep", "sched_yield", "restart_syscall"}

const (
	beatsPerSecond = 4
	callsPerBeat   = 15 // about 5: the poll, the clock, and the Go scheduler, which finds the thread a processor
)

// An idle daemon with 100 applications connected makes no system call but those of its heartbeat.
func TestIdle(t *testing.T) {
	slow(t)
	strace := progtest.Need(t, "strace")
	d := startDaemon(t, "--device", onLoopback)
	crowd := cast(t, "crowd", d.socket)
	if n := heard[int](t, crowd, "ready"); n != 100 {
		t.Fatalf("%d applications", n)
	}
	if n := mapped(t, d.cmd.Process.Pid); n < 200 {
		t.Fatalf("the daemon has %d mappings of 100 applications", n)
	}
	time.Sleep(time.Second) // the garbage of 400 requests is collected now or never
	// The collector, or another test's load, may come in between; an idle daemon is idle most of the time.
	for attempt := 1; ; attempt++ {
		bursts, names := quietSecond(t, strace, d.cmd.Process.Pid)
		t.Logf("in one second %v, in %d bursts", names, bursts)
		unknown := slices.DeleteFunc(keysOf(names), func(s string) bool { return slices.Contains(beating, s) })
		total := 0
		for _, n := range names {
			total += n
		}
		if len(unknown) == 0 && total <= beatsPerSecond*callsPerBeat && bursts <= beatsPerSecond+1 {
			return
		}
		if attempt == 3 {
			t.Fatalf("an idle daemon makes system calls: %v", names)
		}
	}
}

func keysOf(m map[string]int) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// quietSecond watches a process for a second and returns its system calls, and in how many bursts they came. Attaching
// interrupts every thread once: what happens in the half second after that is not looked at.
func quietSecond(t *testing.T, strace string, pid int) (bursts int, names map[string]int) {
	t.Helper()
	var out bytes.Buffer
	c := exec.Command(strace, "-f", "-ttt", "-p", strconv.Itoa(pid))
	c.Stderr = &out
	check(t, c.Start())
	time.Sleep(1700 * time.Millisecond)
	c.Process.Signal(syscall.SIGINT)
	check(t, ignoreExit(c.Wait()))

	names = map[string]int{}
	first, last := 0.0, 0.0
	for line := range strings.Lines(out.String()) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "[pid" {
			f = f[2:]
		}
		at, err := strconv.ParseFloat(f[0], 64)
		if err != nil || len(f) < 2 {
			continue // strace's own
		}
		if first == 0 {
			first = at
		}
		name, _, ok := strings.Cut(f[1], "(")
		if !ok || at < first+0.5 || at > first+1.5 { // "<... futex resumed>" was counted when it began
			continue
		}
		names[name]++
		if at > last+0.05 {
			bursts++
		}
		last = at
	}
	if first == 0 && strings.Contains(out.String(), "Operation not permitted") {
		t.Skipf("strace may not attach here: %s", out.String())
	}
	if first == 0 {
		t.Fatalf("strace saw nothing: %s", out.String())
	}
	return bursts, names
}

// ignoreExit drops that a program ended with another code than 0.
func ignoreExit(err error) error {
	if _, ok := err.(*exec.ExitError); ok {
		return nil
	}
	return err
}

// A daemon has as many threads with 200 queue pairs in use as with two.
func TestThreads(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback)
	ctx := d.open("softnic0")
	use := func(n int) int {
		for range n {
			a, b := newSide(ctx, 4096), newSide(ctx, 4096)
			join(a, b)
			check(t, b.recv(1, 0, 64))
			check(t, a.send(1, 0, 64))
			check(t, a.expect(timeout(t), 1))
			check(t, b.expect(timeout(t), 1))
		}
		return status(t, d.cmd.Process.Pid, "Threads")
	}
	few := use(1)
	many := use(100)
	t.Logf("%d threads with 2 queue pairs, %d with 202", few, many)
	// The Go runtime adds a thread when one blocks in the kernel; a few more say nothing, one for each queue pair would.
	if many > few+8 {
		t.Errorf("threads: %d with 2 queue pairs, %d with 202", few, many)
	}
}

// describeProcess is what a leak would show in.
func describeProcess(t testing.TB, pid int) string {
	return fmt.Sprintf("%d KiB resident, %d descriptors, %d mappings, %d threads",
		status(t, pid, "VmRSS"), descriptors(t, pid), mapped(t, pid), status(t, pid, "Threads"))
}
