package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

func addrs(list string) (a []netip.Addr) {
	for f := range strings.FieldsSeq(list) {
		a = append(a, netip.MustParseAddr(f))
	}
	return a
}

func (t *gidTable) dump() string {
	s := ""
	for _, e := range t.entries {
		g := e.gid
		if g.IsZero() {
			s += "- "
		} else {
			s += fmt.Sprint(g.Addr(), " ")
		}
	}
	return strings.TrimSpace(s)
}

func TestGIDTable(t *testing.T) {
	table := newGIDTable(5, nil)
	for _, step := range []struct{ addrs, want string }{
		{"192.0.2.1 2001:db8::1 fe80::1%eth0", "fe80::1 192.0.2.1 2001:db8::1"},
		{"192.0.2.1 2001:db8::1 fe80::1", "fe80::1 192.0.2.1 2001:db8::1"},
		// What leaves makes a hole, the others stay where they are.
		{"2001:db8::1 fe80::1", "fe80::1 - 2001:db8::1"},
		{"2001:db8::1 fe80::1 fd00::7 192.0.2.9", "fe80::1 fd00::7 2001:db8::1 192.0.2.9"},
		// Neither unspecified nor multicast addresses are GIDs, and there are five entries.
		{"2001:db8::1 fe80::1 fd00::7 192.0.2.9 :: 224.0.0.1 ff02::1 10.0.0.1 10.0.0.2",
			"fe80::1 fd00::7 2001:db8::1 192.0.2.9 10.0.0.1"},
		{"", "- - - - -"},
		{"127.0.0.1", "127.0.0.1 - - - -"},
	} {
		before := table
		table = table.update(&Link{Addrs: addrs(step.addrs)})
		if got := table.dump(); got != step.want {
			t.Errorf("with %s:\ngot  %s\nwant %s", step.addrs, got, step.want)
		}
		if before != table && before.dump() == table.dump() {
			t.Errorf("with %s: another table for the same entries", step.addrs)
		}
	}
	for _, tt := range []struct {
		index int
		want  error
	}{{-1, syscall.EINVAL}, {0, nil}, {1, syscall.ENODATA}, {4, syscall.ENODATA}, {5, syscall.EINVAL}} {
		if _, err := table.at(tt.index); !errors.Is(err, tt.want) {
			t.Errorf("entry %d: %v, want %v", tt.index, err, tt.want)
		}
	}
}
