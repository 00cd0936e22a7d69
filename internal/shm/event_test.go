package shm

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEvent(t *testing.T) {
	noLeak(t)
	fd := must[int](t)(NewEvent())
	defer unix.Close(fd)
	readable := func() bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n == 1
	}
	if readable() {
		t.Error("readable from the start")
	}
	for range 3 {
		if err := Ring(fd); err != nil {
			t.Fatal(err)
		}
	}
	if !readable() {
		t.Error("not readable after the ring")
	}
	if err := errors.Join(Drain(fd), Drain(fd)); err != nil || readable() {
		t.Error("readable after the drain", err)
	}
	full := [8]byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(fd, full[:]); err == nil {
		if err := Ring(fd); err != nil {
			t.Errorf("ring of a full counter: %v", err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Ring(fd); Drain(fd) }); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
	if Ring(-1) == nil || Drain(-1) == nil {
		t.Error("no error of a bad descriptor")
	}
}

// Who watches for edges and never reads hears every ring, however many there were.
func TestRingManyTimes(t *testing.T) {
	fd, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	const edge = 1 << 31
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | edge}); err != nil {
		t.Fatal(err)
	}
	var events [1]unix.EpollEvent
	for i := range 1000 {
		if err := Ring(fd); err != nil {
			t.Fatal(err)
		}
		if n, err := unix.EpollWait(ep, events[:], 1000); n != 1 || err != nil {
			t.Fatalf("ring %d: %d events, %v", i, n, err)
		}
	}
}
