package udp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

var lastAddr atomic.Uint32

// loopback returns an address of 127/8 that no other test, of this process or another, is likely to use.
func loopback() netip.Addr {
	n := lastAddr.Add(1)
	return netip.AddrFrom4([4]byte{127, byte(64 + os.Getpid()%64), byte(os.Getpid() / 64), byte(n)})
}

func open(t testing.TB, cfg Config) *Port {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// openPair returns two ports and the path from the first to the second.
func openPair(t testing.TB, cfg Config) (from, to *Port, path *wire.Path) {
	t.Helper()
	a, b := loopback(), loopback()
	cfg.Addrs = []netip.Addr{a}
	from = open(t, cfg)
	cfg.Addrs = []netip.Addr{b}
	to = open(t, cfg)
	return from, to, &wire.Path{Source: ib.GIDFromAddr(a), Dest: ib.GIDFromAddr(b), SourcePort: 50001}
}

// add appends a frame whose payload is b; it goes by its PSN.
func add(t testing.TB, out *wire.Burst, path *wire.Path, op wire.Opcode, psn uint32, stable bool, m wire.Memory, n int) *wire.Frame {
	t.Helper()
	f := out.Next()
	if f == nil {
		t.Fatal("the burst is full")
	}
	f.Path, f.Stable = path, stable
	f.SetHeader(op)
	f.BTH().SetDestQP(0x11)
	f.BTH().SetPSN(ib.NewPSN(psn))
	f.Add(m, 0, n)
	return f
}

// sendAll sends the burst while somebody makes room at the other end.
func sendAll(t testing.TB, p *Port, out *wire.Burst, drain func()) {
	t.Helper()
	for limit := 10000; out.Len() > 0; limit-- {
		n, err := p.Send(0, out.Frames())
		if err != nil {
			t.Fatal(err)
		}
		out.Consume(n)
		drain()
		if limit == 0 {
			t.Fatal("the port stays congested")
		}
	}
}

// received is what a test keeps of a packet.
type received struct {
	op      wire.Opcode
	psn     uint32
	tos     uint8
	ttl     uint8
	payload []byte
	ackReq  bool
}

// recvAll receives until n packets came, or for a second.
func recvAll(t testing.TB, p *Port, packets []wire.Packet, n int) (got []received) {
	t.Helper()
	for end := time.Now().Add(time.Second); len(got) < n; {
		k := p.Recv(0, packets)
		for i := range packets[:k] {
			got = append(got, keep(&packets[i]))
		}
		if k == 0 && time.Now().After(end) {
			t.Fatalf("%d of %d packets came; socket drops %d, ICRC errors %d", len(got), n,
				p.counters.SocketDrops.Load(), p.counters.Dropped[wire.DropICRC].Load())
		}
	}
	return got
}

func keep(p *wire.Packet) received {
	r := received{op: p.Opcode, psn: uint32(p.PSN()), tos: p.TrafficClass, ttl: p.HopLimit, ackReq: p.BTH().AckReq()}
	for _, piece := range p.Payload {
		r.payload = append(r.payload, piece.Mem.Bytes(piece.Off, piece.Len)...)
	}
	return r
}

func fill(n int, seed uint64) []byte {
	b := make([]byte, n)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// scenario is one way for frames to travel.
type scenario struct {
	name string
	cfg  Config
	v6   bool
}

func scenarios() []scenario {
	return []scenario{
		{"IPv4", Config{}, false}, {"IPv6", Config{}, true},
		{"IPv4 without offload", Config{NoOffload: true}, false}, {"IPv6 without offload", Config{NoOffload: true}, true},
	}
}

func (s scenario) open(t testing.TB) (from, to *Port, path *wire.Path) {
	if !s.v6 {
		return openPair(t, s.cfg)
	}
	// There is one IPv6 loopback address: the port sends to itself, away from 4791, which others may be using.
	s.cfg.Addrs = []netip.Addr{netip.IPv6Loopback()}
	var p *Port
	for range 20 {
		s.cfg.Port = uint16(20000 + rand.IntN(10000))
		var err error
		if p, err = Open(s.cfg); errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Skip("this host has no IPv6 loopback")
		} else if err == nil {
			t.Cleanup(func() { p.Close() })
			break
		}
	}
	if p == nil {
		t.Fatal("no port to be had on ::1")
	}
	g := ib.GIDFromAddr(netip.IPv6Loopback())
	return p, p, &wire.Path{Source: g, Dest: g, SourcePort: 50001}
}

// Messages of every shape arrive as they were sent, in order, whatever way the port chooses for them.
func TestRoundTrip(t *testing.T) {
	type frame struct {
		op     wire.Opcode
		n      int
		stable bool
	}
	var write, reads, small, odd []frame
	for i := range 70 {
		op, n := wire.RCWriteMiddle, 4096
		switch i {
		case 0:
			op = wire.RCWriteFirst
		case 69:
			op, n = wire.RCWriteLast, 1001
		}
		write = append(write, frame{op, n, true})
		reads = append(reads, frame{wire.RCReadResponseMiddle, 1024, false})
		small = append(small, frame{wire.RCSendOnly, 64, i%2 == 0})
		odd = append(odd, frame{wire.RCSendOnly, 3 * i, i%3 == 0}, frame{wire.RCSendMiddle, 511 + i%3, true})
	}
	messages := []struct {
		name   string
		frames []frame
	}{{"one empty", []frame{{wire.RCSendOnly, 0, true}}}, {"a WRITE", write}, {"READ responses", reads},
		{"small SENDs", small}, {"odd lengths", odd}}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			from, to, base := s.open(t)
			packets := make([]wire.Packet, 16)
			for _, m := range messages {
				for _, marks := range []struct{ tos, ttl, wantTTL uint8 }{{0, 0, 64}, {0x6a, 7, 7}} {
					path := *base
					path.TrafficClass, path.HopLimit = marks.tos, marks.ttl
					out := wire.NewBurst(256)
					var want []received
					for i, f := range m.frames {
						b := fill(f.n, uint64(i))
						add(t, out, &path, f.op, uint32(i), f.stable, &wire.Buffer{B: b}, f.n)
						want = append(want, received{f.op, uint32(i), marks.tos, marks.wantTTL, b, false})
					}
					sendAll(t, from, out, func() {})
					got := recvAll(t, to, packets, len(want))
					for i := range want {
						if g, w := got[i], want[i]; g.op != w.op || g.psn != w.psn || g.tos != w.tos || g.ttl != w.ttl ||
							!bytes.Equal(g.payload, w.payload) {
							t.Fatalf("%s, packet %d: got %v psn %d tos %#x ttl %d %d bytes, want %v psn %d tos %#x ttl %d %d bytes",
								m.name, i, g.op, g.psn, g.tos, g.ttl, len(g.payload), w.op, w.psn, w.tos, w.ttl, len(w.payload))
						}
					}
				}
			}
		})
	}
}

