package verbs_test

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/link/raw"
	"github.com/softnic/softnicd/link/udp"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs/embedded"
)

// testLink is what the devices of these tests stand on: udp or raw, on loopback addresses; local, where the devices of one
// network are one device; or, if nothing is said, the network in memory.
var testLink = os.Getenv("SOFTNIC_TEST_LINK")

// contract is the tests that say what a service does, whatever carries it.
var contract = []string{
	"Operations", "Statuses", "CompletionMeans", "Order", "WindowOfType.", "AtomicWriteAndFlush", "AccessFlags",
	"Rereg", "SRQ", "SRQLimits", "Flush", "Drain", "SQD", "PostList", "UCOperations", "UCLosesSilently", "UDConversation",
	"UDMismatches", "XRC", "XRCRefuses",
}

// TestLinks runs the contract again over each link. `make links` runs all tests of this package so.
func TestLinks(t *testing.T) {
	if testLink != "" {
		t.Skip("this is such a run")
	}
	if testing.Short() {
		t.Skip("three more runs")
	}
	tests := "^Test(" + strings.Join(contract, "|") + ")$"
	for _, link := range []string{"udp", "raw", "local"} {
		t.Run(link, func(t *testing.T) {
			if link == "raw" {
				needRaw(t)
			}
			c := exec.Command(os.Args[0], "-test.run", tests, "-test.short", "-test.timeout", "60s")
			c.Env = append(os.Environ(), "SOFTNIC_TEST_LINK="+link)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\nrepeat: SOFTNIC_TEST_LINK=%s go test ./verbs", err, out, link)
			}
		})
	}
}

// needRaw skips a test for want of CAP_NET_RAW.
func needRaw(t testing.TB) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip("no packet socket: ", err)
	}
	syscall.Close(fd)
}

// newDevice makes a device on the link that is tested.
func newDevice(o embedded.Options) (*embedded.Device, error) {
	switch testLink {
	case "udp", "raw":
		return onSockets(o)
	case "local":
		return shared.device(o)
	}
	return embedded.New(o)
}

// apart skips a test that wants the devices of a network apart.
func apart(t testing.TB) {
	t.Helper()
	if testLink == "local" {
		t.Skip("there is one device")
	}
}

// made numbers the loopback addresses; no other process is likely to use them.
var made atomic.Uint32

func onSockets(o embedded.Options) (*embedded.Device, error) {
	n := made.Add(1)
	o.Addr = netip.AddrFrom4([4]byte{127, byte(192 + os.Getpid()%32), byte(os.Getpid()/32%64*4) + byte(n>>8), byte(n)})
	var port nic.Port
	var err error
	if testLink == "raw" {
		port, err = raw.Open(raw.Config{Addrs: []netip.Addr{o.Addr}, Interface: 1})
	} else {
		port, err = udp.Open(udp.Config{Addrs: []netip.Addr{o.Addr}})
	}
	if err != nil {
		return nil, err
	}
	own := ib.GIDFromAddr(o.Addr)
	wrap := o.Wrap
	o.Wrap = func(inMemory nic.Port) nic.Port {
		inMemory.Close()
		p := local.Mux(local.New(1024), port, func(g ib.GID) bool { return g == own })
		if wrap != nil {
			p = wrap(p)
		}
		return p
	}
	return embedded.New(o)
}

// oneDevice remembers the device of each network.
type oneDevice struct {
	mu   sync.Mutex
	made map[*embedded.Network]*embedded.Device
}

var shared = oneDevice{made: map[*embedded.Network]*embedded.Device{}}

func (s *oneDevice) device(o embedded.Options) (*embedded.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.made[o.Network]; d != nil && o.Network != nil && o.Wrap == nil {
		return d, nil
	}
	d, err := embedded.New(o)
	if o.Network != nil && o.Wrap == nil {
		s.made[o.Network] = d
	}
	return d, err
}
