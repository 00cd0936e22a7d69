package udp

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// mapping returns n bytes that Go does not own.
func mapping(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func forbid(t testing.TB, b []byte) { protect(t, b, unix.PROT_NONE) }

func protect(t testing.TB, b []byte, how int) {
	t.Helper()
	if err := unix.Mprotect(b, how); err != nil {
		t.Fatal(err)
	}
}

// A frame whose payload is gone is reported by itself: what was before it is sent, and so is what follows once the caller
// has dropped it.
func TestFrameFault(t *testing.T) {
	for _, s := range scenarios() {
		for _, stable := range []bool{true, false} {
			for _, bad := range []int{0, 3, 9} {
				from, to, path := s.open(t)
				gone := mapping(t, 4096)
				forbid(t, gone)
				out := wire.NewBurst(16)
				for i := range 10 {
					var m wire.Memory = &wire.Buffer{B: make([]byte, 1024)}
					if i == bad {
						m = dma.NewShared(gone, nil)
					}
					add(t, out, path, wire.RCSendOnly, uint32(i), stable, m, 1024)
				}
				n, err := from.Send(0, out.Frames())
				var fault *nic.FrameFault
				var memory *dma.Fault
				if n != bad || !errors.As(err, &fault) || !errors.As(err, &memory) {
					t.Fatalf("%s, stable %v: Send took %d of %d frames: %v", s.name, stable, n, bad, err)
				}
				out.Consume(n + 1)
				sendAll(t, from, out, func() {})
				for i, g := range recvAll(t, to, make([]wire.Packet, 16), 9) {
					want := i
					if i >= bad {
						want++
					}
					if int(g.psn) != want {
						t.Errorf("%s, stable %v: packet %d has PSN %d, want %d", s.name, stable, i, g.psn, want)
					}
				}
			}
		}
	}
}

// watched is memory that tells when it is asked for.
type watched struct {
	dma.Region
	asked func()
}

func (w *watched) Bytes(off uint64, n int) []byte {
	w.asked()
	return w.Region.Bytes(off, n)
}

// The kernel finds the fault, in memory that was there when the ICRC was made and is gone since, for a while or for good: the
// group is gone through packet by packet. Of a run that cannot be read, nothing is sent behind the packet that it fails at.
func TestFaultInKernel(t *testing.T) {
	for _, c := range []struct {
		forGood bool
		run     int
	}{{false, 1}, {true, 1}, {false, 3}, {true, 3}} {
		from, to, path := openPair(t, Config{})
		size := 2048 * c.run
		gone := mapping(t, 8192)
		copy(gone, fill(size, 4))
		rounds := 0
		memory := func(i int) wire.Memory {
			b := dma.NewEmbedded(fill(size, uint64(i)))
			switch i {
			case 0: // is asked for first, when the group is made and when it is gone through
				return &watched{b, func() {
					if rounds++; rounds > 2 && !c.forGood {
						protect(t, gone, unix.PROT_READ)
					}
				}}
			case 4:
				return dma.NewShared(gone, nil)
			case 5: // the ICRCs of 4 are made
				return &watched{b, func() { forbid(t, gone) }}
			}
			return b
		}
		out := wire.NewBurst(16)
		for i := range 6 {
			add(t, out, path, wire.RCSendMiddle, uint32(i*c.run), true, memory(i), size).SetRun(c.run)
		}
		// Another group behind it, which must not suffer.
		add(t, out, path, wire.RCWriteOnly, uint32(6*c.run), true, &wire.Buffer{B: fill(3000, 6)}, 3000)
		n, err := from.Send(0, out.Frames())
		want := 6*c.run + 1
		if c.forGood {
			var fault *nic.FrameFault
			if n != 4 || !errors.As(err, &fault) {
				t.Fatalf("%+v: Send took %d frames, %v; want 4 and a fault", c, n, err)
			}
			out.Consume(5)
			sendAll(t, from, out, func() {})
			want -= c.run
		} else if n != 7 || err != nil {
			t.Fatalf("%+v: Send took %d frames, %v", c, n, err)
		}
		for _, g := range recvAll(t, to, make([]wire.Packet, 32), want) {
			i := int(g.psn) / c.run
			if i == 6 {
				if !bytes.Equal(g.payload, fill(3000, 6)) {
					t.Errorf("%+v: the last packet has other bytes", c)
				}
				continue
			}
			if at := int(g.psn) % c.run * 2048; i == 4 && c.forGood || !bytes.Equal(g.payload, fill(size, uint64(i))[at:at+2048]) {
				t.Errorf("%+v: packet %d has other bytes, or is not to be sent", c, g.psn)
			}
		}
	}
}

// The gather-or-stage rule: the owner of a region may write it while a READ of it is answered. The requester then gets
// some mixture of old and new, never a packet with a wrong ICRC.
func TestScribble(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			from, to, path := s.open(t)
			b := mapping(t, 64<<10)
			region := dma.NewShared(b, nil)
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				scribble(b, &stop)
			}()
			packets := make([]wire.Packet, 64)
			got := 0
			out := wire.NewBurst(64)
			for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
				for i := range 32 {
					f := add(t, out, path, wire.RCReadResponseMiddle, uint32(i), false, region, 1024)
					f.Add(region, uint64(i)*512, 1024)
				}
				sendAll(t, from, out, func() { got += to.Recv(0, packets) })
				runtime.Gosched()
			}
			stop.Store(true)
			<-done
			for n := 1; n > 0; {
				n = to.Recv(0, packets)
				got += n
			}
			if n := to.Counters().Dropped[wire.DropICRC].Load(); n != 0 || got == 0 {
				t.Errorf("%d ICRC errors in %d packets", n, got)
			}
		})
	}
}

// What the network refuses is taken, counted and told once a minute.
func TestSendErrors(t *testing.T) {
	var log strings.Builder
	from, _, path := openPair(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	foreign := *path
	foreign.Source = ib.GIDFromAddr(netip.MustParseAddr("203.0.113.9"))
	mixed := *path
	mixed.Dest = ib.GIDFromAddr(netip.IPv6Loopback())
	huge := &wire.Buffer{B: make([]byte, 70000)}
	now := clock.Time(time.Hour)
	send := func() {
		out := wire.NewBurst(16)
		for i := range 5 {
			add(t, out, &foreign, wire.RCSendOnly, uint32(i), true, &wire.Buffer{B: make([]byte, 600)}, 600)
		}
		add(t, out, &mixed, wire.RCSendOnly, 5, true, nil, 0)
		add(t, out, path, wire.RCSendOnly, 6, true, huge, 70000)
		if n, err := from.Send(now, out.Frames()); n != 7 || err != nil {
			t.Fatalf("Send took %d of 7 frames, %v", n, err)
		}
	}
	send()
	send()
	if n := from.Counters().SendErrors.Load(); n != 14 {
		t.Errorf("%d frames counted as lost, want 14", n)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, &log)
	}
	now = now.Add(2 * time.Minute)
	send()
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the log after two minutes:\n%s", n, &log)
	}
}
