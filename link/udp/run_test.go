package udp

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// A run travels as the packets that it stands for, whatever its payload lies in, and whether the kernel splits groups or not.
// Who was asked for runs gives the same packets, as fewer.
func TestRuns(t *testing.T) {
	const size, before, behind = 1024, 3, 2
	for _, s := range scenarios() {
		for _, stable := range []bool{true, false} {
			for _, pieces := range [][]int{{7 * size}, {1, 2 * size, 5*size - 1}, {3 * size, 4 * size}} {
				from, to, path := s.open(t)
				data := fill(7*size, 9)
				region := dma.NewEmbedded(data)
				out := wire.NewBurst(16)
				single := &wire.Buffer{B: fill(size, 1)}
				for i := range before {
					add(t, out, path, wire.RCWriteMiddle, uint32(i), stable, single, size)
				}
				run := add(t, out, path, wire.RCWriteMiddle, before, stable, region, pieces[0])
				for at, k := pieces[0], 1; k < len(pieces); k++ {
					run.Add(region, uint64(at), pieces[k])
					at += pieces[k]
				}
				run.SetRun(7)
				run.BTH().SetAckReq(true)
				for i := range behind {
					add(t, out, path, wire.RCWriteMiddle, uint32(before+7+i), stable, single, size)
				}
				n, err := from.Send(0, out.Frames())
				if n != before+1+behind || err != nil {
					t.Fatalf("%s: Send took %d frames, %v", s.name, n, err)
				}
				if n := from.Counters().SentPackets.Load(); n != before+7+behind {
					t.Errorf("%s: %d packets counted", s.name, n)
				}
				if n := from.Counters().SentBytes.Load(); n != (before+7+behind)*(size+16) {
					t.Errorf("%s: %d bytes counted", s.name, n)
				}
				for i, g := range recvAll(t, to, make([]wire.Packet, 16), before+7+behind) {
					want := single.B
					if k := i - before; k >= 0 && k < 7 {
						want = data[k*size : (k+1)*size]
					}
					if int(g.psn) != i || g.op != wire.RCWriteMiddle || !bytes.Equal(g.payload, want) || g.ackReq != (i == before+6) {
						t.Errorf("%s, stable %v, pieces %v: packet %d is another: %v %d, asks %v", s.name, stable, pieces, i, g.op, g.psn, g.ackReq)
					}
				}
			}
		}
	}
}

// How long runs may be: a group holds them. Without groups there are none.
func TestLongestRun(t *testing.T) {
	for _, c := range []struct{ size, run int }{{4116, 15}, {2068, 31}, {1044, 62}, {276, batch.MaxSegments}, {70000, 0}} {
		from, _, path := openPair(t, Config{})
		if n := nic.LongestRun(from, path, c.size); n != c.run {
			t.Errorf("runs of %d packets of %d bytes, want %d", n, c.size, c.run)
		}
	}
	from, _, path := openPair(t, Config{NoOffload: true})
	if n := nic.LongestRun(from, path, 1044); n != 0 {
		t.Errorf("without offload: runs of %d packets", n)
	}
}

// What came as a group is given out as runs, to whom asked for them, and never more packets than there is room for.
func TestGiveRuns(t *testing.T) {
	const size, count = 1024, 50
	for _, room := range []int{1, 2, 7, 64} {
		from, to, path := openPair(t, Config{})
		nic.GiveRuns(to)
		data := fill(count*size, 3)
		region := dma.NewEmbedded(data)
		out := wire.NewBurst(count)
		for i := range count {
			// Number 20 asks for an acknowledgement, 33 does not follow.
			f := add(t, out, path, wire.RCWriteMiddle, uint32(i), true, nil, 0)
			f.Add(region, uint64(i*size), size)
			f.BTH().SetAckReq(i == 20)
			if i >= 33 {
				f.BTH().SetPSN(ib.NewPSN(uint32(i + 1)))
			}
		}
		sendAll(t, from, out, func() {})
		packets := make([]wire.Packet, room)
		var all []byte
		longest, calls := 0, 0
		for len(all) < len(data) {
			n := to.Recv(0, packets)
			calls++
			sum := 0
			for i := range packets[:n] {
				p := &packets[i]
				first := len(all) / size
				for k := range p.Packets() {
					if at := first + k; at == 20 != (p.BTH().AckReq() && k == p.Packets()-1) || at == 33 && k > 0 {
						t.Fatalf("room for %d: packet %d is number %d of a run", room, at, k)
					}
				}
				sum += p.Packets()
				longest = max(longest, p.Packets())
				all = append(all, keep(p).payload...)
			}
			if sum > room || calls > 1_000_000 {
				t.Fatalf("room for %d: %d packets came, in call %d", room, sum, calls)
			}
		}
		if !bytes.Equal(all, data) || longest != min(room, 21) {
			t.Errorf("room for %d: other bytes came, or the longest run is %d", room, longest)
		}
		if n := to.Counters().ReceivedPackets.Load(); n != count {
			t.Errorf("room for %d: %d packets counted", room, n)
		}
		if n := to.Counters().ReceivedBytes.Load(); n != count*(size+16) {
			t.Errorf("room for %d: %d bytes counted", room, n)
		}
	}
}

