package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// network is SOCK_SEQPACKET: messages keep their borders, and descriptors stay with their message.
const network = "unixpacket"

var umask sync.Mutex

// Listen makes the control socket, readable and writable for its user and group. A socket that a dead daemon left behind
// is replaced; one that a living daemon holds is an error that wraps EADDRINUSE.
func Listen(path string) (*net.UnixListener, error) {
	addr := &net.UnixAddr{Name: path, Net: network}
	switch c, err := net.DialUnix(network, nil, addr); {
	case err == nil:
		c.Close()
		return nil, fmt.Errorf("control socket %s: another daemon serves it; stop that one or choose another path: %w", path, syscall.EADDRINUSE)
	case errors.Is(err, syscall.ECONNREFUSED):
		st, err := os.Lstat(path)
		switch {
		case err == nil && st.Mode()&os.ModeSocket == 0:
			return nil, fmt.Errorf("control socket %s: that is no socket; remove it or choose another path: %w", path, syscall.EEXIST)
		case err == nil:
			os.Remove(path)
		}
	case errors.Is(err, syscall.ENOENT):
	default:
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	// Made under the mask, so that at no moment more may connect than the mode says. The mask is the process's own.
	umask.Lock()
	old := syscall.Umask(0o117)
	l, err := net.ListenUnix(network, addr)
	syscall.Umask(old)
	umask.Unlock()
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", path, err)
	}
	return l, nil
}

// ListenFile takes over a listening socket that somebody else made, systemd's socket activation for one.
func ListenFile(f *os.File) (*net.UnixListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("control socket %s: %w", f.Name(), err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok || u.Addr().Network() != network {
		l.Close()
		return nil, fmt.Errorf("control socket %s is no SOCK_SEQPACKET unix socket (ListenSequentialPacket= in a systemd unit): %w", f.Name(), syscall.EINVAL)
	}
	u.SetUnlinkOnClose(false)
	return u, nil
}
