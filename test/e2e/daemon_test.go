package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// patience bounds every wait for something that takes milliseconds.
const patience = 10 * time.Second

// daemon is a running `softnicd run`.
type daemon struct {
	t      testing.TB
	socket string
	port   int
	cmd    *exec.Cmd
	stderr progtest.Buffer
	exited chan struct{} // closed when it has ended
}

// freePort finds a UDP port that nobody has, on any loopback address, and which the kernel gives to nobody by itself.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 15000 + rand.IntN(15000)
		c, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		if err == nil {
			c.Close()
			return port
		}
	}
	t.Fatal("no UDP port is free")
	return 0
}

// startDaemon starts a daemon on a port and a socket of its own and waits until it answers.
func startDaemon(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := newDaemon(t, args...)
	d.start()
	return d
}

// newDaemon prepares a daemon; the caller may still change its command.
func newDaemon(t testing.TB, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, socket: filepath.Join(t.TempDir(), "s"), port: freePort(t), exited: make(chan struct{})}
	d.cmd = exec.Command(softnicd, append([]string{"run", "--socket", d.socket, "--port", strconv.Itoa(d.port)}, args...)...)
	d.cmd.Stderr = &d.stderr
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.launch()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		_, err := verbs.Devices(verbs.WithSocket(d.socket))
		if err == nil {
			return
		}
		if d.ended() || time.Now().After(end) {
			d.t.Fatalf("the daemon does not answer: %v\n%s", err, d.stderr.String())
		}
	}
}

// launch starts the process. It ends with the test.
func (d *daemon) launch() {
	d.t.Helper()
	if d.cmd.SysProcAttr == nil {
		d.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	check(d.t, d.cmd.Start())
	go func() { d.cmd.Wait(); close(d.exited) }()
	d.t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.exited
		if d.t.Failed() {
			d.t.Logf("the daemon on port %d said:\n%s", d.port, d.stderr.String())
		}
	})
}

func (d *daemon) ended() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// wait returns the exit code, which must come within limit.
func (d *daemon) wait(limit time.Duration) int {
	d.t.Helper()
	select {
	case <-d.exited:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		d.t.Fatalf("the daemon did not end within %v\n%s", limit, d.stderr.String())
		return -1
	}
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	check(d.t, d.cmd.Process.Signal(s))
}

// stop ends the daemon as systemd would.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	if code := d.wait(2 * time.Second); code != 0 {
		d.t.Fatalf("exit code %d after SIGTERM\n%s", code, d.stderr.String())
	}
}

// open opens a device; it is closed with the test.
func (d *daemon) open(device string) *verbs.Context {
	d.t.Helper()
	ctx, err := verbs.Open(device, verbs.WithSocket(d.socket))
	check(d.t, err)
	d.t.Cleanup(func() { ctx.Close() })
	return ctx
}

// counters returns a device's counters by name.
func counters(t testing.TB, ctx *verbs.Context) map[string]uint64 {
	t.Helper()
	list, err := ctx.QueryCounters()
	check(t, err)
	m := map[string]uint64{}
	for _, c := range list {
		m[c.Name] = c.Value
	}
	return m
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, limit time.Duration, holds func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	for !holds() {
		if time.Since(begin) > limit {
			t.Fatalf("after %v still not: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// timeout is a context for one wait.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func isFatal(err error) bool { return errors.Is(err, verbs.ErrDeviceFatal) }
