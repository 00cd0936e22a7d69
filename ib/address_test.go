package ib

import (
	"net/netip"
	"testing"
)

func TestGID(t *testing.T) {
	for _, c := range []struct {
		addr, text    string
		v4, multicast bool
	}{
		{"198.18.18.1", "0000:0000:0000:0000:0000:ffff:c612:1201", true, false},
		{"224.1.2.3", "0000:0000:0000:0000:0000:ffff:e001:0203", true, true},
		{"fd00:18:18::1", "fd00:0018:0018:0000:0000:0000:0000:0001", false, false},
		{"fe80::5054:ff:fe12:3456", "fe80:0000:0000:0000:5054:00ff:fe12:3456", false, false},
		{"ff0e::1", "ff0e:0000:0000:0000:0000:0000:0000:0001", false, true},
	} {
		a := netip.MustParseAddr(c.addr)
		g := GIDFromAddr(a)
		if g.String() != c.text || g.Addr() != a || g.Is4() != c.v4 || g.IsMulticast() != c.multicast || g.IsZero() {
			t.Errorf("%s: %v, %v, IPv4 %v, multicast %v", c.addr, g, g.Addr(), g.Is4(), g.IsMulticast())
		}
	}
	if !(GID{}).IsZero() {
		t.Error("the empty entry is zero")
	}
}

func TestMTUForLink(t *testing.T) {
	for _, c := range []struct {
		link int
		want MTU
	}{
		{0, MTU256}, {352, MTU256}, {607, MTU256}, {608, MTU512}, {1119, MTU512}, {1120, MTU1024}, {1500, MTU1024},
		{2143, MTU1024}, {2144, MTU2048}, {4191, MTU2048}, {4192, MTU4096}, {4200, MTU4096}, {9000, MTU4096}, {65536, MTU4096},
	} {
		if got := MTUForLink(c.link); got != c.want {
			t.Errorf("link of %d bytes: %v, want %v", c.link, got, c.want)
		}
	}
	for m, n := range map[MTU]int{0: 0, MTU256: 256, MTU512: 512, MTU1024: 1024, MTU2048: 2048, MTU4096: 4096, 6: 0, 255: 0} {
		if m.Bytes() != n || m.Valid() != (n > 0) {
			t.Errorf("code %d: %d bytes, valid %v", uint8(m), m.Bytes(), m.Valid())
		}
	}
}

func TestPKeyMatches(t *testing.T) {
	for _, c := range []struct {
		a, b PKey
		want bool
	}{
		{0xffff, 0xffff, true},
		{0xffff, 0x7fff, true},
		{0x7fff, 0x7fff, false}, // two limited members
		{0x8001, 0x0001, true},
		{0x8001, 0x8002, false},
		{0x8000, 0x8000, false}, // partition 0 is none
		{0x8000, 0x0000, false},
	} {
		if c.a.Matches(c.b) != c.want || c.b.Matches(c.a) != c.want {
			t.Errorf("%#x and %#x match: %v", uint16(c.a), uint16(c.b), c.a.Matches(c.b))
		}
	}
}

func TestFlowLabelUDPPort(t *testing.T) {
	for _, c := range []struct {
		label         uint32
		local, remote QPN
		want          uint16
	}{
		{1, 0, 0, 0xc001},
		{0x3fff, 9, 9, 0xffff},
		{0x4000, 9, 9, 0xc001},  // the upper six bits are folded in
		{0xfffff, 9, 9, 0xffc0}, // 0x3fff ^ 0x3f
		{0x12345, 9, 9, 0xe341}, // 0x2345 ^ 0x4
		{0x100001, 9, 9, 0xc001},
		{0, 0, 0, 0xc000},
		{0, 0x11, 0x12, 0xc132},          // 0x132
		{0, 0xffffff, 0xffffff, 0xff21},  // 0xfffffe000001, folded at 20 and at 40
		{0, 0x12, 0x11, 0xc132},          // the same for both ends
		{0x80000000, 0x11, 0x12, 0xc000}, // not 0, so no derivation; its 20 bits are
	} {
		if got := FlowLabelUDPPort(c.label, c.local, c.remote); got != c.want {
			t.Errorf("label %#x, QPs %v %v: %#x, want %#x", c.label, c.local, c.remote, got, c.want)
		}
	}
}

func TestKeys(t *testing.T) {
	if !GSIQKey.Controlled() || QKey(0x01234567).Controlled() {
		t.Error("the top bit makes a Q_Key controlled")
	}
}
