package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
)

// Config is what a server is made of.
type Config struct {
	Devices []*Device
	Log     *slog.Logger // nil: nothing is logged
	Quota   Quota        // for foreign users; the zero value means DefaultQuota
	// Owner is the user who has the limits of the device and may register memory of its own processes; nil means the user
	// that the daemon runs as.
	Owner *uint32
}

// Server serves any number of applications.
type Server struct {
	cfg     Config
	owner   uint32
	reserve *os.File // given up for a moment when descriptors run out, see accept
	started time.Time
	journal journal
	unwatch func()

	mu        sync.Mutex
	closing   bool
	listeners map[*net.UnixListener]struct{}
	sessions  map[*Session]*net.UnixConn // nil for embedded ones
	running   sync.WaitGroup
}

// New makes a server for devices that have been started.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Quota == (Quota{}) {
		cfg.Quota = DefaultQuota()
	}
	reserve, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	s := &Server{
		cfg: cfg, owner: uint32(os.Geteuid()), reserve: reserve, started: time.Now(),
		listeners: map[*net.UnixListener]struct{}{}, sessions: map[*Session]*net.UnixConn{},
	}
	if cfg.Owner != nil {
		s.owner = *cfg.Owner
	}
	s.unwatch = s.journal.watch(cfg.Devices)
	return s, nil
}

// ErrServerClosed is what Serve returns after Shutdown.
var ErrServerClosed = errors.New("control: server closed")

// Serve accepts applications until Shutdown. It closes l.
func (s *Server) Serve(l *net.UnixListener) error {
	defer l.Close()
	s.mu.Lock()
	closing := s.closing
	if !closing {
		s.listeners[l] = struct{}{}
	}
	s.mu.Unlock()
	for !closing {
		c, err := s.accept(l)
		s.mu.Lock()
		if closing = s.closing; err == nil && !closing {
			s.running.Add(1)
		}
		s.mu.Unlock()
		switch {
		case closing:
			if err == nil {
				c.Close()
			}
		case err != nil:
			return fmt.Errorf("control: accept: %w", err)
		default:
			go s.serve(c)
		}
	}
	return ErrServerClosed
}

// accept waits for a connection. When the process has no descriptors left, a connection that cannot be accepted would stay
// at the head of the queue and accept would spin: one reserve descriptor is enough to take it and turn it away.
func (s *Server) accept(l *net.UnixListener) (*net.UnixConn, error) {
	for {
		c, err := l.AcceptUnix()
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			s.cfg.Log.Warn("out of descriptors, turning an application away", "err", err)
			s.reserve.Close()
			l.SetDeadline(time.Now().Add(10 * time.Millisecond)) // it may have gone by itself
			if c, err := l.AcceptUnix(); err == nil {
				c.Close()
			}
			l.SetDeadline(time.Time{})
			if f, err := os.Open(os.DevNull); err == nil {
				s.reserve = f
			}
			time.Sleep(100 * time.Millisecond)
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
		case errors.Is(err, os.ErrDeadlineExceeded):
		default:
			return nil, err
		}
	}
}

// NewSession makes a session without a socket, for an application in this process. The caller closes it.
func (s *Server) NewSession() (*Session, error) {
	peer := Peer{UID: s.owner, GID: uint32(os.Getegid()), PID: os.Getpid(), Embedded: true}
	v := newSession(peer, false, s.cfg.Devices, s.cfg.Quota, s.cfg.Log)
	v.ended, v.server = func() { s.remove(v) }, s
	if err := s.add(v, nil); err != nil {
		return nil, err
	}
	return v, nil
}

// maxForeignSessions is how many connections a foreign user may have, with or without an open device.
const maxForeignSessions = 64

// add enters a session.
func (s *Server) add(v *Session, c *net.UnixConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return fmt.Errorf("the daemon is shutting down: %w", syscall.ESHUTDOWN)
	}
	if v.foreign {
		n := 0
		for o := range s.sessions {
			if o.peer.UID == v.peer.UID {
				n++
			}
		}
		if n >= maxForeignSessions {
			return fmt.Errorf("user %d has %d sessions, the most allowed: %w", v.peer.UID, n, syscall.EDQUOT)
		}
	}
	s.sessions[v] = c
	return nil
}

func (s *Server) remove(v *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, v)
}

// count returns how many sessions there are.
func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// snapshot returns the sessions of this moment.
func (s *Server) snapshot() map[*Session]*net.UnixConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[*Session]*net.UnixConn, len(s.sessions))
	for v, c := range s.sessions {
		m[v] = c
	}
	return m
}

// Shutdown takes the devices down in good order: no new applications; queue pairs to the error state, what was posted
// flushed, DEVICE_FATAL to everybody (nic.Device.Drain); those events delivered; end of all sessions. When ctx ends, what is left is
// cut short. The devices are the caller's to close afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	already := s.closing
	s.closing = true
	for l := range s.listeners {
		l.Close()
	}
	s.mu.Unlock()
	if already {
		return ErrServerClosed
	}
	s.journal.add(ctl.Event{Kind: ctl.EventDraining})
	var errs []error
	for _, d := range s.cfg.Devices {
		errs = append(errs, d.NIC.Drain(ctx))
	}
	s.deliver(ctx)
	for v, c := range s.snapshot() {
		if c != nil {
			c.Close() // its own goroutine closes the session
		} else {
			v.Close()
		}
	}
	if !s.ended(ctx) {
		errs = append(errs, fmt.Errorf("control: sessions are still ending: %w", ctx.Err()))
	}
	s.unwatch()
	errs = append(errs, s.reserve.Close())
	return errors.Join(errs...)
}

// endPatience is how long sessions have to end though ctx did: an application that never reads its events takes all of ctx, and
// the others need a moment after it.
const endPatience = 5 * time.Second

// ended waits until all sessions have ended.
func (s *Server) ended(ctx context.Context) bool {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(endPatience):
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// deliver waits until no application has events pending, or ctx ends: some may never read theirs.
func (s *Server) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		pending := false
		for v := range s.snapshot() {
			pending = pending || v.pending()
		}
		if !pending {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pending reports whether events wait for the application to read others.
func (s *Session) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.async == nil || s.closed {
		return false
	}
	for _, ch := range s.channels.m {
		if ch.box.pending() {
			return true
		}
	}
	return s.async.box.pending()
}

// closeFD is for descriptors whose error nobody can do anything about.
func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
