package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/progtest"
)

// beSoftnicd makes of a process of this test's program softnicd itself, with its arguments.
const beSoftnicd = "SOFTNICD_TEST_BE"

func TestMain(m *testing.M) {
	if os.Getenv(beSoftnicd) != "" {
		main()
	}
	os.Exit(m.Run())
}

// On its controlling terminal top follows another size, which the kernel tells it by SIGWINCH; and control-C, which the
// terminal makes SIGINT of, and SIGTERM end it as q does: the terminal is as it was, and it is no error.
func TestTopHearsSignals(t *testing.T) {
	socket := serveCQs(t)
	for name, end := range map[string]func(user *os.File, p *os.Process) error{
		"SIGINT":  func(user *os.File, _ *os.Process) error { _, err := user.WriteString("\x03"); return err },
		"SIGTERM": func(_ *os.File, p *os.Process) error { return p.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			user, program := openTTY(t, 100, 30)
			before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			check(t, err)
			screen := watchScreen(user)
			c := exec.Command("/proc/self/exe", "top", "--socket", socket, "--interval", "10s")
			c.Env = append(os.Environ(), beSoftnicd+"=1")
			c.Stdin, c.Stdout, c.Stderr = program, program, program
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			check(t, c.Start())
			defer c.Process.Kill()
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			screen.await(t, "\x1b[7mhard")
			// In the ten seconds until its next look only the signal makes it draw.
			check(t, unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 10, Row: 8}))
			screen.await(t, "\x1b[7mhard      \x1b[0m")
			check(t, end(user, c.Process))
			select {
			case err := <-ended:
				check(t, err)
			case <-time.After(10 * time.Second):
				t.Fatal("it does not end")
			}
			after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			check(t, err)
			if *after != *before {
				t.Errorf("the terminal is another: %+v, was %+v", after, before)
			}
			screen.await(t, "\x1b[?25h\x1b[?1049l")
			if !strings.HasSuffix(strings.TrimSuffix(screen.String(), "^C"), "\x1b[?25h\x1b[?1049l") {
				t.Errorf("something follows: %q", screen.String())
			}
		})
	}
}

// watched is what a terminal was told.
type watched struct{ progtest.Buffer }

// watchScreen collects what is written to the terminal whose user's end this is.
func watchScreen(user *os.File) *watched {
	w := new(watched)
	go func() {
		var b [4096]byte
		for {
			n, err := user.Read(b[:])
			if err != nil {
				return
			}
			_, _ = w.Write(b[:n])
		}
	}()
	return w
}

func (w *watched) await(t *testing.T, s string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(w.String(), s); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in %q", s, w.String())
		}
	}
}
