package udp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// Each packet comes once and in order whatever is held meanwhile: of bulk transfers with small packets in between, with pauses
// and without. What is held stays within its bound, and once nothing came for a while nothing is, so that a shard can sleep.
func TestHold(t *testing.T) {
	for _, s := range []scenario{{"IPv4", Config{}, false}, {"IPv6", Config{}, true}} {
		t.Run(s.name, func(t *testing.T) {
			from, to, path := s.open(t)
			socket := to.own[0]
			if to.ReceiveBuffer() < 8<<20 {
				t.Skipf("a receive buffer of %d bytes is too small to hold anything", to.ReceiveBuffer())
			}
			const size = 4096
			rnd := rand.New(rand.NewPCG(7, 7))
			payload := &wire.Buffer{B: fill(size, 7)}
			out, packets := wire.NewBurst(64), make([]wire.Packet, 128)
			var now clock.Time
			var psn, next uint32
			most := 0
			for range 600 {
				frames, n := 60, size
				if rnd.IntN(6) == 0 {
					frames, n = 1+rnd.IntN(5), 16
				}
				for range frames {
					add(t, out, path, wire.RCWriteMiddle, psn, true, payload, n)
					psn++
				}
				sendAll(t, from, out, func() {})
				now = now.Add(time.Duration(rnd.IntN(30)) * time.Microsecond)
				if rnd.IntN(50) == 0 {
					now = now.Add(time.Millisecond)
				}
				for next < psn {
					k := to.Recv(now, packets)
					for i := range packets[:k] {
						if got := uint32(packets[i].PSN()); got != next {
							t.Fatalf("packet %d came, %d was expected", got, next)
						}
						next++
					}
					most = max(most, socket.Held())
				}
			}
			if most < 1<<20 || most > 1<<20+8*recvSize {
				t.Errorf("%d bytes were held at the most, with a receive buffer of %d", most, to.ReceiveBuffer())
			}
			if n := to.Recv(now.Add(time.Millisecond), packets); n != 0 || socket.Held() != 0 {
				t.Errorf("%d more packets came, and %d bytes are still held", n, socket.Held())
			}
			if n, err := unix.Poll([]unix.PollFd{{Fd: int32(to.Descriptor()), Events: unix.POLLIN}}, 0); n != 0 || err != nil {
				t.Errorf("the descriptor is readable (%d, %v), and nothing is there", n, err)
			}
		})
	}
}

// Where somebody else has read what a socket held, as a child might with a descriptor of its own, the port goes on with what comes.
func TestHeldIsGone(t *testing.T) {
	from, to, path := openPair(t, Config{})
	if to.ReceiveBuffer() < 8<<20 {
		t.Skipf("a receive buffer of %d bytes is too small to hold anything", to.ReceiveBuffer())
	}
	out, packets := wire.NewBurst(60), make([]wire.Packet, 128)
	send := func() {
		for i := range 60 {
			add(t, out, path, wire.RCWriteMiddle, uint32(i), true, &wire.Buffer{B: make([]byte, 4096)}, 4096)
		}
		sendAll(t, from, out, func() {})
	}
	for range 3 {
		send()
		recvAll(t, to, packets, 60)
	}
	if to.own[0].Held() == 0 {
		t.Fatal("nothing is held")
	}
	for b := make([]byte, recvSize); ; {
		if _, _, err := unix.Recvfrom(to.own[0].FD, b, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	if n := to.Recv(clock.Time(0).Add(time.Millisecond), packets); n != 0 || to.own[0].Held() != 0 {
		t.Errorf("%d packets came, and %d bytes are held of nothing", n, to.own[0].Held())
	}
	for range 3 {
		send()
		recvAll(t, to, packets, 60)
	}
}

// A port that was told of a device behind its interface holds nothing.
func TestHoldsNothingOfHardware(t *testing.T) {
	from, to, path := openPair(t, Config{Hardware: true})
	out, packets := wire.NewBurst(60), make([]wire.Packet, 128)
	for range 10 {
		for i := range 60 {
			add(t, out, path, wire.RCWriteMiddle, uint32(i), true, &wire.Buffer{B: make([]byte, 4096)}, 4096)
		}
		sendAll(t, from, out, func() {})
		recvAll(t, to, packets, 60)
		if n := to.own[0].Held(); n != 0 {
			t.Fatalf("%d bytes are held", n)
		}
	}
}
