package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// eventSocket is the application's end of a socket of events, each a message of 16 bytes. One goroutine at a time reads.
type eventSocket struct {
	fd   int
	file *os.File
}

// newEventSocket takes over fd, unless there is an error.
func newEventSocket(name string, fd int) (*eventSocket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &eventSocket{fd, os.NewFile(uintptr(fd), name)}, nil
}

// read waits for the next event. Errors are ctx's, ErrDeviceFatal when the daemon closed its end, ErrClosed when this end
// was closed.
func (s *eventSocket) read(ctx context.Context, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		s.file.SetReadDeadline(time.Time{})
		stop := context.AfterFunc(ctx, func() { s.file.SetReadDeadline(time.Unix(1, 0)) })
		defer stop()
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
