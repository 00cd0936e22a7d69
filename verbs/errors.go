package verbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softnic/softnicd/cq"
)

// Errors that a program may want to tell apart. The others wrap a syscall.Errno: EINVAL, ENOMEM, EBUSY ...
var (
	// ErrDeviceFatal says that the device is gone: its daemon died or was stopped. Nothing can be done with the context
	// but to close it.
	ErrDeviceFatal error = &fatalError{"the device is gone: its daemon died or closed the session", syscall.EIO}
	// ErrCQOverrun says that completions were lost because the queue was full, after everything that fit was polled.
	// Every queue pair of the queue is in the error state.
	ErrCQOverrun = cq.ErrOverrun
	// ErrClosed says that the object, or its context, was closed.
	ErrClosed error = &fatalError{"the object is closed", syscall.EBADF}
)

type fatalError struct {
	text  string
	errno syscall.Errno
}

func (e *fatalError) Error() string { return e.text }
func (e *fatalError) Unwrap() error { return e.errno }

// PostError says which of the posted work requests was refused. Those before it are posted and run; it and those behind it
// are not. It is what bad_wr is in C.
type PostError struct {
	Index int
	Err   error
}

func (e *PostError) Error() string { return fmt.Sprintf("work request %d: %v", e.Index, e.Err) }

// Unwrap returns the reason; ENOMEM for a full queue.
func (e *PostError) Unwrap() error { return e.Err }

// Why a work request is refused. These are made once: posting to a full queue is an ordinary event.
var (
	errQueueFull  = fmt.Errorf("the queue is full: %w", syscall.ENOMEM)
	errPostState  = fmt.Errorf("the state of the queue pair forbids posting: %w", syscall.EINVAL)
	errListLong   = fmt.Errorf("more scatter/gather entries than the queue pair was made for: %w", syscall.EINVAL)
	errInlineLong = fmt.Errorf("more inline data than the queue pair was made for: %w", syscall.EINVAL)
	errHasSRQ     = fmt.Errorf("the queue pair takes receives from its shared receive queue: post them there: %w", syscall.EINVAL)
	errSRQFailed  = fmt.Errorf("the shared receive queue is in error: %w", syscall.EIO)
	errNoAH       = fmt.Errorf("a datagram needs an address handle of the same context: %w", syscall.EINVAL)
	errInlineList = fmt.Errorf("inline data belongs in InlineData, not in SGList: %w", syscall.EINVAL)
)

// ErrNoDaemon says that nobody serves the control socket.
var ErrNoDaemon = errors.New("no softnicd daemon is running")
