package clib

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

var (
	full = flag.Bool("clib.full", false, "run the C programs without sanitizers and under valgrind too")

	softnicd string // the program under test
	folder   string // of this run, with a folder of libraries for each kind of build
	socket   string // of the daemon that all tests share
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if _, err := exec.LookPath("cc"); err != nil { // then nothing can be run but the test that says so
		if err := flag.Set("test.run", "^TestCompiler$"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	progtest.CleanEnv()
	dir, err := os.MkdirTemp("", "softnicd-clib-")
	if err == nil {
		defer os.RemoveAll(dir)
		folder, softnicd, socket = dir, filepath.Join(dir, "softnicd"), filepath.Join(dir, "socket")
		err = progtest.Build(softnicd)
	}
	var stop func()
	if err == nil {
		stop, err = startDaemon()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	return m.Run()
}

// Without a compiler there are neither libraries nor programs, and no other test runs.
func TestCompiler(t *testing.T) { progtest.Need(t, "cc") }

// taken is the exit status of a daemon whose address is another's.
const taken = 3

// startDaemon starts a daemon with one device, on a loopback address that nobody uses.
func startDaemon() (stop func(), err error) {
	for range 8 {
		address := netip.AddrFrom4([4]byte{127, byte(2 + rand.N(250)), byte(rand.N(256)), byte(1 + rand.N(254))})
		c := exec.Command(softnicd, "run", "--socket", socket, "--device", "softnic0="+address.String(), "--log-level", "warn")
		var stderr progtest.Buffer
		c.Stderr = &stderr
		if err := c.Start(); err != nil {
			return nil, err
		}
		ended := make(chan struct{})
		go func() {
			_ = c.Wait()
			close(ended)
		}()
		stop := func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			<-ended
		}
		err := answers(ended)
		if err == nil {
			return stop, nil
		}
		stop()
		if c.ProcessState.ExitCode() != taken {
			return nil, fmt.Errorf("%w: %v: %s", err, c.ProcessState, stderr.String())
		}
	}
	return nil, errors.New("no loopback address is free")
}

func answers(ended chan struct{}) error {
	for late := time.After(20 * time.Second); ; {
		if _, err := verbs.Devices(verbs.WithSocket(socket)); err == nil {
			return nil
		}
		select {
		case <-ended:
			return errors.New("the daemon ended")
		case <-late:
			return errors.New("the daemon does not answer")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// output runs a program, and returns what it has printed.
func output(c *exec.Cmd) (string, error) {
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() < 0 {
		err = fmt.Errorf("%w (%s)", err, exit.ProcessState)
	}
	return string(out), err
}
