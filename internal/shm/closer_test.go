package shm

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A descriptor whose close blocks holds up nobody but the session of who sent it.
func TestCloserDoesNotWait(t *testing.T) {
	noLeak(t)
	c := NewCloser(2)
	slow := lingering(t)
	start := time.Now()
	c.Close(slow)
	if d := time.Since(start); d > 500*time.Millisecond {
		t.Errorf("close took %v", d)
	}
	quick := must[int](t)(NewEvent())
	c.Close(quick) // behind it, and the limit is reached
	if d := time.Since(start); d > 500*time.Millisecond {
		t.Errorf("close of two took %v", d)
	}
	third := must[int](t)(NewEvent())
	c.Close(third)
	if d := time.Since(start); d < 500*time.Millisecond {
		t.Errorf("the third did not wait: %v", d)
	}
	c.Wait()
}

// lingering is a TCP socket whose close waits a second for its peer to take data, which it does not.
func lingering(t *testing.T) int {
	t.Helper()
	ln := must[int](t)(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	closing(t, ln)
	if err := errors.Join(unix.Bind(ln, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(ln, 1)); err != nil {
		t.Fatal(err)
	}
	addr := must[unix.Sockaddr](t)(unix.Getsockname(ln))
	s := must[int](t)(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	if err := unix.Connect(s, addr); err != nil {
		t.Fatal(err)
	}
	peer, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	closing(t, peer)
	unix.SetNonblock(s, true)
	for buf := make([]byte, 1<<16); ; {
		if _, err := unix.Write(s, buf); err != nil {
			break
		}
	}
	unix.SetNonblock(s, false)
	if err := unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1}); err != nil {
		t.Fatal(err)
	}
	return s
}
