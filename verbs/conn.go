package verbs

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
)

// socketConn is a session with a daemon. One goroutine reads: it hands replies to those who wait for them, and learns by
// the end of the socket that the daemon is gone.
type socketConn struct {
	c    *net.UnixConn
	raw  syscall.RawConn
	done chan struct{}

	mu    sync.Mutex // also: one message is sent at a time
	tag   uint32
	calls map[uint32]chan answer
	ended bool
}

type answer struct {
	msg []byte
	out []ctl.Attachment
}

// dial connects to the control socket.
func dial(path string) (*socketConn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w at %s: start one with \"softnicd run\", or name its socket in %s: %w",
			ErrNoDaemon, path, socketVariable, errnoOf(err))
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("control socket %s: this user may not connect; its group may (add the user to it): %w", path, syscall.EACCES)
	case err != nil:
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	s := &socketConn{c: c, raw: raw, done: make(chan struct{}), calls: map[uint32]chan answer{}}
	go s.read()
	return s, nil
}

func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Call implements ctl.Conn.
func (s *socketConn) Call(op ctl.Op, request, reply any, attach ...ctl.Attachment) ([]ctl.Attachment, error) {
	wait := make(chan answer, 1)
	tag, err := s.send(op, request, attach, wait)
	if err != nil {
		return nil, err
	}
	a, ok := <-wait
	if !ok {
		return nil, ErrDeviceFatal
	}
	if err := ctl.Reply(op, tag, a.msg, reply); err != nil {
		closeAttachments(a.out)
		return nil, err
	}
	return a.out, nil
}

func (s *socketConn) send(op ctl.Op, request any, attach []ctl.Attachment, wait chan answer) (tag uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0, ErrDeviceFatal
	}
	s.tag++
	tag = s.tag
	msg, err := ctl.Append(nil, op, tag, 0, request)
	if err != nil {
		return 0, err
	}
	var fds []int
	for _, a := range attach {
		fds = append(fds, a.FD)
	}
	s.calls[tag] = wait
	e := s.raw.Write(func(fd uintptr) bool {
		err = shm.SendMsg(int(fd), msg, fds...)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(err, e); err != nil {
		delete(s.calls, tag)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
			err = ErrDeviceFatal
		}
		return 0, err
	}
	return tag, nil
}

// read hands out replies until the daemon is gone or the connection is closed.
func (s *socketConn) read() {
	buf := make([]byte, ctl.MaxMessage)
	var fds [ctl.MaxDescriptors]int
	for {
		var n, nfds int
		var err error
		e := s.raw.Read(func(fd uintptr) bool {
			n, nfds, err = shm.RecvMsg(int(fd), buf, fds[:], nil)
			return !errors.Is(err, unix.EAGAIN)
		})
		if e != nil || err != nil || n == 0 {
			break
		}
		a := answer{msg: append([]byte(nil), buf[:n]...)}
		for _, fd := range fds[:nfds] {
			a.out = append(a.out, ctl.Attachment{FD: fd})
		}
		h, _, _ := ctl.Split(a.msg)
		s.mu.Lock()
		wait, ok := s.calls[h.Tag]
		delete(s.calls, h.Tag)
		s.mu.Unlock()
		if !ok {
			closeAttachments(a.out)
			if h.Tag == 0 && h.Errno != 0 {
				break // turned away before any request
			}
			continue
		}
		wait <- a
	}
	s.mu.Lock()
	s.ended = true
	for _, wait := range s.calls {
		close(wait)
	}
	s.calls = nil
	s.mu.Unlock()
	close(s.done)
	s.c.Close()
}

// Done implements ctl.Conn.
func (s *socketConn) Done() <-chan struct{} { return s.done }

// Close implements ctl.Conn.
func (s *socketConn) Close() error {
	s.c.Close()
	<-s.done
	return nil
}

func closeAttachments(list []ctl.Attachment) {
	for _, a := range list {
		if a.FD >= 0 {
			unix.Close(a.FD)
		}
	}
}
