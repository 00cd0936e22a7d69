package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// soPeerPidfd is SO_PEERPIDFD, Linux 6.5.
const soPeerPidfd = 77

// PeerCredentials returns user, group and process of who connected a unix socket, as they were then. Pid is 0 if the
// process is not visible in this process namespace.
func PeerCredentials(sock int) (*unix.Ucred, error) {
	cred, err := unix.GetsockoptUcred(sock, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("credentials of the peer: %w", err)
	}
	return cred, nil
}

// PeerPidfd returns a descriptor, close-on-exec, of the process that connected a unix socket. It is readable once that
// process has ended: the end of the socket does not tell, since a forked child holds it too. ESRCH says that the process
// is gone, or not visible, already.
func PeerPidfd(sock int) (fd int, err error) {
	fd, err = unix.GetsockoptInt(sock, unix.SOL_SOCKET, soPeerPidfd)
	if err == unix.ENOPROTOOPT {
		return peerPidfdByNumber(sock)
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd of the peer: %w", err)
	}
	return fd, nil
}

// peerPidfdByNumber does without SO_PEERPIDFD. It is right as long as the peer lives between its connect and this call.
func peerPidfdByNumber(sock int) (fd int, err error) {
	cred, err := PeerCredentials(sock)
	if err != nil {
		return -1, err
	}
	if cred.Pid <= 0 {
		return -1, fmt.Errorf("pidfd of the peer: it is in another process namespace: %w", unix.ESRCH)
	}
	fd, err = unix.PidfdOpen(int(cred.Pid), 0)
	if err != nil {
		return -1, fmt.Errorf("pidfd of process %d: %w", cred.Pid, err)
	}
	return fd, nil
}
