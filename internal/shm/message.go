package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxDescriptors is the most descriptors that one message carries.
const MaxDescriptors = 16

// ErrDescriptors says that a message came with descriptors other than was agreed, or that some were lost on the way
// because this process has no free ones.
var ErrDescriptors = errors.New("descriptors of the message are missing or too many")

// SendMsg sends one message with descriptors, which stay the caller's, on a SOCK_SEQPACKET socket. It waits only if the
// socket is blocking, and then until there is room: EAGAIN passes to the caller.
func SendMsg(sock int, b []byte, fds ...int) error {
	if len(fds) > MaxDescriptors {
		return fmt.Errorf("send message: %d descriptors: %w", len(fds), unix.EINVAL)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		_, err := unix.SendmsgN(sock, b, oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// RecvMsg receives one message into b and up to len(fds) descriptors, which are close-on-exec and become the caller's.
// The peer's going is n = 0 without an error: messages of ours are never empty.
//
// On any error no descriptor is kept: a message longer than b (EMSGSIZE), one with too many descriptors or with some lost
// ([ErrDescriptors]). What is not kept goes to c, or is closed at once where c is nil.
func RecvMsg(sock int, b []byte, fds []int, c *Closer) (n, nfds int, err error) {
	// Room for more descriptors than are wanted, so that what a peer sends too many of is counted, not cut.
	var oob [256]byte
	var noob, flags int
	for {
		n, noob, flags, _, err = unix.Recvmsg(sock, b, oob[:], unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, err
	}
	got, err := rights(oob[:noob])
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("receive message: %w", ErrDescriptors)
	case flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("receive message: longer than %d bytes: %w", len(b), unix.EMSGSIZE)
	case len(got) > len(fds):
		err = fmt.Errorf("receive message: %d descriptors where %d at the most belong: %w", len(got), len(fds), ErrDescriptors)
	}
	if err != nil {
		c.Close(got...)
		return 0, 0, err
	}
	return n, copy(fds, got), nil
}

// rights returns the descriptors in control messages; in case of an error too, for they are open.
func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("receive message: %w", err)
	}
	for i := range messages {
		m := &messages[i]
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, e := unix.ParseUnixRights(m)
		fds = append(fds, got...)
		if e != nil {
			err = fmt.Errorf("receive message: %w", e)
		}
	}
	return fds, err
}
