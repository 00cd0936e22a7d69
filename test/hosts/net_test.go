package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/internal/progtest"
	"github.com/softnic/softnicd/verbs"
)

// namespace is a network namespace that lives as long as the test.
type namespace struct {
	*netlink.Handle
	ns netns.NsHandle
}

// newNamespace makes one, and skips the test where it cannot.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	var n namespace
	err := nettest.Inside(-1, func() (err error) {
		n.ns, err = netns.Get()
		return err
	})
	if nettest.Unable(err) {
		t.Skip("needs network namespaces, as root or under unshare -Urn: ", err)
	}
	check(t, err)
	t.Cleanup(func() { n.ns.Close() })
	n.Handle, err = netlink.NewHandleAt(n.ns)
	check(t, err)
	t.Cleanup(n.Close)
	return &n
}

// network is a bridge with hosts on it.
type network struct {
	t     *testing.T
	inner *namespace // where the bridge is
	hosts []*host
}

// host is a namespace with one interface, eth0, and a daemon.
type host struct {
	t      *testing.T
	net    *network
	ns     *namespace
	number int
	fixed  netip.Addr // the only address of the device, if that is what it was made with
	socket string
	ctx    *verbs.Context
	cmd    *exec.Cmd
	said   progtest.Buffer
	async  *events
}

// newNetwork makes n hosts that reach each other, each with 10.9.0.N and fd09::N.
func newNetwork(t *testing.T, n int) *network { return makeNetwork(t, n, true) }

// makeNetwork does so with IPv6 or on hosts where it is switched off.
func makeNetwork(t *testing.T, n int, ipv6 bool) *network {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: daemons in network namespaces")
	}
	w := &network{t: t, inner: newNamespace(t)}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := w.inner.LinkAdd(bridge); errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		t.Skip("needs a kernel with bridges: ", err)
	} else {
		check(t, err)
	}
	check(t, w.inner.LinkSetUp(bridge))
	for i := 1; i <= n; i++ {
		h := &host{t: t, net: w, ns: newNamespace(t), number: i}
		w.hosts = append(w.hosts, h)
		check(t, h.ns.LinkSetUp(must(h.ns.LinkByName("lo"))))
		if !ipv6 {
			h.switchIPv6Off()
		}
		h.plugIn(ipv6)
	}
	for _, h := range w.hosts {
		h.start()
	}
	return w
}

// plugIn gives the host its interface, with its addresses.
func (h *host) plugIn(ipv6 bool) {
	h.t.Helper()
	check(h.t, h.net.inner.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: h.port()}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.ns.ns),
		PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 0, 9, byte(h.number)}, // a card keeps its address
	}))
	port := must(h.net.inner.LinkByName(h.port()))
	check(h.t, h.net.inner.LinkSetMaster(port, must(h.net.inner.LinkByName("br0"))))
	check(h.t, h.net.inner.LinkSetUp(port))
	eth := h.eth()
	h.addAddr(h.addr("v4"))
	if ipv6 {
		// A link-local address of the kernel's would come in its own time, and with it a GID_CHANGE that no test expects.
		if err := h.ns.LinkSetIP6AddrGenMode(eth, nl6AddrGenNone); err != nil {
			h.t.Skip("needs a kernel with IPv6: ", err)
		}
		h.addAddr(h.addr("v6"))
	}
	check(h.t, h.ns.LinkSetUp(eth))
}

// pullOut takes the interface away.
func (h *host) pullOut() {
	h.t.Helper()
	check(h.t, h.net.inner.LinkDel(must(h.net.inner.LinkByName(h.port()))))
}

// switchIPv6Off makes the host one without IPv6.
func (h *host) switchIPv6Off() {
	h.t.Helper()
	// The files are those of the namespace of the thread that opens them.
	if err := nettest.Inside(int(h.ns.ns), func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	}); err != nil {
		h.t.Skip("needs to switch IPv6 off: ", err)
	}
}

// nl6AddrGenNone is IN6_ADDR_GEN_MODE_NONE.
const nl6AddrGenNone = 1

func (h *host) port() string { return fmt.Sprintf("port%d", h.number) }

func (h *host) eth() netlink.Link { return must(h.ns.LinkByName("eth0")) }

// addr is the host's address of a family.
func (h *host) addr(family string) netip.Addr {
	if h.fixed.IsValid() {
		return h.fixed
	}
	if family == "v4" {
		return netip.AddrFrom4([4]byte{10, 9, 0, byte(h.number)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd09::%d", h.number))
}

func prefixed(a netip.Addr) *netlink.Addr {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, a.BitLen())}, Flags: unix.IFA_F_NODAD}
}

