package main

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/link/netdev"
)

// stuck are ports that cannot join their groups on another interface.
type stuck struct {
	netPorts
	addrs []netip.Addr
	bind  error
}

func (*stuck) SetInterface(int) error { return syscall.ENODEV }

func (s *stuck) SetAddrs(a []netip.Addr) error {
	s.addrs = a
	return s.bind
}

// A group that cannot be joined is told, and the addresses are bound all the same.
func TestMove(t *testing.T) {
	under := &netdev.Interface{Name: "eth0", Index: 8, Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for _, bind := range []error{nil, syscall.EADDRNOTAVAIL} {
		var out progtest.Buffer
		p := &stuck{bind: bind}
		err := move(p, under, slog.New(slog.NewTextHandler(&out, nil)))
		if !errors.Is(err, bind) || !slices.Equal(p.addrs, under.Addrs) || !strings.Contains(out.String(), "no such device") {
			t.Errorf("%v, addresses %v, told: %s", err, p.addrs, out.String())
		}
	}
}