// Frames for several sockets, paths and address families in one burst go out in order per path.
func TestSendMixedPaths(t *testing.T) {
	from, to, base := openPair(t, Config{})
	out := wire.NewBurst(256)
	var paths [20]wire.Path
	for i := range paths {
		paths[i] = *base
		paths[i].SourcePort += uint16(i)
	}
	for i := range 200 {
		add(t, out, &paths[i/2%20], wire.RCSendOnly, uint32(i), true, &wire.Buffer{B: fill(600, uint64(i))}, 600)
	}
	sendAll(t, from, out, func() {})
	got := recvAll(t, to, make([]wire.Packet, 64), 200)
	for i, g := range got {
		if int(g.psn) != i || !bytes.Equal(g.payload, fill(600, uint64(i))) {
			t.Fatalf("packet %d: psn %d", i, g.psn)
		}
	}
}

// What a call leaves behind, the next ones bring, and the packets of one call are whole until then.
func TestRecvInParts(t *testing.T) {
	from, to, path := openPair(t, Config{})
	for _, room := range []int{1, 3, 7} {
		out := wire.NewBurst(128)
		for i := range 100 {
			add(t, out, path, wire.RCSendOnly, uint32(i), false, &wire.Buffer{B: fill(900, uint64(i))}, 900)
		}
		sendAll(t, from, out, func() {})
		packets := make([]wire.Packet, room)
		for i := 0; i < 100; {
			n := to.Recv(0, packets)
			if n == 0 {
				t.Fatalf("%d packets came", i)
			}
			for k := range packets[:n] {
				if g := keep(&packets[k]); int(g.psn) != i || !bytes.Equal(g.payload, fill(900, uint64(i))) {
					t.Fatalf("packet %d: psn %d", i, g.psn)
				}
				i++
			}
		}
		if n := to.Recv(0, packets); n != 0 {
			t.Fatalf("%d packets too many", n)
		}
	}
}

// The identification that the sender reckons with is the one that the receiver expects, so that the ICRC is checked in
// all its 32 bits.
func TestIdentification(t *testing.T) {
	for _, cfg := range []Config{{}, {NoOffload: true}} {
		from, to, path := openPair(t, cfg)
		out := wire.NewBurst(16)
		add(t, out, path, wire.RCSendMiddle, 0, true, &wire.Buffer{B: fill(1024, 1)}, 1024)
		for i, stable := range []bool{true, false} {
			add(t, out, path, wire.RCSendMiddle, uint32(1+4*i), stable, &wire.Buffer{B: fill(4*1024, 1)}, 4*1024).SetRun(4)
		}
		add(t, out, path, wire.RCSendMiddle, 9, false, &wire.Buffer{B: fill(1024, 1)}, 1024)
		sendAll(t, from, out, func() {})
		packets := make([]wire.Packet, 1)
		for i := range 10 {
			if to.Recv(0, packets) != 1 {
				t.Fatal("nothing came")
			}
			want := uint16(i)
			if cfg.NoOffload {
				want = 0
			}
			if id := to.in.Datagram.ID; id != want {
				t.Errorf("no offload %v, segment %d had identification %d, want %d", cfg.NoOffload, i, id, want)
			}
		}
	}
}

