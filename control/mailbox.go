package control

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mailbox is the daemon's end of the socket pair on which an application reads events. The application may be slow,
// stopped or hostile, so nobody here ever waits for it: an event is sent with MSG_DONTWAIT, a flag of the call that the
// application cannot change, and what finds the socket full stays with its maker until a goroutine, which there is only
// while the socket is full, has seen it writable again.
//
// Its user holds mu, records the event, and calls push.
type mailbox struct {
	mu   sync.Mutex
	next nextEvent

	fd      int
	file    *os.File // owns fd, registered with the poller
	raw     syscall.RawConn
	message [16]byte
	full    bool
	closed  bool
}

// nextEvent writes the oldest pending event into message and reports whether there was one. Once it is sent, sent is
// called. Both run with mu held.
type nextEvent interface {
	peek(message []byte) bool
	sent()
}

// newMailbox returns a mailbox and the application's end, which the caller hands over and closes. SEQPACKET keeps the
// borders of events, and its end tells an application that the daemon is gone.
func newMailbox(name string, next nextEvent) (*mailbox, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("%s: socket pair: %w", name, err)
	}
	m := &mailbox{next: next, fd: pair[0], file: os.NewFile(uintptr(pair[0]), name)}
	if m.raw, err = m.file.SyscallConn(); err != nil {
		m.file.Close()
		unix.Close(pair[1])
		return nil, -1, fmt.Errorf("%s: %w", name, err)
	}
	return m, pair[1], nil
}

// push sends what is pending, as far as there is room. The caller holds mu. It does not allocate unless it finds the
// socket newly full.
func (m *mailbox) push() {
	if m.full || m.closed {
		return
	}
	if m.send() != nil {
		m.full = true
		go m.drain()
	}
}

// send sends until nothing is pending, and returns an error when it has to be tried again: EAGAIN when the socket is full,
// something else when the system is out of memory. The caller holds mu.
func (m *mailbox) send() error {
	for !m.closed && m.next.peek(m.message[:]) {
		switch err := unix.Sendto(m.fd, m.message[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil); err {
		case nil:
			m.next.sent()
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return err
		default:
			// The application closed its end: it wants no more events.
			m.closed = true
		}
	}
	return nil
}

// drain waits in the poller until the socket takes everything that is pending, or is closed.
func (m *mailbox) drain() {
	for retry := true; retry; {
		retry = false
		m.raw.Write(func(uintptr) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			err := m.send()
			m.full = err != nil
			// Only a socket that was full becomes writable. For memory nobody calls back.
			retry = err != nil && !errors.Is(err, unix.EAGAIN)
			return !errors.Is(err, unix.EAGAIN)
		})
		if retry {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// pending reports whether events wait for room.
func (m *mailbox) pending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full && !m.closed
}

// close ends the socket. What was sent can still be read; what was not is dropped.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.file.Close()
}
