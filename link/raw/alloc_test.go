package raw

import (
	"errors"
	"testing"
	"time"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// Nothing is allocated to send and to receive.
func TestAllocs(t *testing.T) {
	type ends struct {
		name     string
		from, to *Port
		path     *wire.Path
	}
	var all []ends
	for _, noOffload := range []bool{false, true} {
		from, to, p := openPair(t, Config{NoOffload: noOffload})
		all = append(all, ends{"lo", from, to, p})
	}
	n := newNetwork(t, 0)
	from, to := n.raw(t, 0, Config{}), n.raw(t, 1, Config{})
	for _, is6 := range []bool{false, true} {
		meet(t, from, to, path(0, is6))
		all = append(all, ends{"veth", from, to, path(0, is6)})
	}
	for _, e := range all {
		for _, n := range []int{0, 64, 1024} {
			region := dma.NewEmbedded(make([]byte, 1024))
			out := wire.NewBurst(32)
			packets := make([]wire.Packet, 32)
			allocs := testing.AllocsPerRun(50, func() {
				for i := range 20 {
					f := out.Next()
					f.Path, f.Stable = e.path, i%2 == 0
					f.SetHeader(wire.RCSendOnly)
					f.BTH().SetDestQP(1)
					f.Add(region, 0, n)
				}
				sent, _ := e.from.Send(0, out.Frames())
				out.Consume(sent)
				for got := 0; got < 20; {
					got += e.to.Recv(0, packets)
				}
			})
			if allocs != 0 {
				t.Errorf("%s to %v, %d bytes: %v allocations", e.name, e.path.Dest, n, allocs)
			}
		}
	}
}

// A frame whose payload is gone is reported by itself: what was before it is sent, and so is what follows once the caller
// has dropped it.
func TestFrameFault(t *testing.T) {
	from, to, p := openPair(t, Config{})
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(gone) }()
	for _, stable := range []bool{true, false} {
		for _, bad := range []int{0, 3, 9} {
			out := wire.NewBurst(16)
			for i := range 10 {
				if i != bad {
					add(t, out, p, wire.RCSendOnly, i, stable, fill(1024, 1))
					continue
				}
				add(t, out, p, wire.RCSendOnly, i, stable, nil).Add(dma.NewShared(gone, nil), 0, 1024)
			}
			n, err := from.Send(0, out.Frames())
			var fault *nic.FrameFault
			if n != bad || !errors.As(err, &fault) {
				t.Fatalf("stable %v: Send took %d of %d frames: %v", stable, n, bad, err)
			}
			out.Consume(n + 1)
			if got := exchange(t, from, to, out, 9); len(got) != 9 {
				t.Errorf("%d of 9 packets came", len(got))
			}
		}
	}
}

// BenchmarkLoopback sends and receives from one goroutine, as that of link/udp does.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []struct {
		name   string
		n      int
		stable bool
		cfg    Config
	}{
		{"4096B/gathered", 4096, true, Config{}},
		{"4096B/copied", 4096, false, Config{}},
		{"64B", 64, true, Config{}},
		{"64B/no_offload", 64, true, Config{NoOffload: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			from, to, p := openPair(b, c.cfg)
			region := dma.NewEmbedded(make([]byte, 1<<20))
			dma.GuardGoroutine()
			out := wire.NewBurst(64)
			packets := make([]wire.Packet, 128)
			received := 0
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; {
				for i := range min(64, b.N-sent) {
					f := out.Next()
					f.Path, f.Stable = p, c.stable
					f.SetHeader(wire.RCSendMiddle)
					f.BTH().SetDestQP(1)
					f.Add(region, uint64(i)*4096, c.n)
				}
				n, err := from.Send(0, out.Frames())
				if err != nil {
					b.Fatal(err)
				}
				out.Consume(n)
				sent += n
				for k := 1; k > 0; {
					k = to.Recv(0, packets)
					received += k
				}
			}
			b.StopTimer()
			for end := time.Now().Add(time.Second); received < b.N && time.Now().Before(end); {
				received += to.Recv(0, packets)
			}
			b.ReportMetric(float64(received)*float64(c.n)*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
			if received != b.N {
				b.Errorf("%d of %d packets came", received, b.N)
			}
		})
	}
}
