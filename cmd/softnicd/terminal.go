package main

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is a screen of its own with keys that come as they are pressed. What was on the terminal before is there again
// after close.
type terminal struct {
	in, out *os.File
	saved   unix.Termios
	keys    chan string    // pressed: a letter, or up, down, left, right, pgup, pgdown, esc
	resized chan os.Signal // the terminal has another size
	done    chan struct{}
	ended   chan struct{} // nobody reads the keyboard any more
}

// newTerminal takes the terminal over. Control-C stays the interrupt that it is.
func newTerminal(in, out *os.File) (*terminal, error) {
	saved, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t := &terminal{
		in: in, out: out, saved: *saved, keys: make(chan string), resized: make(chan os.Signal, 1),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	raw := *saved
	raw.Lflag &^= unix.ICANON | unix.ECHO
	// A read that waits for at most a tenth of a second, so that whoever reads can be told to stop.
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	go t.read()
	if err := t.write("\x1b[?1049h\x1b[?25l"); err != nil { // the other screen, no cursor
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// close gives the terminal back.
func (t *terminal) close() error {
	close(t.done)
	<-t.ended
	signal.Stop(t.resized)
	return errors.Join(t.write("\x1b[?25h\x1b[?1049l"), unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &t.saved))
}

// size returns columns and lines; 0 if the terminal does not say.
func (t *terminal) size() (width, height int) {
	w, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(w.Col), int(w.Row)
}

// draw puts lines on the screen in place of what is there.
func (t *terminal) draw(lines []string) error {
	// Each line's rest is cleared, and then what is below: nothing flickers.
	return t.write("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
}

func (t *terminal) write(s string) error {
	_, err := t.out.WriteString(s)
	return err
}

// read hands out keys until close, or until the terminal is gone.
func (t *terminal) read() {
	defer close(t.ended)
	var b [64]byte
	for {
		n, err := unix.Read(int(t.in.Fd()), b[:])
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return
		}
		for _, k := range keysIn(b[:max(n, 0)]) {
			select {
			case t.keys <- k:
			case <-t.done:
				return
			}
		}
		select {
		case <-t.done:
			return
		default:
		}
	}
}

// sequences are what terminals send for keys that are no letters.
var sequences = []struct{ bytes, name string }{
	{"\x1b[A", "up"}, {"\x1b[B", "down"}, {"\x1b[C", "right"}, {"\x1b[D", "left"},
	{"\x1bOA", "up"}, {"\x1bOB", "down"}, {"\x1bOC", "right"}, {"\x1bOD", "left"},
	{"\x1b[5~", "pgup"}, {"\x1b[6~", "pgdown"},
}

// keysIn returns the keys that were read at once. A sequence that is none of these is skipped up to its end.
func keysIn(b []byte) (keys []string) {
	for len(b) > 0 {
		known := false
		for _, s := range sequences {
			if known = bytes.HasPrefix(b, []byte(s.bytes)); known {
				keys, b = append(keys, s.name), b[len(s.bytes):]
				break
			}
		}
		switch {
		case known:
		case b[0] == '\x1b' && len(b) > 1 && (b[1] == '[' || b[1] == 'O'):
			// ECMA-48 5.4: parameters and intermediates, then one byte from @ on.
			n := 2
			for n < len(b) && b[n] < '@' {
				n++
			}
			b = b[min(n+1, len(b)):]
		case b[0] == '\x1b':
			keys, b = append(keys, "esc"), b[1:]
		default:
			keys, b = append(keys, string(b[:1])), b[1:]
		}
	}
	return keys
}
