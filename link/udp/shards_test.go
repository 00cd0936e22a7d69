package udp

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func openShards(t *testing.T, cfg Config, n int, steer func(int) []bpf.Instruction) *Shards {
	t.Helper()
	s, err := OpenShards(cfg, n, steer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// arrivals sends a packet for each number and returns which port got it.
func arrivals(t *testing.T, from *Port, path *wire.Path, s *Shards, numbers []ib.QPN) map[ib.QPN]int {
	t.Helper()
	out := wire.NewBurst(len(numbers))
	body := &wire.Buffer{B: make([]byte, 4*len(numbers))}
	for i, n := range numbers {
		// Longer than the one before, so that no two make a group.
		f := add(t, out, path, wire.UDSendOnly, uint32(i), true, body, 4*(i+1))
		f.BTH().SetDestQP(n)
	}
	sendAll(t, from, out, func() {})
	at := map[ib.QPN]int{}
	packets := make([]wire.Packet, 16)
	for end := time.Now().Add(time.Second); len(at) < len(numbers); {
		for i, p := range s.Ports() {
			for k := range p.Recv(0, packets) {
				at[packets[k].BTH().DestQP()] = i
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d packets came", len(at), len(numbers))
		}
	}
	return at
}

// The kernel gives each datagram to the shard of its queue pair, whatever the number of shards, at addresses of both
// families, and at one that was added later.
func TestShards(t *testing.T) {
	numbers := make([]ib.QPN, 40)
	for i := range numbers {
		numbers[i] = ib.QPN(0x5a1f20 + i*7)
	}
	for _, shards := range []int{1, 2, 3, 4, 5} {
		for _, home := range []netip.Addr{loopback(), netip.IPv6Loopback()} {
			cfg := Config{Addrs: []netip.Addr{home}, SendSockets: 1, ReceiveBuffer: 1 << 20}
			if home.Is6() {
				cfg.Port = 14791
			}
			s := openShards(t, cfg, shards, nil)
			other := home
			if home.Is4() {
				other = loopback()
				if err := s.SetAddrs([]netip.Addr{home, other}); err != nil {
					t.Fatal(err)
				}
			}
			cfg.Addrs = []netip.Addr{loopback()}
			from := open(t, cfg)
			if home.Is6() {
				from = s.Ports()[shards-1]
			}
			for _, a := range []netip.Addr{home, other} {
				path := &wire.Path{Source: ib.GIDFromAddr(cfg.Addrs[0]), Dest: ib.GIDFromAddr(a), SourcePort: 50001}
				if home.Is6() {
					path.Source = path.Dest
				}
				for n, at := range arrivals(t, from, path, s, numbers) {
					if want := nic.ShardOf(n, shards); at != want {
						t.Errorf("%d shards at %s: a packet for %s came to %d, not to %d", shards, a, n, at, want)
					}
				}
			}
			s.Close()
		}
	}
}

// Whoever is not one of the shards gets no share of the port, not even by the same user.
func TestShardsKeepThePort(t *testing.T) {
	a := loopback()
	cfg := Config{Addrs: []netip.Addr{a}}
	openShards(t, cfg, 3, nil)
	if _, err := Open(cfg); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second port: %v", err)
	}
	if _, err := OpenShards(cfg, 3, nil); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("second shards: %v", err)
	}
	b := loopback()
	cfg.Addrs = []netip.Addr{b}
	open(t, cfg)
	if _, err := OpenShards(cfg, 3, nil); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("shards of a port that is taken: %v", err)
	}
}

// What cannot be had changes nothing, and leaves nothing open.
func TestShardsSetAddrsFails(t *testing.T) {
	a := loopback()
	cfg := Config{Addrs: []netip.Addr{a}, SendSockets: 1}
	s := openShards(t, cfg, 3, nil)
	fresh := loopback()
	if err := s.SetAddrs([]netip.Addr{a, fresh, netip.MustParseAddr("192.0.2.77")}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Fatalf("an address that nobody has: %v", err)
	}
	cfg.Addrs = []netip.Addr{fresh}
	from := open(t, cfg) // nothing holds it
	path := &wire.Path{Source: ib.GIDFromAddr(fresh), Dest: ib.GIDFromAddr(a), SourcePort: 50001}
	for n, at := range arrivals(t, from, path, s, []ib.QPN{0x100, 0x101, 0x102}) {
		if at != nic.ShardOf(n, 3) {
			t.Errorf("a packet for %s came to %d", n, at)
		}
	}
	if err := s.SetAddrs([]netip.Addr{loopback()}); err != nil {
		t.Fatal(err)
	}
	cfg.Addrs = []netip.Addr{a}
	open(t, cfg) // given up
}

// A program that steers wrongly does so: tests of what devices do then depend on it.
func TestMissteering(t *testing.T) {
	a, b := loopback(), loopback()
	wrong := func(shards int) []bpf.Instruction {
		p := ByQPN(shards)
		return append(p[:len(p)-1:len(p)-1],
			bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(shards)}, bpf.RetA{})
	}
	s := openShards(t, Config{Addrs: []netip.Addr{a}, SendSockets: 1}, 4, wrong)
	from := open(t, Config{Addrs: []netip.Addr{b}, SendSockets: 1})
	path := &wire.Path{Source: ib.GIDFromAddr(b), Dest: ib.GIDFromAddr(a), SourcePort: 50001}
	for n, at := range arrivals(t, from, path, s, []ib.QPN{0x1000, 0x2001, 0x3002, 0x4003}) {
		if want := (nic.ShardOf(n, 4) + 1) % 4; at != want {
			t.Errorf("a packet for %s came to %d, not to %d", n, at, want)
		}
	}
}
