package nic

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
)

func TestAttributes(t *testing.T) {
	a := newHost(t, "softnic0", "10.0.0.1", newCable(4), func(c *Config) {
		c.Limits = Limits{MaxMR: 10}
		c.Link.MAC = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	})
	d := a.dev.Attr()
	if d.NodeGUID != 0x505400fffe123456 || d.SysImageGUID != d.NodeGUID {
		t.Errorf("GUID %#x, want the EUI-64 of the MAC address", d.NodeGUID)
	}
	if d.MaxQP != 16384 || d.MaxQPWR != 16384 || d.MaxSGE != 32 || d.MaxInlineData != 512 || d.MaxCQ != 65536 ||
		d.MaxCQE != 4194303 || d.MaxPD != 65536 || d.MaxQPRDAtom != 128 || d.MaxResRDAtom != 16384*128 || d.MaxMR != 10 ||
		d.AtomicCap != 1 || d.PhysPortCnt != 1 || d.MaxPKeys != 1 || d.HCACoreClock != 1000000 || d.MinAckTimeout != 4000 {
		t.Errorf("attributes %+v", d)
	}
	if got := strings.TrimRight(string(d.FWVer[:]), "\x00"); got != "0.0.0" {
		t.Errorf("firmware %q", got)
	}
	p := a.dev.PortAttr()
	if p.State != ib.PortActive || p.PhysState != 5 || p.MaxMTU != ib.MTU4096 || p.ActiveMTU != ib.MTU4096 || p.GIDTblLen != 256 ||
		p.PKeyTblLen != 1 || p.MaxMsgSz != 1<<31 || p.LinkLayer != 2 || p.Flags != 1 || p.LinkMTU != 9000 || p.NetdevIfindex != 7 {
		t.Errorf("port attributes %+v", p)
	}
	if k, err := a.dev.PKey(0); k != 0xffff || err != nil {
		t.Errorf("P_Key 0: %#x, %v", uint16(k), err)
	}
	if _, err := a.dev.PKey(1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("P_Key 1: %v, want EINVAL", err)
	}
	if _, _, _, err := a.dev.GID(1); !errors.Is(err, syscall.ENODATA) || a.dev.Name() != "softnic0" {
		t.Errorf("GID 1 of %s: %v, want ENODATA", a.dev.Name(), err)
	}
}

// Devices on loopback have no MAC address, yet each a GUID.
func TestGUIDWithoutMAC(t *testing.T) {
	guids := map[uint64]string{}
	for _, name := range []string{"softnic0", "softnic1", "softnic10", "rxe0"} {
		a := newHost(t, name, "127.0.0.1", newCable(4), func(c *Config) { c.Link.MAC = make(net.HardwareAddr, 6) })
		id := a.dev.Attr().NodeGUID
		if other, ok := guids[id]; ok || id == 0 {
			t.Errorf("GUID %#x of %s is that of %q", id, name, other)
		}
		guids[id] = name
	}
}

// A profile says what a device offers; what the configuration says goes before it.
func TestProfile(t *testing.T) {
	p := Softnic()
	p.VendorID, p.Limits.MaxSGE, p.Limits.MaxQPWR = 0x2c9, 30, 1000
	a := newHost(t, "mlx5_0", "10.0.0.1", newCable(4), func(c *Config) {
		c.Profile = &p
		c.Limits.MaxQPWR = 64
	})
	if d := a.dev.Attr(); d.VendorID != 0x2c9 || d.MaxSGE != 30 || d.MaxQPWR != 64 || d.MaxCQ != 65536 {
		t.Errorf("attributes %+v", d)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{Name: "x"}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("without a port: %v, want EINVAL", err)
	}
	if _, err := New(Config{Name: "x", Port: newCable(1), Manual: true, Page: make([]byte, 10)}); err == nil {
		t.Error("a page of 10 bytes was taken")
	}
	if _, err := New(Config{Name: "x", Port: newCable(1), Manual: true, Random: strings.NewReader("few")}); err == nil {
		t.Error("three random bytes sufficed")
	}
}

func TestWithPort(t *testing.T) {
	_, a, _ := newPair(t, nil)
	ran := false
	a.dev.WithPort(func() { ran = true })
	if !ran {
		t.Error("the function did not run")
	}
}
