package control

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
	"github.com/softnic/softnicd/nic"
)

// Peer is who is at the other end of a session.
type Peer struct {
	UID, GID uint32
	PID      int // 0 if it cannot be seen from here
	// Embedded says that the application is this process: attachments are memory.
	Embedded bool
}

// Session is one application's hold on a device. Its methods may be called from several goroutines.
type Session struct {
	peer    Peer
	foreign bool // of another user than the daemon's own
	devices []*Device
	quota   Quota
	log     *slog.Logger
	closer  *shm.Closer
	ended   func()  // tells the server
	server  *Server // nil in tests that do without
	done    chan struct{}

	mu           sync.Mutex
	closed       bool
	subscribed   bool // to the daemon's events, by the socket subscription
	dev          *Device
	ctx          *nic.Context
	bell         []byte // doorbell page, mapped
	async        *async
	process      *shm.Process // the application's address space, once it was needed
	descriptors  int          // held for this session
	record       *recorder    // of the context's events
	subscription int
	arenas       table[*arena]
	domains      table[*nic.PD]
	regions      table[*region]
	windows      table[*nic.MW]
	channels     table[*channel]
	queues       table[*queue]
	pools        table[*pool]
	pairs        table[*pair]
	addresses    table[*nic.AH]
	extended     table[*extended]
}

func newSession(peer Peer, foreign bool, devices []*Device, quota Quota, log *slog.Logger) *Session {
	return &Session{
		peer:      peer,
		foreign:   foreign,
		devices:   devices,
		quota:     quota,
		log:       log,
		closer:    shm.NewCloser(ctl.MaxDescriptors),
		done:      make(chan struct{}),
		arenas:    newTable[*arena]("arena"),
		domains:   newTable[*nic.PD]("protection domain"),
		regions:   newTable[*region]("memory region"),
		windows:   newTable[*nic.MW]("memory window"),
		channels:  newTable[*channel]("completion channel"),
		queues:    newTable[*queue]("completion queue"),
		pools:     newTable[*pool]("shared receive queue"),
		pairs:     newTable[*pair]("queue pair"),
		addresses: newTable[*nic.AH]("address handle"),
		extended:  newTable[*extended]("XRC domain"),
	}
}

// Handle answers one request. The attachments become the session's, whatever it answers; those of the reply are the
// caller's to pass on and close.
func (s *Session) Handle(msg []byte, in []ctl.Attachment) (reply []byte, out []ctl.Attachment) {
	given := attachments{list: in, closer: s.closer}
	defer given.close()
	h, body, err := ctl.Split(msg)
	if err == nil && h.Version != ctl.Version {
		err = fmt.Errorf("the daemon speaks version %d of the control protocol, this program %d: %w",
			ctl.Version, h.Version, syscall.EPROTONOSUPPORT)
	}
	if err != nil {
		return refuse(h, err), nil
	}
	op, ok := operations[h.Op]
	if !ok {
		return refuse(h, fmt.Errorf("operation %d is none: %w", h.Op, syscall.EOPNOTSUPP)), nil
	}
	answer, out, err := s.run(op, h.Op, body, &given)
	if err == nil {
		reply, err = ctl.Append(nil, h.Op, h.Tag, 0, answer)
	}
	if err != nil {
		closeAll(out)
		if !strings.HasPrefix(err.Error(), op.name) { // the device says it already
			err = fmt.Errorf("%s: %w", op.name, err)
		}
		return refuse(h, err), nil
	}
	return reply, out
}

// run checks what all operations have in common and does the one.
func (s *Session) run(op operation, code ctl.Op, body []byte, in *attachments) (any, []ctl.Attachment, error) {
	if n := len(in.list); n < op.fewest || n > op.most {
		return nil, nil, fmt.Errorf("%d descriptors came with it, %s: %w", n, wanted(op.fewest, op.most), syscall.EINVAL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, nil, fmt.Errorf("the session has ended: %w", syscall.ENODEV)
	case op.device && s.ctx == nil:
		return nil, nil, fmt.Errorf("no device is open in this session: %w", syscall.ENODEV)
	}
	return op.run(s, code, body, in)
}

func wanted(fewest, most int) string {
	switch {
	case fewest == most:
		return fmt.Sprintf("%d belong", most)
	default:
		return fmt.Sprintf("%d to %d belong", fewest, most)
	}
}

// refuse makes the reply of a request that was not done.
func refuse(h ctl.Header, err error) []byte {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno == 0 {
		errno = syscall.EIO
	}
	return ctl.AppendError(nil, h.Op, h.Tag, errno, err.Error())
}

// Close gives back everything that the session has. What an engine might still touch is unmapped only after every shard
// has passed a grace point, which nic.Context.Close waits for.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	defer func() {
		s.closer.Wait()
		if s.ended != nil {
			s.ended()
		}
		close(s.done)
	}()
	s.unsubscribe()
	if s.ctx == nil {
		return
	}
	defer s.record.note(ctl.EventContextClosed)
	if err := s.ctx.Close(); err != nil {
		// Something still uses the context. Its memory stays mapped: better lost than given to somebody else.
		s.log.Error("closing a context failed, its memory stays mapped", "uid", s.peer.UID, "pid", s.peer.PID, "err", err)
		return
	}
	for _, r := range s.regions.m {
		r.close()
	}
	if s.process != nil {
		s.process.Close()
	}
	for _, a := range s.arenas.m {
		a.unmap()
	}
	if !s.peer.Embedded {
		shm.Unmap(s.bell)
	}
	for _, v := range s.extended.m {
		s.release(v)
	}
	for _, ch := range s.channels.m {
		ch.box.close()
	}
	s.async.box.close()
	s.log.Info("session closed", "device", s.dev.NIC.Name(), "uid", s.peer.UID, "pid", s.peer.PID)
}

// Done is closed when the session has been closed, by whichever side.
func (s *Session) Done() <-chan struct{} { return s.done }

// guarded runs f. A panic in it is logged with its stack and goes no further.
func (s *Session) guarded(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error("panic in a session, which ends now", "uid", s.peer.UID, "pid", s.peer.PID, "panic", r, "stack", string(debug.Stack()))
		}
	}()
	f()
}

// attachments are what came beside a request. What nobody takes is closed.
type attachments struct {
	list   []ctl.Attachment
	taken  int
	closer *shm.Closer
}

// take hands over the next attachment.
func (a *attachments) take() ctl.Attachment {
	v := a.list[a.taken]
	a.taken++
	return v
}

// left returns how many nobody took yet.
func (a *attachments) left() int { return len(a.list) - a.taken }

// close closes the rest. The peer chose these descriptors and close may block on them.
func (a *attachments) close() {
	for ; a.taken < len(a.list); a.taken++ {
		if fd := a.list[a.taken].FD; fd >= 0 {
			a.closer.Close(fd)
		}
	}
}

// closeAll closes descriptors of our own making.
func closeAll(list []ctl.Attachment) {
	for _, a := range list {
		if a.FD >= 0 {
			unix.Close(a.FD)
		}
	}
}
