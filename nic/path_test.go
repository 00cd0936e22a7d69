package nic

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

func gid(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }

func av(dest string, index uint8) ib.AHAttr {
	return ib.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: gid(dest), SGIDIndex: index}}
}

func TestNewPath(t *testing.T) {
	table := newGIDTable(8, addrs("10.0.0.1 2001:db8::1"))
	p, err := table.newPath(&ib.AHAttr{
		IsGlobal: true, PortNum: 1, SL: 3,
		GRH: ib.GlobalRoute{DGID: gid("2001:db8::2"), SGIDIndex: 1, FlowLabel: 0xff12345, TrafficClass: 0x6a, HopLimit: 3},
	}, 0x11, 0x22)
	want := wire.Path{Source: gid("2001:db8::1"), Dest: gid("2001:db8::2"), SourcePort: ib.FlowLabelUDPPort(0x12345, 0, 0),
		TrafficClass: 0x6a, HopLimit: 3, SL: 3, FlowLabel: 0x12345}
	if err != nil || *p != want {
		t.Errorf("got %+v, %v\nwant %+v", p, err, want)
	}
	a := av("10.0.0.2", 0)
	if p, err = table.newPath(&a, 0x11, 0x22); err != nil || p.HopLimit != 64 || p.SourcePort != ib.FlowLabelUDPPort(0, 0x11, 0x22) {
		t.Errorf("hop limit and port made up: %+v, %v", p, err)
	}
}

func TestNewPathRefuses(t *testing.T) {
	table := newGIDTable(8, addrs("10.0.0.1 2001:db8::1"))
	edit := func(f func(a *ib.AHAttr)) ib.AHAttr {
		a := av("10.0.0.2", 0)
		f(&a)
		return a
	}
	for name, a := range map[string]ib.AHAttr{
		"no GRH":              edit(func(a *ib.AHAttr) { a.IsGlobal = false }),
		"port 2":              edit(func(a *ib.AHAttr) { a.PortNum = 2 }),
		"SL 8":                edit(func(a *ib.AHAttr) { a.SL = 8 }),
		"empty SGID":          av("10.0.0.2", 2),
		"SGID beyond":         av("10.0.0.2", 200),
		"family":              av("10.0.0.2", 1),
		"other family":        av("2001:db8::2", 0),
		"multicast":           av("224.0.0.1", 0),
		"multicast v6":        av("ff02::1", 1),
		"destination nowhere": av("::", 1),
		"0.0.0.0":             av("0.0.0.0", 0),
	} {
		if _, err := table.newPath(&a, 1, 2); errno(err) != syscall.EINVAL {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
}

// errno returns the error number that a control session will find in err.
func errno(err error) syscall.Errno {
	var n syscall.Errno
	errors.As(err, &n)
	return n
}

// whole is a port that takes runs of seven packets, within the device or out of it.
type whole struct {
	*cable
	here bool
}

func (whole) LongestRun(*wire.Path, int) int   { return 7 }
func (w whole) StaysHere(path *wire.Path) bool { return w.here }

// Packets go as runs where both the port and the engine are for it. Only inside a device is a queue pair's share larger.
func TestPathTakesRuns(t *testing.T) {
	for _, c := range []struct{ port, here bool }{{}, {port: true}, {port: true, here: true}} {
		_, h := newLoops(t, 1, func(cfg *Config) {
			if c.port {
				cfg.Ports[0] = whole{cfg.Ports[0].(*cable), c.here}
			}
		})
		x := h.newQP(t, nil)
		x.connect(t, x)
		uc := func(c *QPConfig) { c.Type = ib.QPTypeUC }
		y := h.newQP(t, uc)
		connectUnreliably(t, y, h.newQP(t, uc), nil)
		for q, runs := range map[*QP]bool{x.qp: c.port, y.qp: false} {
			want := 0
			if runs {
				want = 7
			}
			if q.path.MaxRun != want || (q.ease() > 1) != (runs && c.here) || q.local != c.here {
				t.Errorf("%s, %+v: runs of %d, ease %d, local %v", q.typ, c, q.path.MaxRun, q.ease(), q.local)
			}
		}
	}
}
