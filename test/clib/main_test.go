package clib

import (
	"bytes"
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
	if _, err := exec.LookPath("cc"); err != nil {
		fmt.Fprintln(os.Stderr, "clib: cc is missing, so nothing can be run")
		if os.Getenv("CI") == "true" {
			return 1
		}
		return 0
	}
	for _, name := range []string{"SOCKET", "DEVICE", "CONFIG", "PORT", "CAPTURE", "LOG_LEVEL", "RECLAIM", "LINK", "LIBS", "SYSFS"} {
		os.Unsetenv("SOFTNICD_" + name)
	}
	dir, err := os.MkdirTemp("", "softnicd-clib-")
	if err == nil {
		defer os.RemoveAll(dir)
		folder, softnicd, socket = dir, filepath.Join(dir, "softnicd"), filepath.Join(dir, "socket")
		err = build()
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

func build() error {
	c := exec.Command("go", "build", "-o", softnicd, "../../cmd/softnicd")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// startDaemon starts a daemon with one device, on a loopback address that nobody uses.
func startDaemon() (stop func(), err error) {
	for range 8 {
		address := netip.AddrFrom4([4]byte{127, byte(2 + rand.N(250)), byte(rand.N(256)), byte(1 + rand.N(254))})
		c := exec.Command(softnicd, "run", "--socket", socket, "--device", "softnic0="+address.String(), "--log-level", "warn")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		if err := c.Start(); err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		if answers(ended) {
			return func() {
				_ = c.Process.Signal(syscall.SIGTERM)
				<-ended
			}, nil
		}
		_ = c.Process.Kill()
		err = fmt.Errorf("the daemon does not answer: %s", stderr.String())
	}
	return nil, err
}

func answers(ended chan error) bool {
	for late := time.After(20 * time.Second); ; {
		if _, err := verbs.Devices(verbs.WithSocket(socket)); err == nil {
			return true
		}
		select {
		case err := <-ended:
			ended <- err
			return false
		case <-late:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// missing ends a test for want of a program. In CI everything has to be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing: scripts/test-deps installs it", what)
	}
	t.Skipf("%s is missing", what)
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