func TestRunsAllocateNothing(t *testing.T) {
	for _, s := range scenarios() {
		from, to, path := s.open(t)
		nic.GiveRuns(to)
		region := dma.NewEmbedded(make([]byte, 16*1024))
		out := wire.NewBurst(4)
		packets := make([]wire.Packet, 32)
		allocs := testing.AllocsPerRun(50, func() {
			for i := range 2 {
				f := out.Next()
				f.Path, f.Stable = path, i == 0
				f.SetHeader(wire.RCWriteMiddle)
				f.BTH().SetDestQP(1)
				f.Add(region, 0, 16*1024)
				f.SetRun(16)
			}
			sent, _ := from.Send(0, out.Frames())
			out.Consume(sent)
			for got := 0; got < 32; {
				for i := range packets[:to.Recv(0, packets)] {
					got += packets[i].Packets()
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", s.name, allocs)
		}
	}
}

// Packets of several queue pairs travel in one group if they go the same way, but not where a group would have to be taken apart
// between shards.
func TestQueuePairsShareGroups(t *testing.T) {
	from, to, path := openPair(t, Config{})
	if !from.out.GSO {
		t.Skip("this kernel splits no groups")
	}
	other, class, hops := *path, *path, *path
	other.SourcePort++
	class.TrafficClass, hops.HopLimit = 8, 3
	out := wire.NewBurst(32)
	data := &wire.Buffer{B: fill(4096, 3)}
	paths := []*wire.Path{path, &other, path, &other, &other, &class, &hops, path}
	for i, p := range paths {
		add(t, out, p, wire.RCWriteOnly, uint32(i), true, data, 4096).BTH().SetDestQP(ib.QPN(16 + i))
	}
	group := func(from *Port, at int) int {
		from.out.Reset()
		from.out.socket = from.out.socketFor(path)
		p, headers := from.out.Path(&out.Frames()[at])
		n, err := from.out.Group(out.Frames()[at:], p, headers, &from.out)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for at, want := range map[int]int{0: 5, 5: 1, 6: 1, 7: 1} {
		if n := group(from, at); n != want {
			t.Errorf("from packet %d on %d share a group, want %d", at, n, want)
		}
	}
	shards := openShards(t, Config{Addrs: []netip.Addr{loopback()}}, 2, nil)
	if n := group(shards.Ports()[0], 0); n != 1 {
		t.Errorf("%d packets share a group of a device with shards", n)
	}
	if n, err := from.Send(0, out.Frames()); n != len(paths) || err != nil {
		t.Fatalf("Send took %d frames, %v", n, err)
	}
	for i, g := range recvAll(t, to, make([]wire.Packet, 16), len(paths)) {
		wantTTL := uint8(hopLimit)
		if paths[i] == &hops {
			wantTTL = 3
		}
		if int(g.psn) != i || !bytes.Equal(g.payload, data.B) || g.tos != paths[i].TrafficClass || g.ttl != wantTTL {
			t.Errorf("packet %d is another: PSN %d, class %d, hops %d", i, g.psn, g.tos, g.ttl)
		}
	}
}

// Where all addresses are of the loopback there is one source port, else there are several.
func TestSourcePorts(t *testing.T) {
	for _, c := range []struct {
		addrs string
		want  int
	}{{"127.0.0.1", 1}, {"::1", 1}, {"::ffff:127.0.0.9", 1}, {"10.0.0.1", 8}} {
		p, err := newPort(Config{Addrs: []netip.Addr{netip.MustParseAddr(c.addrs)}})
		if err != nil {
			t.Fatal(err)
		}
		if n := p.cfg.SendSockets; n != c.want {
			t.Errorf("%s: %d source ports, want %d", c.addrs, n, c.want)
		}
		p.Close()
	}
}