// On the wire, without help from a receiver that forgives: a single datagram has identification 0 and DF.
func TestIdentificationOnTheWire(t *testing.T) {
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		t.Skip("no raw socket: ", err)
	}
	defer unix.Close(raw)
	from, _, path := openPair(t, Config{NoOffload: true})
	dst := path.Dest.Addr().As4()
	if err := unix.Bind(raw, &unix.SockaddrInet4{Addr: dst}); err != nil {
		t.Fatal(err)
	}
	_ = unix.SetsockoptTimeval(raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	out := wire.NewBurst(4)
	for i := range 3 {
		add(t, out, path, wire.RCSendOnly, uint32(i), i == 1, &wire.Buffer{B: fill(700, 1)}, 700)
	}
	sendAll(t, from, out, func() {})
	b := make([]byte, 2048)
	for i := range 3 {
		n, err := unix.Read(raw, b)
		if err != nil {
			t.Fatal(err)
		}
		var p wire.Packet
		d := wire.Datagram{Bytes: b[28:n], Source: path.Source, Dest: path.Dest, SourcePort: uint16(b[20])<<8 | uint16(b[21]),
			ID: uint16(b[4])<<8 | uint16(b[5]), IDKnown: true}
		if drop := wire.Parse(&p, &d); d.ID != 0 || b[6] != 0x40 || drop != wire.Accepted {
			t.Errorf("datagram %d: identification %d, flags %#x, %v", i, d.ID, b[6], drop)
		}
	}
}

func TestPortTaken(t *testing.T) {
	a := loopback()
	open(t, Config{Addrs: []netip.Addr{a}})
	_, err := Open(Config{Addrs: []netip.Addr{a}})
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("second port on %s: %v", a, err)
	}
	want := fmt.Sprintf("UDP port 4791 on %s is taken: another softnicd or the kernel's rdma_rxe owns it; "+
		"stop it or give this device another address: address already in use", a)
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestAddressMissing(t *testing.T) {
	if _, err := Open(Config{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("got %v", err)
	}
	if _, err := Open(Config{}); err == nil {
		t.Fatal("a port without address opened")
	}
}

// An address taken away gets nothing and can be had by others; one that stays loses nothing.
func TestSetAddrs(t *testing.T) {
	from, to, path := openPair(t, Config{})
	first, second := path.Dest.Addr(), loopback()
	descriptor := to.Descriptor()
	if err := to.SetAddrs([]netip.Addr{first, second, second}); err != nil {
		t.Fatal(err)
	}
	toSecond := *path
	toSecond.Dest = ib.GIDFromAddr(second)
	out := wire.NewBurst(8)
	send := func(path *wire.Path, psn uint32) {
		add(t, out, path, wire.RCSendOnly, psn, false, nil, 0)
		sendAll(t, from, out, func() {})
	}
	send(path, 1)
	if err := to.SetAddrs([]netip.Addr{second, first}); err != nil {
		t.Fatal(err)
	}
	send(&toSecond, 2)
	packets := make([]wire.Packet, 8)
	got := recvAll(t, to, packets, 2)
	if got[0].psn+got[1].psn != 3 {
		t.Errorf("got %v", got)
	}
	if err := to.SetAddrs([]netip.Addr{second}); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Addrs: []netip.Addr{first}})
	if err := to.SetAddrs([]netip.Addr{first, second}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("an address of another port: %v", err)
	}
	send(&toSecond, 4)
	recvAll(t, to, packets, 1)
	if to.Descriptor() != descriptor || len(to.Addrs()) != 1 {
		t.Errorf("descriptor %d, was %d; addresses %v", to.Descriptor(), descriptor, to.Addrs())
	}
}

// With several addresses, one that is flooded does not shut out the others.
func TestRecvIsFair(t *testing.T) {
	from, to, path := openPair(t, Config{NoOffload: true})
	second := loopback()
	if err := to.SetAddrs([]netip.Addr{path.Dest.Addr(), second}); err != nil {
		t.Fatal(err)
	}
	toSecond := *path
	toSecond.Dest = ib.GIDFromAddr(second)
	out := wire.NewBurst(128)
	for range 100 {
		add(t, out, path, wire.RCSendOnly, 1, false, nil, 0)
	}
	add(t, out, &toSecond, wire.RCSendOnly, 2, false, nil, 0)
	sendAll(t, from, out, func() {})
	packets := make([]wire.Packet, 4)
	for range 6 {
		for i := range packets[:to.Recv(0, packets)] {
			if packets[i].PSN() == 2 {
				return
			}
		}
	}
	t.Error("the second address waited for more than six calls")
}

