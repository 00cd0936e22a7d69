package verbs_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/nettest"
	"github.com/softnic/softnicd/link/local"
	"github.com/softnic/softnicd/link/raw"
	"github.com/softnic/softnicd/link/udp"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs/embedded"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/net/bpf"
)

// testLink is what the devices of these tests stand on; if nothing is said, the network in memory.
//
//	local      one device, which reaches itself
//	udp, raw   each device has a loopback address of its own
//	udp6, raw6 one device at ::1, which reaches itself by its sockets
//	udp-veth4  devices by turns at the two ends of a cable between namespaces; so raw-veth4, udp-veth6, raw-veth6
var testLink = os.Getenv("SOFTNIC_TEST_LINK")

// testShards is how many shards the devices of these tests have; 0 is 1. testSteering says, of udp, that datagrams reach
// wrong shards.
var (
	testShards, _ = strconv.Atoi(os.Getenv("SOFTNIC_TEST_SHARDS"))
	testSteering  = os.Getenv("SOFTNIC_TEST_STEERING")
)

// links are all values of testLink but none.
var links = []string{"local", "udp", "raw", "udp6", "raw6", "udp-veth4", "raw-veth4", "udp-veth6", "raw-veth6"}

// contract is the tests that say what a service does, whatever carries it, and brief one of each service.
var (
	contract = []string{
		"Operations", "Statuses", "CompletionMeans", "Order", "WindowOfType.", "AtomicWriteAndFlush", "AccessFlags",
		"Rereg", "SRQ", "SRQLimits", "Flush", "Drain", "SQD", "PostList", "UCOperations", "UCLosesSilently",
		"UDConversation", "UDMismatches", "SendQueueError", "AHMistakes", "Multicast", "XRC", "XRCRefuses",
		"EventCommEst", "EventQPAccessErr", "EventLastWQEReached", "RDAtomicLimits",
	}
	brief = []string{"Operations", "SRQ", "UCOperations", "UDConversation", "Multicast", "XRC"}
)

// TestLinks runs the contract again over each link, of which -short is content with less. `make links` runs all tests of
// this package so.
func TestLinks(t *testing.T) {
	if testLink != "" {
		t.Skip("this is such a run")
	}
	tests := contract
	if testing.Short() {
		tests = brief
	}
	for _, link := range links {
		t.Run(link, func(t *testing.T) {
			t.Parallel() // packet sockets take their time to close
			c := exec.Command("/proc/self/exe", "-test.run", "^Test("+strings.Join(tests, "|")+")$", "-test.short", "-test.timeout", "60s")
			c.Env = append(os.Environ(), "SOFTNIC_TEST_LINK="+link)
			out, err := c.CombinedOutput()
			if c.ProcessState != nil && c.ProcessState.ExitCode() == cannot {
				t.Skip(string(out))
			}
			if err != nil {
				t.Errorf("%v\n%s\nrepeat: SOFTNIC_TEST_LINK=%s go test ./verbs", err, out, link)
			}
		})
	}
}

// cannot is the exit code of a run whose link needs a right that it has not got.
const cannot = 3

// runOnLink runs the tests over testLink, where that can be had.
func runOnLink(m *testing.M) int {
	switch err := prepareLink(); {
	case nettest.Unable(err):
		fmt.Println(testLink, "cannot be had here:", err)
		return cannot
	case err != nil:
		fmt.Println(testLink, "cannot be prepared:", err)
		return 1
	}
	return m.Run()
}

// newDevice makes a device on the link that is tested.
func newDevice(o embedded.Options) (*embedded.Device, error) {
	if o.Shards == 0 && o.Trace == nil {
		o.Shards = testShards
	}
	switch {
	case testLink == "":
		return embedded.New(o)
	case alone():
		return shared.device(o)
	}
	return onSockets(o)
}

// alone says that the devices of a network are one device.
func alone() bool {
	return testLink == "local" || strings.HasSuffix(testLink, "6") && !strings.Contains(testLink, "-")
}

// apart skips a test that wants the devices of a network apart.
func apart(t testing.TB) {
	t.Helper()
	if alone() {
		t.Skip("there is one device")
	}
}

// faulty skips a test that wants faults between two devices, where none can be. Two that do not share one have a network in
// memory in a run of local.
func faulty(t testing.TB) {
	t.Helper()
	if alone() && testLink != "local" {
		t.Skip("there is one device")
	}
}

// ends are those of the cable, if the link has one.
var ends [2]nettest.End

// prepareLink finds out whether there can be sockets for testLink, and lays the cable.
func prepareLink() (err error) {
	if strings.HasPrefix(testLink, "raw") {
		fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		syscall.Close(fd)
	}
	if strings.Contains(testLink, "-veth") {
		ends, err = nettest.Cable(9000)
	}
	return err
}

// made numbers the devices.
var made atomic.Uint32

// onCable are the numbers of addresses on the cable that a device has. They are used again, the lowest that there is at an
// end, for the kernel's table of neighbours is small, and one for all namespaces.
var onCable struct {
	sync.Mutex
	taken [256]bool
}

func takeAddress(end uint32) (n int) {
	onCable.Lock()
	defer onCable.Unlock()
	for n = 2 + int(end); onCable.taken[n]; n += 2 {
	}
	onCable.taken[n] = true
	return n
}

