package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// info is what this test reads of `devinfo -o json`.
type info struct {
	Name  string `json:"hca_id"`
	GUID  string `json:"node_guid"`
	MaxQP int    `json:"max_qp"`
	Ports []struct {
		Port      int    `json:"port"`
		State     string `json:"state"`
		ActiveMTU int    `json:"active_mtu"`
		Netdev    string `json:"netdev"`
		MTU       int    `json:"netdev_mtu"`
		Index     int    `json:"netdev_ifindex"`
		GIDs      []struct {
			Index int    `json:"index"`
			GID   string `json:"gid"`
			Addr  string `json:"address"`
			Type  string `json:"type"`
		} `json:"gids"`
	} `json:"ports"`
}

func (i *info) addresses() (list []string) {
	for _, g := range i.Ports[0].GIDs {
		list = append(list, g.Addr)
	}
	return list
}

// devinfo runs the command in both forms.
func devinfo(t *testing.T, socket, device string) (info, string) {
	t.Helper()
	r := softnic(t, patience, "devinfo", "--socket", socket, "-d", device, "-o", "json")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var list []info
	check(t, json.Unmarshal([]byte(r.stdout), &list))
	if len(list) != 1 || list[0].Name != device || len(list[0].Ports) != 1 || list[0].Ports[0].Port != 1 {
		t.Fatalf("devices %+v", list)
	}
	text := softnic(t, patience, "devinfo", "-v", "--socket", socket, "-d", device)
	if text.code != 0 {
		t.Fatalf("exit code %d: %s", text.code, text.stderr)
	}
	return list[0], text.stdout
}

// field finds the value of a field in the text, as scripts that read ibv_devinfo do.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && k == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// mtuFor is the largest path MTU whose packets, with all headers, fit an interface's MTU.
func mtuFor(link int) string {
	for _, m := range []struct{ size, code int }{{4096, 5}, {2048, 4}, {1024, 3}, {512, 2}} {
		// IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28, ICRC 4.
		if link >= m.size+96 {
			return fmt.Sprintf("%d (%d)", m.size, m.code)
		}
	}
	return "256 (1)"
}

// What devinfo says of the real interfaces is what the system says of them.
func TestDevinfo(t *testing.T) {
	d := startDaemon(t)
	for _, name := range deviceNames(t, d.socket) {
		ctx := d.open(name)
		port, err := ctx.QueryPort(1)
		check(t, err)
		netdev := strings.TrimRight(string(port.Netdev[:]), "\x00")
		system, err := net.InterfaceByName(netdev)
		check(t, err)
		if int(port.NetdevIfindex) != system.Index || int(port.LinkMTU) != system.MTU {
			t.Errorf("%s: index %d, MTU %d; the system says %d and %d", netdev, port.NetdevIfindex, port.LinkMTU, system.Index, system.MTU)
		}
		i, text := devinfo(t, d.socket, name)
		if p := i.Ports[0]; p.State != "PORT_ACTIVE" || p.Netdev != netdev || p.MTU != system.MTU || p.Index != system.Index ||
			!strings.HasPrefix(mtuFor(system.MTU), fmt.Sprint(p.ActiveMTU, " ")) || i.MaxQP != 16384 {
			t.Errorf("%s as JSON: %+v", name, i)
		}
		for k, want := range map[string]string{
			"hca_id": name, "transport": "InfiniBand (0)", "node_guid": i.GUID, "phys_port_cnt": "1", "state": "PORT_ACTIVE (4)",
			"max_mtu": "4096 (5)", "active_mtu": mtuFor(system.MTU), "link_layer": "Ethernet", "port_lid": "0",
			"netdev": fmt.Sprintf("%s (mtu %d)", netdev, system.MTU), "max_qp": "16384",
		} {
			if got := field(text, k); got != want {
				t.Errorf("%s: %s: %q, want %q", name, k, got, want)
			}
		}
		var want []string
		addrs, err := system.Addrs()
		check(t, err)
		for _, a := range addrs {
			want = append(want, a.(*net.IPNet).IP.String())
		}
		got := i.addresses()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: GIDs of %v, the interface has %v", name, got, want)
		}
		checkGIDs(t, &i, text)
	}
	short := softnic(t, patience, "devinfo", "--socket", d.socket)
	if strings.Contains(short.stdout, "GID[") || strings.Contains(short.stdout, "max_qp:") || !strings.Contains(short.stdout, "PORT_ACTIVE") {
		t.Errorf("without -v:\n%s", short.stdout)
	}
	if r := softnic(t, patience, "devinfo", "--socket", d.socket, "-d", "nosuch"); r.code != 1 || !strings.Contains(r.stderr, "nosuch") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
	if r := softnic(t, patience, "devinfo", "-o", "xml"); r.code != 2 {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
}

// checkGIDs compares the GIDs with their addresses, byte by byte, and with the text.
func checkGIDs(t *testing.T, i *info, text string) {
	t.Helper()
	for _, g := range i.Ports[0].GIDs {
		b := netip.MustParseAddr(g.Addr).As16() // IPv4 addresses are mapped
		var want []string
		for k := 0; k < 16; k += 2 {
			want = append(want, fmt.Sprintf("%02x%02x", b[k], b[k+1]))
		}
		if gid := strings.Join(want, ":"); g.GID != gid || g.Type != "RoCE v2" || field(text, fmt.Sprintf("GID[%3d]", g.Index)) != gid+", RoCE v2" {
			t.Errorf("GID %d is %s, %s, of %s; the text has %q", g.Index, g.GID, g.Type, g.Addr, field(text, fmt.Sprintf("GID[%3d]", g.Index)))
		}
	}
}

