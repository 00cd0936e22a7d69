package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// eventSocket is the application's end of a socket of events, each a message of 16 bytes. One goroutine at a time reads.
type eventSocket struct {
	fd     int
	file   *os.File
	kicked atomic.Bool
}

// errKicked ends a read that waits for what will not come any more.
var errKicked = errors.New("the reader is to look again")

// kick makes the read that is under way return errKicked, or the next one.
func (s *eventSocket) kick() {
	s.kicked.Store(true)
	s.file.SetReadDeadline(time.Unix(1, 0))
}

// newEventSocket takes over fd, unless there is an error.
func newEventSocket(name string, fd int) (*eventSocket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &eventSocket{fd: fd, file: os.NewFile(uintptr(fd), name)}, nil
}

// read waits for the next event. Errors are ctx's, ErrDeviceFatal when the daemon closed its end, ErrClosed when this end
// was closed, errKicked.
func (s *eventSocket) read(ctx context.Context, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		s.file.SetReadDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { s.file.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	// After the deadline was taken back: a kick either shows here or ends the read.
	if s.kicked.Swap(false) {
		return errKicked
	}
	for {
		n, err := s.file.Read(message)
		switch {
		case err == nil && n == len(message):
			return nil
		case err == nil:
			return fmt.Errorf("the daemon sent an event of %d bytes: %w", n, unix.EPROTO)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := ctx.Err(); err != nil {
				return err
			}
			// The deadline of a reader before this one, whose context ended as it left.
			s.file.SetReadDeadline(time.Time{})
			if s.kicked.Swap(false) {
				return errKicked
			}
		case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			return ErrDeviceFatal
		case errors.Is(err, os.ErrClosed):
			return ErrClosed
		default:
			return err
		}
	}
}

// Close ends a read that waits.
func (s *eventSocket) Close() error { return s.file.Close() }
