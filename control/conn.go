package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
)

// serve is the goroutine of one application's connection: it waits in the poller for requests, one after the other, and
// ends the session when the application closes the socket, dies, or makes it panic.
func (s *Server) serve(c *net.UnixConn) {
	defer s.running.Done()
	defer c.Close()
	t, err := newTransport(c)
	if err != nil {
		s.cfg.Log.Warn("connection refused", "err", err)
		return
	}
	peer, life, err := t.peer()
	if err != nil {
		s.cfg.Log.Warn("connection refused", "err", err)
		return
	}
	v := newSession(peer, peer.UID != s.owner, s.cfg.Devices, s.cfg.Quota, s.cfg.Log)
	v.server = s
	if err := s.add(v, c); err != nil {
		closeFD(life)
		s.cfg.Log.Warn("connection refused", "uid", peer.UID, "pid", peer.PID, "err", err)
		t.reply(refuse(ctl.Header{}, err), nil)
		return
	}
	defer s.remove(v)
	defer v.guarded(v.Close)
	watch, err := watchProcess(life, c)
	if err != nil {
		s.cfg.Log.Warn("connection refused", "uid", peer.UID, "pid", peer.PID, "err", err)
		return
	}
	if watch != nil {
		defer watch.Close()
	}
	v.guarded(func() { v.converse(t) })
}

// watchProcess closes c when the process behind a pidfd ends. The socket itself does not tell: a forked child holds it
// too. Closing the file that is returned ends the watch.
func watchProcess(pidfd int, c *net.UnixConn) (*os.File, error) {
	if pidfd < 0 {
		return nil, nil
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil, fmt.Errorf("watch the process: %w", err)
	}
	f := os.NewFile(uintptr(pidfd), "pidfd")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("watch the process: %w", err)
	}
	go func() {
		ended := false
		raw.Read(func(fd uintptr) bool {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, 0)
			ended = n > 0
			return ended || err != nil && err != unix.EINTR
		})
		if ended {
			c.Close()
		}
	}()
	return f, nil
}

// converse answers requests until the connection ends.
func (s *Session) converse(t *transport) {
	var limit *bucket
	if s.foreign {
		limit = newBucket(s.quota.RequestRate, s.quota.RequestBurst)
	}
	for {
		msg, in, err := t.receive(s.closer)
		if limit != nil && msg != nil {
			if d := limit.take(time.Now()); d > 0 {
				time.Sleep(d)
			}
		}
		switch {
		case msg == nil:
			return
		case err != nil:
			// The message is gone but for its beginning; what came with it is closed.
			if !t.reply(refuse(header(msg), err), nil) {
				return
			}
		default:
			reply, out := s.Handle(msg, in)
			ok := t.reply(reply, out)
			closeAll(out)
			if !ok {
				return
			}
		}
	}
}

// header reads what there is of a header, for the tag of a refusal.
func header(msg []byte) ctl.Header {
	h, _, _ := ctl.Split(msg)
	return h
}

// transport is a connection seen as messages with descriptors.
type transport struct {
	raw syscall.RawConn
	buf [ctl.MaxMessage]byte
	fds [ctl.MaxDescriptors]int
}

func newTransport(c *net.UnixConn) (*transport, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &transport{raw: raw}, nil
}

// peer returns who connected, and a pidfd of that process; -1 if it cannot be seen from here.
func (t *transport) peer() (p Peer, pidfd int, err error) {
	pidfd = -1
	e := t.raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = shm.PeerCredentials(int(fd)); err != nil {
			return
		}
		p = Peer{UID: cred.Uid, GID: cred.Gid, PID: int(cred.Pid)}
		if pidfd, err = shm.PeerPidfd(int(fd)); errors.Is(err, unix.ESRCH) && cred.Pid <= 0 {
			pidfd, err = -1, nil // in another process namespace: the end of the socket has to do
		}
	})
	return p, pidfd, errors.Join(err, e)
}

// receive returns the next message, nil when the connection has ended. An error comes with what is left of a message that
// was wrong as a whole: too long, or with descriptors too many or lost on the way.
func (t *transport) receive(c *shm.Closer) (msg []byte, in []ctl.Attachment, err error) {
	clear(t.buf[:ctl.HeaderSize])
	var n, nfds int
	if e := t.raw.Read(func(fd uintptr) bool {
		n, nfds, err = shm.RecvMsg(int(fd), t.buf[:], t.fds[:], c)
		return !errors.Is(err, unix.EAGAIN)
	}); e != nil {
		return nil, nil, e
	}
	switch {
	case errors.Is(err, unix.EMSGSIZE), errors.Is(err, shm.ErrDescriptors):
		if !errors.Is(err, unix.EMSGSIZE) {
			err = fmt.Errorf("%w: %w", err, syscall.EINVAL)
		}
		return t.buf[:ctl.HeaderSize], nil, err
	case err != nil, n == 0:
		return nil, nil, err
	}
	for _, fd := range t.fds[:nfds] {
		in = append(in, ctl.Attachment{FD: fd})
	}
	return t.buf[:n], in, nil
}

// reply sends a message and reports whether the connection still stands. It waits in the poller for a peer that does not
// read.
func (t *transport) reply(msg []byte, out []ctl.Attachment) bool {
	var fds [ctl.MaxDescriptors]int
	n := 0
	for _, a := range out {
		if a.FD >= 0 {
			fds[n] = a.FD
			n++
		}
	}
	var err error
	e := t.raw.Write(func(fd uintptr) bool {
		err = shm.SendMsg(int(fd), msg, fds[:n]...)
		return !errors.Is(err, unix.EAGAIN)
	})
	return e == nil && err == nil
}