func (h *host) addAddr(a netip.Addr) {
	h.t.Helper()
	p := prefixed(a)
	if a.Is4() {
		p.Flags = 0
	}
	check(h.t, h.ns.AddrAdd(h.eth(), p))
}

func (h *host) delAddr(a netip.Addr) {
	h.t.Helper()
	check(h.t, h.ns.AddrDel(h.eth(), prefixed(a)))
}

// cable plugs the host's cable in, or pulls it.
func (h *host) cable(in bool) {
	h.t.Helper()
	port := must(h.net.inner.LinkByName(h.port()))
	if in {
		check(h.t, h.net.inner.LinkSetUp(port))
	} else {
		check(h.t, h.net.inner.LinkSetDown(port))
	}
}

// setMTU changes the MTU of the host's interface and of its cable.
func (h *host) setMTU(mtu int) {
	h.t.Helper()
	check(h.t, h.net.inner.LinkSetMTU(must(h.net.inner.LinkByName(h.port())), mtu))
	check(h.t, h.ns.LinkSetMTU(h.eth(), mtu))
}

// start starts the host's daemon and opens its device.
func (h *host) start() {
	h.t.Helper()
	h.socket = filepath.Join(h.t.TempDir(), "s")
	h.launch("rdma0=eth0")
	h.open("rdma0")
	h.async = newEvents(h.t, h.ctx)
}

// launch starts the host's daemon with these devices. Other flags may be among them.
func (h *host) launch(devices ...string) {
	h.t.Helper()
	h.cmd = exec.Command(softnicd, "run", "--socket", h.socket)
	if testLink != "" {
		h.cmd.Args = append(h.cmd.Args, "--link", testLink)
	}
	for _, d := range devices {
		if !strings.HasPrefix(d, "--") {
			d = "--device=" + d
		}
		h.cmd.Args = append(h.cmd.Args, d)
	}
	h.cmd.Stderr = &h.said
	// A process is born into the namespace of the thread that makes it.
	check(h.t, nettest.Inside(int(h.ns.ns), h.cmd.Start))
	exited := make(chan struct{})
	go func() { h.cmd.Wait(); close(exited) }()
	h.t.Cleanup(func() {
		h.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			h.cmd.Process.Kill()
			<-exited
			h.t.Errorf("host %d: the daemon does not end", h.number)
		}
		if h.t.Failed() {
			h.t.Logf("host %d: the daemon said:\n%s", h.number, h.said.String())
		}
	})
}

// open opens a device of the host's daemon, which has only just been started.
func (h *host) open(device string) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("host %d: the daemon answers", h.number), func() bool {
		ctx, err := verbs.Open(device, verbs.WithSocket(h.socket))
		h.ctx = ctx
		return err == nil
	})
	h.t.Cleanup(func() { h.ctx.Close() })
}

// gid returns the index of an address in the host's GID table, -1 if it is not there.
func (h *host) gid(a netip.Addr) int {
	h.t.Helper()
	for _, e := range must(h.ctx.QueryGIDTable(1)) {
		if e.GID == ib.GIDFromAddr(a) && e.Type == ib.GIDTypeRoCEv2 {
			return e.Index
		}
	}
	return -1
}

// counters returns the device's counters by name.
func (h *host) counters() map[string]uint64 {
	m := map[string]uint64{}
	for _, c := range must(h.ctx.QueryCounters()) {
		m[c.Name] = c.Value
	}
	return m
}

// patience bounds every wait for something that takes milliseconds.
const patience = 10 * time.Second

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// events are the asynchronous events of a context, as they came.
type events struct {
	t    *testing.T
	mu   sync.Mutex
	list []ib.EventType
}

func newEvents(t *testing.T, ctx *verbs.Context) *events {
	e := &events{t: t}
	go func() {
		for {
			v, err := ctx.AsyncEvent(t.Context())
			if err != nil {
				return
			}
			e.mu.Lock()
			e.list = append(e.list, v.Type)
			e.mu.Unlock()
		}
	}()
	return e
}

// expect waits for an event, and takes all that came up to it.
func (e *events) expect(want ib.EventType) {
	e.t.Helper()
	eventually(e.t, want.Name()+" comes", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for i, v := range e.list {
			if v == want {
				e.list = e.list[i+1:]
				return true
			}
		}
		return false
	})
}