func TestDescriptor(t *testing.T) {
	from, to, path := openPair(t, Config{})
	poll := func(timeout int) int {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(to.Descriptor()), Events: unix.POLLIN}}, timeout)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if poll(0) != 0 {
		t.Fatal("readable before anything came")
	}
	out := wire.NewBurst(1)
	add(t, out, path, wire.RCSendOnly, 1, false, nil, 0)
	sendAll(t, from, out, func() {})
	if poll(1000) != 1 {
		t.Fatal("not readable")
	}
	recvAll(t, to, make([]wire.Packet, 4), 1)
	if poll(0) != 0 {
		t.Fatal("readable when nothing is left")
	}
}

// What is no packet is counted by kind, and what comes behind it is received.
func TestMalformed(t *testing.T) {
	from, to, path := openPair(t, Config{})
	conn, err := net.Dial("udp", netip.AddrPortFrom(path.Dest.Addr(), wire.Port).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good, err := add(t, wire.NewBurst(1), path, wire.RCSendOnly, 1, false, nil, 0).AppendTo(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	unknown := append([]byte{0x1f}, good[1:]...)
	for _, b := range [][]byte{{}, {1, 2, 3}, unknown, good /* for another source: its ICRC is wrong */} {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	out := wire.NewBurst(1)
	add(t, out, path, wire.RCSendOnly, 9, false, nil, 0)
	sendAll(t, from, out, func() {})
	if got := recvAll(t, to, make([]wire.Packet, 4), 1); got[0].psn != 9 {
		t.Errorf("got %v", got)
	}
	for drop, want := range map[wire.Drop]uint64{wire.DropTooShort: 2, wire.DropUnknownOpcode: 1, wire.DropICRC: 1} {
		if n := to.Counters().Dropped[drop].Load(); n != want {
			t.Errorf("%v: %d dropped, want %d", drop, n, want)
		}
	}
}

func TestAccept(t *testing.T) {
	var refused ib.GID
	from, to, path := openPair(t, Config{Accept: func(g ib.GID) bool { return g != refused }})
	out := wire.NewBurst(8)
	for i := range 5 {
		add(t, out, path, wire.RCSendOnly, uint32(i), false, nil, 0)
	}
	refused = path.Source
	sendAll(t, from, out, func() {})
	if n := to.Recv(0, make([]wire.Packet, 8)); n != 0 || to.Counters().Filtered.Load() == 0 {
		t.Errorf("%d packets of a refused source; %d filtered", n, to.Counters().Filtered.Load())
	}
	refused = ib.GID{}
	add(t, out, path, wire.RCSendOnly, 7, false, nil, 0)
	sendAll(t, from, out, func() {})
	recvAll(t, to, make([]wire.Packet, 8), 1)
}

func TestClosed(t *testing.T) {
	from, _, path := openPair(t, Config{})
	out := wire.NewBurst(1)
	add(t, out, path, wire.RCSendOnly, 1, false, nil, 0)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	if err := from.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if n, err := from.Send(0, out.Frames()); n != 0 || err == nil {
		t.Errorf("Send took %d frames, %v", n, err)
	}
	var fault *nic.FrameFault
	if _, err := from.Send(0, out.Frames()); errors.As(err, &fault) {
		t.Error("a closed port blames the frame")
	}
	if n := from.Recv(0, make([]wire.Packet, 1)); n != 0 {
		t.Errorf("Recv gave %d packets", n)
	}
}

// Datagrams that find the receive buffer full are counted, by the next one that does not.
func TestSocketDrops(t *testing.T) {
	from, to, path := openPair(t, Config{NoOffload: true, ReceiveBuffer: 64 << 10})
	out := wire.NewBurst(500)
	for i := range 500 {
		add(t, out, path, wire.RCSendOnly, uint32(i), false, &wire.Buffer{B: make([]byte, 1024)}, 1024)
	}
	sendAll(t, from, out, func() {})
	packets := make([]wire.Packet, 16)
	drain := func() (n int) {
		for k := 1; k > 0; n += k {
			k = to.Recv(0, packets)
		}
		return n
	}
	got := drain()
	add(t, out, path, wire.RCSendOnly, 1, false, nil, 0)
	sendAll(t, from, out, func() {})
	if last, lost := drain(), to.Counters().SocketDrops.Load(); last != 1 || lost == 0 || uint64(got)+lost != 500 {
		t.Errorf("%d of 500 datagrams came, %d counted as dropped", got, lost)
	}
}
