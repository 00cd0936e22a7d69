package interop

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// softnicd is the program under test. Its libraries are compiled once.
var softnicd string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "softnicd-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	progtest.CleanEnv()
	softnicd = filepath.Join(dir, "bin", "softnicd")
	if err := progtest.Build(softnicd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := exec.LookPath("cc"); err != nil { // then nothing can be run but the test that says so
		flag.Parse()
		if err := flag.Set("test.run", "^TestCompiler$"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	// As a package would install them: then exec finds them without a variable.
	if out, err := exec.Command(softnicd, "libs", "--dir", filepath.Join(dir, "lib", "softnicd")).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "softnicd libs: %v\n%s", err, out)
		return 1
	}
	defer stopDaemons()
	return m.Run()
}

// Without a compiler there are no libraries for exec, and no other test runs.
func TestCompiler(t *testing.T) { progtest.Need(t, "cc") }

// daemon is one NIC with one device.
type daemon struct {
	socket  string
	address netip.Addr
	cmd     *exec.Cmd
	stderr  bytes.Buffer
	ended   chan error
}

// daemons are the two that all tests share: programs come and go.
var daemons = sync.OnceValues(func() ([2]*daemon, error) {
	var d [2]*daemon
	for i := range d {
		var err error
		if d[i], err = startDaemon(); err != nil {
			return d, err
		}
	}
	return d, nil
})

var started []*daemon

// network is the first half of all addresses: LIDs are the second.
var network = [2]byte{127, byte(2 + rand.N(250))}

// startDaemon starts a daemon on a loopback address that nobody uses. Programs ask for a timeout of 67 ms and 7 retries: where
// more threads spin than there are processors a daemon may get none for half a second, and its peer would take it for dead.
func startDaemon() (*daemon, error) {
	dir, err := os.MkdirTemp("", "softnicd-interop-daemon-")
	if err != nil {
		return nil, err
	}
	for range 8 {
		d := &daemon{socket: filepath.Join(dir, "softnicd.sock"), ended: make(chan error, 1)}
		d.address = netip.AddrFrom4([4]byte{network[0], network[1], byte(rand.N(256)), byte(1 + rand.N(254))})
		d.cmd = exec.Command(softnicd, "run", "--socket", d.socket, "--device", "softnic0="+d.address.String(), "--log-level", "warn", "--ack-floor", "1s")
		d.cmd.Stderr = &d.stderr
		d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := d.cmd.Start(); err != nil {
			return nil, err
		}
		go func() { d.ended <- d.cmd.Wait() }()
		err := d.answer()
		if err == nil {
			started = append(started, d)
			return d, nil
		}
		if d.cmd.ProcessState == nil || d.cmd.ProcessState.ExitCode() != 3 { // the address is taken
			return nil, err
		}
	}
	return nil, errors.New("no loopback address is free")
}

func (d *daemon) answer() error {
	late := time.After(20 * time.Second)
	for {
		if _, err := verbs.Devices(verbs.WithSocket(d.socket)); err == nil {
			return nil
		}
		select {
		case err := <-d.ended:
			d.ended <- err
			return fmt.Errorf("the daemon ended: %v: %s", err, d.stderr.String())
		case <-late:
			return errors.New("the daemon does not answer")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func stopDaemons() {
	for _, d := range started {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, d := range started {
		select {
		case <-d.ended:
		case <-time.After(5 * time.Second):
			_ = d.cmd.Process.Kill()
			<-d.ended
		}
		os.RemoveAll(filepath.Dir(d.socket))
	}
}

// program is one process under softnicd exec.
type program struct {
	args   []string
	cmd    *exec.Cmd
	out    progtest.Buffer
	ended  chan struct{}
	result error
}

// start runs a program under exec with a daemon.
func start(t *testing.T, socket string, args ...string) *program {
	t.Helper()
	return startExec(t, []string{"--socket", socket}, args...)
}

// startExec runs a program under exec with some flags. It ends with the test at the latest, with whatever it started.
func startExec(t *testing.T, flags []string, args ...string) *program {
	t.Helper()
	p := &program{args: args, ended: make(chan struct{})}
	p.cmd = exec.Command(softnicd, slices.Concat([]string{"exec"}, flags, []string{"--"}, args)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), p.out.String())
		}
	})
	return p
}

// kill ends the program's group, which is of this test alone.
func (p *program) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.ended
}

// wait waits for the end.
func (p *program) wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.result
	case <-ctx.Done():
		return fmt.Errorf("%s does not end: %w", p.args[0], context.Cause(ctx))
	}
}

// freePort returns a TCP port on which nobody listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// listens waits until a process listens on a TCP port, without a connection that the listener would take for its peer.
func (p *program) listens(ctx context.Context, port int) error {
	for !nettest.Listening(port) {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended before it listened: %v", p.args[0], p.result)
		case <-ctx.Done():
			return fmt.Errorf("%s does not listen on port %d", p.args[0], port)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
