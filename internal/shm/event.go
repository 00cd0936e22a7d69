package shm

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// NewEvent makes an eventfd: a descriptor that is readable after it was rung. It does not block, but a process it was
// passed to may change that, so whoever must not block does nothing with it but watch (epoll, edge-triggered).
func NewEvent() (fd int, err error) {
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	return fd, nil
}

// one is the number 1 in the machine's byte order. An eventfd adds it, and where nobody ever reads the counter must not
// fill up: a full one takes no ring any more, and wakes nobody who watches for edges.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Ring makes the eventfd readable. An eventfd whose counter is full is readable already.
func Ring(fd int) error {
	for {
		switch _, err := unix.Write(fd, one); err {
		case unix.EINTR:
		case unix.EAGAIN:
			return nil
		default:
			return err
		}
	}
}

// Drain takes what was rung, so that the eventfd is readable only after the next ring.
func Drain(fd int) error {
	var b [8]byte
	for {
		switch _, err := unix.Read(fd, b[:]); err {
		case unix.EINTR:
		case unix.EAGAIN:
			return nil
		default:
			return err
		}
	}
}
