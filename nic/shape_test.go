package nic

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// shape writes a table down: v1 and v2 entries, those that no packet can be sent from in brackets.
func (t *gidTable) shapeString() string {
	var s []string
	for _, e := range t.entries {
		switch text := fmt.Sprintf("%s/%d", e.gid.Addr(), e.typ); {
		case e.gid.IsZero():
			s = append(s, "-")
		case e.unbound:
			s = append(s, "("+text+")")
		default:
			s = append(s, text)
		}
	}
	return strings.Join(s, " ")
}

// How each profile lays its GID table out, and that entries stay where they are.
func TestGIDShapes(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	const own = "fe80::5054:ff:fe12:3456"
	for _, c := range []struct {
		profile Profile
		mac     net.HardwareAddr
		addrs   string
		want    string
	}{
		{Softnic(), mac, "192.0.2.1 2001:db8::1 " + own, own + "/2 192.0.2.1/2 2001:db8::1/2"},
		{Softnic(), mac, "192.0.2.1", "192.0.2.1/2"},
		{RXE(), mac, "192.0.2.1 2001:db8::1 " + own, own + "/2 192.0.2.1/2 2001:db8::1/2"},
		{RXE(), mac, "192.0.2.1", "(" + own + "/2) 192.0.2.1/2"},
		{RXE(), nil, "127.0.0.1 ::1", "127.0.0.1/2 ::1/2"},
		{IRDMA(), mac, "192.0.2.1", "(" + own + "/2) 192.0.2.1/2"},
		{ConnectX(), mac, "192.0.2.1 2001:db8::1 fd00::7 fe80::9 " + own,
			own + "/1 " + own + "/2 fe80::9/1 fe80::9/2 192.0.2.1/1 192.0.2.1/2 2001:db8::1/1 2001:db8::1/2 fd00::7/1 fd00::7/2"},
		{ConnectX(), mac, "192.0.2.1", "(" + own + "/1) (" + own + "/2) 192.0.2.1/1 192.0.2.1/2"},
		{ConnectX(), nil, "127.0.0.1", "127.0.0.1/1 127.0.0.1/2"},
	} {
		table := shapedTable(16, c.profile.GIDs, &Link{MAC: c.mac, Addrs: addrs(c.addrs)})
		if got := table.shapeString(); got != c.want {
			t.Errorf("%s with %s:\ngot  %s\nwant %s", c.profile.Name, c.addrs, got, c.want)
		}
	}

	// The default GID's own address comes late, and goes; what leaves makes two holes, which the next one takes.
	profile := ConnectX()
	table := shapedTable(7, profile.GIDs, &Link{MAC: mac, Addrs: addrs("192.0.2.1 192.0.2.2")})
	for _, step := range []struct{ addrs, want string }{
		{"192.0.2.1 192.0.2.2 " + own, own + "/1 " + own + "/2 192.0.2.1/1 192.0.2.1/2 192.0.2.2/1 192.0.2.2/2"},
		{"192.0.2.2 " + own, own + "/1 " + own + "/2 - - 192.0.2.2/1 192.0.2.2/2"},
		{"192.0.2.2 fd00::1", "(" + own + "/1) (" + own + "/2) fd00::1/1 fd00::1/2 192.0.2.2/1 192.0.2.2/2"},
		{"192.0.2.2 fd00::1 fd00::2", "(" + own + "/1) (" + own + "/2) fd00::1/1 fd00::1/2 192.0.2.2/1 192.0.2.2/2 fd00::2/1"},
		{"", "(" + own + "/1) (" + own + "/2) - - - - -"},
	} {
		before := table
		table = table.update(&Link{MAC: mac, Addrs: addrs(step.addrs)})
		if got := table.shapeString(); got != step.want {
			t.Errorf("then with %s:\ngot  %s\nwant %s", step.addrs, got, step.want)
		}
		if same := table.update(&Link{MAC: mac, Addrs: addrs(step.addrs)}); same != table || before == table {
			t.Errorf("then with %s: a table without change is another, or one with change the same", step.addrs)
		}
	}
}

// Who takes an entry that packets cannot be sent from is told which one to take.
func TestGIDChoice(t *testing.T) {
	profile := ConnectX()
	mac := net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	a := newHost(t, "cx0", "10.0.0.1", newCable(4), func(c *Config) { c.Profile, c.Link.MAC = &profile, mac })
	if g, typ, _, err := a.dev.GID(2); err != nil || g != gid("10.0.0.1") || typ != ib.GIDTypeRoCEv1 {
		t.Fatalf("entry 2: %s %s %v", g, typ, err)
	}
	table := a.dev.gids.Load()
	for index, want := range map[uint8]string{2: "index 3 has the address for it", 1: "no address of the interface", 0: "RoCE v1"} {
		to := av("10.0.0.2", index)
		if _, err := table.newPath(&to, 1, 2); errno(err) != syscall.EINVAL || !strings.Contains(err.Error(), want) {
			t.Errorf("index %d: %v", index, err)
		}
	}
	to := av("10.0.0.2", 3)
	if _, err := table.newPath(&to, 1, 2); err != nil {
		t.Error(err)
	}
	// The default GID is listed, and yet nobody is there.
	if first, _, _, err := a.dev.GID(1); err != nil || a.dev.IsLocal(first) || !a.dev.IsLocal(gid("10.0.0.1")) {
		t.Errorf("entry 1: %s, %v", first, err)
	}
}
