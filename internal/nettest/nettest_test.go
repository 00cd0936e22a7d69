package nettest

import (
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {unix.EPERM, true}, {fmt.Errorf("veth pair: %w", unix.EPERM), true}, {unix.EACCES, true}, {unix.ENOSPC, true},
		{unix.ENOSYS, true}, {unix.EINVAL, false}, {fmt.Errorf("address: %w", unix.EEXIST), false},
	} {
		if Unable(c.err) != c.want {
			t.Errorf("%v: %v", c.err, !c.want)
		}
	}
}

func TestListening(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if !Listening(port) {
		t.Errorf("nobody listens on port %d", port)
	}
	l.Close()
	if Listening(port) {
		t.Errorf("somebody listens on port %d still", port)
	}
}
