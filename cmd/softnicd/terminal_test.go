package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/internal/progtest"
)

func TestKeysIn(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "",
		"q":                        "q",
		"\x1b":                     "esc",
		"\x1b\x1b":                 "esc esc",
		"\x1b[A\x1b[Bj\x1bOA":      "up down j up",
		"\x1b[5~\x1b[6~":           "pgup pgdown",
		"\x1b[1;5Cq":               "q", // control and right: nothing here
		"\x1b[":                    "",
		"\x1b[9999999":             "",
		"\x1b]11;rgb:0/0/0\x1b\\q": "esc ] 1 1 ; r g b : 0 / 0 / 0 esc \\ q",
	} {
		if got := strings.Join(keysIn([]byte(in)), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// openTTY returns the two ends of a pseudo terminal.
func openTTY(t *testing.T, columns, lines uint16) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals: ", err)
	}
	t.Cleanup(func() { user.Close() })
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	check(t, err)
	check(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals: ", err)
	}
	t.Cleanup(func() { program.Close() })
	check(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}))
	return user, program
}

// On a terminal: keys choose, another size is followed, q ends and leaves the terminal as it was.
func TestTopOnTerminal(t *testing.T) {
	user, program := openTTY(t, 100, 30)
	before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	check(t, err)
	var screen progtest.Buffer
	go func() {
		var b [4096]byte
		for {
			n, err := user.Read(b[:])
			if err != nil {
				return
			}
			screen.Write(b[:n])
		}
	}()
	socket := serveCQs(t)
	root := newRoot()
	root.SetIn(program)
	root.SetOut(program)
	root.SetArgs([]string{"top", "--socket", socket, "--interval", "50ms"})
	ended := make(chan error, 1)
	go func() { ended <- root.ExecuteContext(t.Context()) }()
	shown := func(s string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !strings.Contains(screen.String(), s); time.Sleep(5 * time.Millisecond) {
			select {
			case err := <-ended:
				t.Fatalf("it ended: %v", err)
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("no %q in %q", s, screen.String())
			}
		}
	}
	shown("\x1b[7mhard")
	user.WriteString("\x1b[B")
	shown("\x1b[7msoft")
	check(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 10, Row: 8}))
	shown("\x1b[7msoft      \x1b[0m")
	user.WriteString("q")
	select {
	case err := <-ended:
		check(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("q does not end it")
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	check(t, err)
	if *after != *before {
		t.Errorf("the terminal is another: %+v, was %+v", after, before)
	}
	// Its last words are for the terminal: the cursor, and the screen as it was.
	for end := time.Now().Add(10 * time.Second); !strings.HasSuffix(screen.String(), "\x1b[?25h\x1b[?1049l"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s := screen.String()
			t.Fatalf("the screen was not given back: %q", s[max(len(s)-60, 0):])
		}
	}
}