func giveAddress(n int) {
	onCable.Lock()
	defer onCable.Unlock()
	onCable.taken[n] = false
}

// onSockets makes a device with an address of its own: in 127.0.0.0/8 one that no other process is likely to use, at the
// end of a cable another one, and of ::1 another port.
func onSockets(o embedded.Options) (*embedded.Device, error) {
	n := made.Add(1)
	at, index, udpPort, closed := -1, 1, uint16(0), func() {}
	kind, cable, _ := strings.Cut(testLink, "-")
	switch {
	case cable != "":
		end := &ends[n%2]
		at, index = end.Namespace, end.Index
		k := takeAddress(n % 2)
		closed = sync.OnceFunc(func() { giveAddress(k) })
		bits := 24
		if o.Addr = netip.AddrFrom4([4]byte{10, 9, 0, byte(k)}); cable == "veth6" {
			o.Addr, bits = netip.MustParseAddr(fmt.Sprintf("fd09::%x", k)), 64
		}
		if err := end.AddAddress(fmt.Sprintf("%s/%d", o.Addr, bits)); err != nil && !errors.Is(err, syscall.EEXIST) {
			return nil, err
		}
	case strings.HasSuffix(kind, "6"):
		o.Addr, udpPort = netip.IPv6Loopback(), uint16(20000+os.Getpid()%1000*20+int(n)%20)
	default:
		o.Addr = netip.AddrFrom4([4]byte{127, byte(192 + os.Getpid()%32), byte(os.Getpid()/32%64*4) + byte(n>>8), byte(n)})
	}
	var ports []nic.Port
	var groups nic.Grouper
	open := func() error {
		if strings.HasPrefix(kind, "raw") {
			s, err := raw.OpenShards(raw.Config{Addrs: []netip.Addr{o.Addr}, Interface: index, Port: udpPort}, max(o.Shards, 1))
			if err == nil {
				ports, groups = listPorts(s.Ports()), s
			}
			return err
		}
		s, err := udp.OpenShards(udp.Config{Addrs: []netip.Addr{o.Addr}, Interface: index, Port: udpPort}, max(o.Shards, 1), steering())
		if err == nil {
			ports, groups = listPorts(s.Ports()), s
		}
		return err
	}
	var err error
	if at < 0 {
		err = open()
	} else {
		err = nettest.Inside(at, open)
	}
	if err != nil {
		return nil, err
	}
	own := ib.GIDFromAddr(o.Addr)
	wrap := o.Wrap
	o.Wrap = func(inMemory nic.Port) nic.Port {
		inMemory.Close()
		port := ports[0]
		ports = ports[1:]
		// What the device says to itself takes the short way, unless there is nothing else.
		p := local.Mux(local.New(1024), port, func(g ib.GID) bool { return g == own && !alone() })
		if wrap != nil {
			p = wrap(p)
		}
		return linked{p, groupsAt{at, groups}, closed}
	}
	return embedded.New(o)
}

func listPorts[P nic.Port](ports []P) (list []nic.Port) {
	for _, p := range ports {
		list = append(list, p)
	}
	return list
}

// steering is how the kernel chooses a shard: as it should, if nothing is said, or always another one.
func steering() func(int) []bpf.Instruction {
	if testSteering != "wrong" {
		return nil
	}
	return func(shards int) []bpf.Instruction {
		p := udp.ByQPN(shards)
		return append(p[:len(p)-1:len(p)-1],
			bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(shards)}, bpf.RetA{})
	}
}

// linked is the port of a device on sockets. What somebody wrote before a packet left comes before what is read behind its
// arrival, but the race detector sees no order through sockets: linked shows it one.
type linked struct {
	nic.Port
	groupsAt
	closed func()
}

// order joins all that was sent with all that is received.
var order atomic.Uint64

func (p linked) Send(now clock.Time, frames []wire.Frame) (int, error) {
	order.Add(1)
	return p.Port.Send(now, frames)
}

func (p linked) Recv(now clock.Time, packets []wire.Packet) int {
	n := p.Port.Recv(now, packets)
	order.Load()
	return n
}

// Deadline is that of what the port is made of.
func (p linked) Deadline() clock.Time { return nic.PortDeadline(p.Port) }

// Close gives the address back.
func (p linked) Close() error {
	err := p.Port.Close()
	p.closed()
	return err
}

// groupsAt joins groups in a namespace: the port makes sockets for that.
type groupsAt struct {
	namespace int
	port      nic.Grouper
}

func (g groupsAt) Join(group ib.GID) error {
	if g.namespace < 0 {
		return g.port.Join(group)
	}
	return nettest.Inside(g.namespace, func() error { return g.port.Join(group) })
}

func (g groupsAt) Leave(group ib.GID) { g.port.Leave(group) }

// oneDevice remembers the device of each network.
type oneDevice struct {
	mu   sync.Mutex
	made map[*embedded.Network]*embedded.Device
}

var shared = oneDevice{made: map[*embedded.Network]*embedded.Device{}}

func (s *oneDevice) device(o embedded.Options) (*embedded.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := o.Network != nil && o.Wrap == nil
	if d := s.made[o.Network]; d != nil && keep {
		return d, nil
	}
	var d *embedded.Device
	var err error
	if testLink == "local" {
		d, err = embedded.New(o)
	} else {
		d, err = onSockets(o)
	}
	if keep {
		s.made[o.Network] = d
	}
	return d, err
}