// namespace is a network namespace with a pair of interfaces, v0 and v1, of MTU 1500.
type namespace struct {
	t    *testing.T
	name string
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	progtest.Need(t, "ip")
	needRoot(t, "to make a network namespace")
	n := &namespace{t, fmt.Sprintf("softnicd-e2e-%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "not permitted") || strings.Contains(string(out), "denied") {
			t.Skipf("no network namespace: %s", out)
		}
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", n.name).Run() })
	// Addresses need not wait for duplicate detection.
	n.exec("sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad")
	n.ip("link set lo up")
	n.ip("link add v0 mtu 1500 type veth peer name v1 mtu 1500")
	n.ip("addr add 10.77.0.1/24 dev v0")
	n.ip("link set v1 up")
	n.ip("link set v0 up")
	n.ip("addr add fd77::1/64 dev v0 nodad")
	return n
}

func (n *namespace) exec(args ...string) string {
	n.t.Helper()
	out, err := exec.Command("ip", append([]string{"netns", "exec", n.name}, args...)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// ip runs `ip ...` in the namespace.
func (n *namespace) ip(args string) string {
	n.t.Helper()
	return n.exec(append([]string{"ip"}, strings.Fields(args)...)...)
}

// daemon starts a daemon in the namespace.
func (n *namespace) daemon(args ...string) *daemon {
	d := newDaemon(n.t, args...)
	d.cmd.Path = must(exec.LookPath("ip"))
	d.cmd.Args = append([]string{"ip", "netns", "exec", n.name}, d.cmd.Args...)
	d.start()
	return d
}

// An interface with MTU 1500 and addresses of three kinds, and what becomes of it while the daemon runs.
func TestDevinfoChanges(t *testing.T) {
	n := newNamespace(t)
	linkLocal := ""
	eventually(t, "v0 has a link-local address", patience, func() bool {
		for _, w := range strings.Fields(n.ip("-6 -o addr show dev v0 scope link -tentative")) {
			if a, ok := strings.CutSuffix(w, "/64"); ok {
				linkLocal = a
			}
		}
		return linkLocal != ""
	})
	d := n.daemon("--device", "veth=v0")
	i, text := devinfo(t, d.socket, "veth")
	got := i.addresses()
	slices.Sort(got)
	if want := []string{"10.77.0.1", "fd77::1", linkLocal}; !slices.Equal(got, want) {
		t.Errorf("GIDs of %v, want %v", got, want)
	}
	checkGIDs(t, &i, text)
	if s, m := field(text, "state"), field(text, "active_mtu"); s != "PORT_ACTIVE (4)" || m != "1024 (3)" {
		t.Errorf("state %s, active_mtu %s", s, m)
	}

	ctx := d.open("veth")
	expect := func(change string, want ib.EventType) {
		t.Helper()
		n.ip(change)
		for limit := timeout(t); ; {
			e, err := ctx.AsyncEvent(limit)
			if err != nil {
				t.Fatalf("%s: waiting for %v: %v", change, want, err)
			}
			if e.Type == want && e.Port == 1 {
				return
			}
		}
	}
	find := func(address string) int {
		t.Helper()
		table, err := ctx.QueryGIDTable(1)
		check(t, err)
		for _, e := range table {
			if e.GID.Addr().String() == address {
				return e.Index
			}
		}
		return -1
	}
	ula, v4 := find("fd77::1"), find("10.77.0.1")

	expect("addr del fd77::1/64 dev v0", ib.EventGIDChange)
	if _, err := ctx.QueryGID(1, ula); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("the slot of an address that is gone: %v", err)
	}
	if find("10.77.0.1") != v4 {
		t.Error("another GID moved")
	}
	expect("addr add fd77::2/64 dev v0 nodad", ib.EventGIDChange)
	if find("fd77::2") < 0 {
		t.Error("a new address has no GID")
	}

	port := func(state ib.PortState, mtu ib.MTU) {
		t.Helper()
		var p ib.PortAttr
		eventually(t, fmt.Sprintf("port %v with MTU %v", state, mtu), patience, func() bool {
			var err error
			p, err = ctx.QueryPort(1)
			check(t, err)
			return p.State == state && p.ActiveMTU == mtu
		})
	}
	expect("link set v1 down", ib.EventPortErr)
	port(ib.PortDown, ib.MTU1024)
	if _, text := devinfo(t, d.socket, "veth"); field(text, "state") != "PORT_DOWN (1)" {
		t.Errorf("state %s", field(text, "state"))
	}
	expect("link set v1 up", ib.EventPortActive)
	port(ib.PortActive, ib.MTU1024)
	n.ip("link set v0 mtu 9000")
	port(ib.PortActive, ib.MTU4096)
	n.ip("link set v0 mtu 1400")
	port(ib.PortActive, ib.MTU1024)
	n.ip("link set v0 mtu 1280")
	port(ib.PortActive, ib.MTU1024)

	// The interface itself goes away: the port is down and the daemon lives.
	expect("link del v0", ib.EventPortErr)
	if _, err := ctx.QueryDevice(); err != nil {
		t.Error(err)
	}
	d.stop()
}

// A device restricted to an address has no other.
func TestDevinfoOneAddress(t *testing.T) {
	n := newNamespace(t)
	d := n.daemon("--device", "only=10.77.0.1", "--device", "home=::1")
	i, _ := devinfo(t, d.socket, "only")
	if got := i.addresses(); !slices.Equal(got, []string{"10.77.0.1"}) {
		t.Errorf("GIDs of %v", got)
	}
	if i, _ = devinfo(t, d.socket, "home"); !slices.Equal(i.addresses(), []string{"::1"}) {
		t.Errorf("GIDs of %v", i.addresses())
	}
	if _, err := verbs.Open("veth", verbs.WithSocket(d.socket)); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("a device that is not there: %v", err)
	}
}
