package udp

import (
	"strconv"
	"testing"
	"time"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
)

// Nothing is allocated to send and to receive.
func TestAllocs(t *testing.T) {
	for _, s := range scenarios() {
		for _, n := range []int{0, 64, 4096} {
			from, to, path := s.open(t)
			region := dma.NewEmbedded(make([]byte, 4096))
			out := wire.NewBurst(32)
			packets := make([]wire.Packet, 32)
			allocs := testing.AllocsPerRun(50, func() {
				for i := range 20 {
					f := out.Next()
					f.Path, f.Stable = path, i%2 == 0
					f.SetHeader(wire.RCSendOnly)
					f.BTH().SetDestQP(1)
					f.Add(region, 0, n)
				}
				sent, _ := from.Send(0, out.Frames())
				out.Consume(sent)
				for got := 0; got < 20; {
					got += to.Recv(0, packets)
				}
			})
			if allocs != 0 {
				t.Errorf("%s, %d bytes: %v allocations", s.name, n, allocs)
			}
		}
	}
}

// BenchmarkLoopback sends and receives from one goroutine, which is what a shard does: half of what two could.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []struct {
		name   string
		n      int
		stable bool
		cfg    Config
	}{
		{"4096B/gathered", 4096, true, Config{}},
		{"4096B/copied", 4096, false, Config{}},
		{"4096B/no_offload", 4096, true, Config{NoOffload: true}},
		{"1024B/gathered", 1024, true, Config{}},
		{"64B", 64, true, Config{}},
		{"64B/no_offload", 64, true, Config{NoOffload: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			from, to, path := openPair(b, c.cfg)
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
					f.Path, f.Stable = path, c.stable
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
			b.ReportMetric(float64(received)/b.Elapsed().Seconds()/1e6, "Mpps")
			if received != b.N {
				b.Errorf("%d of %d packets came", received, b.N)
			}
		})
	}
}

// BenchmarkRaw is what the sockets alone do, to compare with: the same groups again and again, without frames, ICRCs or
// packets.
func BenchmarkRaw(b *testing.B) {
	for _, n := range []int{4096, 1024, 64} {
		b.Run(strconv.Itoa(n)+"B", func(b *testing.B) {
			from, to, path := openPair(b, Config{})
			out := wire.NewBurst(64)
			for range 64 {
				add(b, out, path, wire.RCSendMiddle, 1, true, &wire.Buffer{B: make([]byte, n)}, n)
			}
			t := &from.out
			staged, err := t.prepare(out.Frames())
			if err != nil {
				b.Fatal(err)
			}
			received := 0
			for sent := 0; sent < b.N; sent += staged {
				if k, errno := batch.Sendmmsg(t.socket.fd, t.Pending()); k != len(t.Pending()) {
					b.Fatalf("%d of %d groups sent: %v", k, len(t.Pending()), errno)
				}
				for to.in.Fill(0, to.epoll) {
					for r := to.in.Next(); r != nil; r = to.in.Next() {
						received += len(r.Bytes)
					}
				}
			}
			b.ReportMetric(float64(received)*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
			b.ReportMetric(float64(received)/float64(n+16)/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}
