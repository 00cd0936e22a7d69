package netdev

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/internal/nettest"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	os.Exit(nettest.Run(m, func(m *testing.M) int {
		goleak.VerifyTestMain(m)
		return 0
	}))
}

// inNamespace runs f in a network namespace of its own, where only lo is. Without the right to make one it skips.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	err := nettest.Inside(-1, func() error { f(); return nil })
	if nettest.Unable(err) {
		t.Skip("no network namespace: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func setUp(t *testing.T, name string) netlink.Link {
	l, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return l
}

func addAddr(t *testing.T, l netlink.Link, s string) {
	a, err := netlink.ParseAddr(s)
	if err == nil {
		a.Flags |= unix.IFA_F_NODAD
		err = netlink.AddrAdd(l, a)
	}
	if err != nil {
		t.Error(s, err)
		runtime.Goexit()
	}
}

func addrs(i Interface) string { return strings.Trim(fmt.Sprint(i.Addrs), "[]") }

// The order is that of Linux's GID table, whatever order the kernel lists addresses in.
func TestOrder(t *testing.T) {
	inNamespace(t, func() {
		lo := setUp(t, "lo")
		for _, s := range []string{"10.1.0.2/24", "2001:db8::9/64", "fe80::5/64", "10.0.0.1/24", "10.1.0.1/24",
			"2001:db8::1/64", "fd00::1/64", "fe80::1/64"} {
			addAddr(t, lo, s)
		}
		i, err := ByName("lo")
		if err != nil {
			t.Error(err)
			return
		}
		want := "fe80::5 fe80::1 127.0.0.1 10.1.0.2 10.0.0.1 10.1.0.1 ::1 2001:db8::9 2001:db8::1 fd00::1"
		if addrs(i) != want {
			t.Errorf("got  %s\nwant %s", addrs(i), want)
		}
		if !i.Up() || !i.Loopback || i.MTU != 65536 || i.Index != 1 {
			t.Errorf("lo is %+v", i)
		}
	})
}

func TestResolve(t *testing.T) {
	inNamespace(t, func() {
		lo := setUp(t, "lo")
		addAddr(t, lo, "10.0.0.1/24")
		for target, want := range map[string]string{
			"lo":            "127.0.0.1 10.0.0.1 ::1",
			"10.0.0.1":      "10.0.0.1",
			"127.0.0.2":     "127.0.0.2", // not listed, yet the host's own
			"::1":           "::1",
			"::1%lo":        "::1",
			"::ffff:7f00:1": "127.0.0.1",
			"eth7":          "!this host has no network interface eth7; it has lo (127.0.0.1 10.0.0.1 ::1)",
			"192.0.2.1":     "!this host has no interface with the address 192.0.2.1; it has lo (127.0.0.1 10.0.0.1 ::1)",
			"::1%eth0":      "!this host has no interface with the address ::1%eth0; it has lo (127.0.0.1 10.0.0.1 ::1)",
		} {
			i, err := Resolve(target)
			got := addrs(i)
			if err != nil {
				got = "!" + err.Error()
				if missing := new(NotFoundError); !errors.As(err, &missing) {
					t.Errorf("%s: %T", target, err)
				}
			}
			if got != want {
				t.Errorf("%s:\ngot  %s\nwant %s", target, got, want)
			}
		}
	})
}

// Field bug B34: on a host whose IPv6 is switched off a device has its IPv4 addresses, and nothing else is missing.
func TestB34HostWithoutIPv6(t *testing.T) {
	inNamespace(t, func() {
		// The file is that of the namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0); err != nil {
			t.Error(err)
			return
		}
		addAddr(t, setUp(t, "lo"), "10.0.0.1/24")
		list, err := Usable()
		if err != nil || len(list) != 1 || addrs(list[0]) != "127.0.0.1 10.0.0.1" {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestParseSpec(t *testing.T) {
	for s, want := range map[string]Spec{
		"softnic0=eth0": {"softnic0", "eth0"}, "a=::1": {"a", "::1"}, "x=fe80::1%eth0": {"x", "fe80::1%eth0"},
		"": {}, "eth0": {}, "=eth0": {}, "softnic0=": {}, "a/b=eth0": {}, "a b=eth0": {}, strings.Repeat("n", 64) + "=lo": {},
	} {
		got, err := ParseSpec(s)
		if got != want || (err != nil) != (want == Spec{}) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

// An interface is hardware where sysfs has a device behind it, too.
func TestHardware(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		_, err := os.Stat("/sys/class/net/" + i.Name + "/device")
		if errors.Is(err, os.ErrNotExist) && i.Hardware || err == nil && !i.Hardware && !kernelBefore(5, 14) {
			t.Errorf("%s: hardware %v; its device in sysfs: %v", i.Name, i.Hardware, err)
		}
	}
}

// kernelBefore reports whether Linux is older than that.
func kernelBefore(major, minor int) bool {
	var u unix.Utsname
	var a, b int
	if unix.Uname(&u) != nil {
		return true
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); n < 2 {
		return true
	}
	return a < major || a == major && b < minor
}

// Interfaces that are down or have no address get no device by themselves.
func TestUsable(t *testing.T) {
	inNamespace(t, func() {
		if list, err := Usable(); err != nil || len(list) != 0 {
			t.Errorf("with lo down: %v, %v", list, err)
		}
		setUp(t, "lo")
		if list, err := Usable(); err != nil || len(list) != 1 || list[0].Name != "lo" {
			t.Errorf("with lo up: %v, %v", list, err)
		}
	})
}

func TestWatch(t *testing.T) {
	inNamespace(t, func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		events, err := Watch(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		// until reads events until the interface is as it should be.
		until := func(what string, is func(Interface) bool) {
			timeout := time.After(2 * time.Second)
			for {
				select {
				case e, ok := <-events:
					if i, err := ByIndex(max(e.Index, 1)); !ok || err != nil || is(i) {
						if !ok || err != nil {
							t.Errorf("%s: %v, channel open %v", what, err, ok)
						}
						return
					}
				case <-timeout:
					t.Errorf("%s: no event", what)
					return
				}
			}
		}
		lo := setUp(t, "lo")
		until("up", func(i Interface) bool { return i.Up() })
		a := netip.MustParseAddr("10.9.9.9")
		addAddr(t, lo, "10.9.9.9/32")
		until("address", func(i Interface) bool { return slices.Contains(i.Addrs, a) })
		if err := netlink.LinkSetMTU(lo, 9000); err != nil {
			t.Error(err)
		}
		until("MTU", func(i Interface) bool { return i.MTU == 9000 })
		gone, _ := netlink.ParseAddr("10.9.9.9/32")
		if err := netlink.AddrDel(lo, gone); err != nil {
			t.Error(err)
		}
		until("address gone", func(i Interface) bool { return !slices.Contains(i.Addrs, a) })

		// A storm that nobody reads is a few events in the end.
		for n := range 500 {
			if err := netlink.LinkSetMTU(lo, 9000+n); err != nil {
				t.Error(err)
			}
		}
		until("last of many", func(i Interface) bool { return i.MTU == 9499 })
		cancel()
		for range events {
		}
	})
}
