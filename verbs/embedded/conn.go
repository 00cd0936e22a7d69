package embedded

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/control"
	"github.com/softnic/softnicd/verbs"
)

// conn is a session with a device of this process: messages as on a socket, handed over by a call.
type conn struct {
	session *control.Session
	tag     atomic.Uint32
}

func newConn(s *control.Server) (*conn, error) {
	session, err := s.NewSession()
	if err != nil {
		return nil, err
	}
	return &conn{session: session}, nil
}

// Embedded tells package verbs that attachments are memory.
func (c *conn) Embedded() bool { return true }

// Call implements ctl.Conn.
func (c *conn) Call(op ctl.Op, request, reply any, attach ...ctl.Attachment) ([]ctl.Attachment, error) {
	select {
	case <-c.session.Done():
		return nil, verbs.ErrDeviceFatal
	default:
	}
	tag := c.tag.Add(1)
	msg, err := ctl.Append(nil, op, tag, 0, request)
	if err != nil {
		return nil, err
	}
	// The session takes descriptors over; the caller's stay the caller's.
	var in []ctl.Attachment
	for _, a := range attach {
		if a.FD >= 0 {
			if a.FD, err = unix.FcntlInt(uintptr(a.FD), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				closeAll(in)
				return nil, err
			}
		}
		in = append(in, a)
	}
	answer, out := c.session.Handle(msg, in)
	if err := ctl.Reply(op, tag, answer, reply); err != nil {
		closeAll(out)
		return nil, err
	}
	return out, nil
}

func closeAll(list []ctl.Attachment) {
	for _, a := range list {
		if a.FD >= 0 {
			unix.Close(a.FD)
		}
	}
}

// Done implements ctl.Conn.
func (c *conn) Done() <-chan struct{} { return c.session.Done() }

// Close implements ctl.Conn.
func (c *conn) Close() error {
	c.session.Close()
	return nil
}
