package raw

import (
	"bytes"
	"testing"
	"time"

	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"github.com/vishvananda/netlink"
)

// A run travels as the packets that it stands for: as a group, packet by packet where the kernel splits none, and also while it is
// being found out where to.
func TestRuns(t *testing.T) {
	const size, run = 1024, 6
	n := newNetwork(t, 0)
	for _, cfg := range []Config{{}, {NoOffload: true}} {
		for _, is6 := range []bool{false, true} {
			for _, known := range []bool{false, true} {
				from, to := n.raw(t, 0, cfg), n.raw(t, 1, Config{})
				p := path(0, is6)
				if known {
					meet(t, from, to, p)
				} else {
					n.at(t, 0, func() error {
						list, err := netlink.NeighList(n.index[0], netlink.FAMILY_ALL)
						for i := range list {
							_ = netlink.NeighDel(&list[i])
						}
						return err
					})
				}
				data := fill(run*size, 2)
				out := wire.NewBurst(4)
				add(t, out, p, wire.RCWriteMiddle, 7, true, data[:size])
				add(t, out, p, wire.RCWriteMiddle, 8, true, data).SetRun(run)
				add(t, out, p, wire.RCWriteLast, 8+run, true, data[:100])
				k, err := from.Send(0, out.Frames())
				if k != 3 || err != nil {
					t.Fatalf("Send took %d frames, %v", k, err)
				}
				out.Consume(k)
				for end := time.Now().Add(time.Second); len(from.out.held) > 0 && time.Now().Before(end); {
					from.Recv(0, make([]wire.Packet, 1))
				}
				for i, g := range exchange(t, from, to, out, run+2) {
					want := data[:size]
					switch {
					case i > run:
						want = data[:100]
					case i > 0:
						want = data[(i-1)*size : i*size]
					}
					if g.psn != 7+i || !bytes.Equal(g.payload, want) {
						t.Errorf("%+v, IPv6 %v, known %v: packet %d is another: %d, %d bytes", cfg, is6, known, i, g.psn, len(g.payload))
					}
				}
				from.Close()
				to.Close()
			}
		}
	}
}

// What came as a group is given out as runs to whom asked for them.
func TestGiveRuns(t *testing.T) {
	from, to, p := openPair(t, Config{})
	nic.GiveRuns(to)
	if n := nic.LongestRun(from, p, 1044); n != 62 {
		t.Errorf("runs of %d packets, want 62", n)
	}
	data := fill(12*1024, 2)
	out := wire.NewBurst(2)
	add(t, out, p, wire.RCWriteMiddle, 0, true, data).SetRun(12)
	from.Send(0, out.Frames())
	packets := make([]wire.Packet, 16)
	var got []byte
	for end := time.Now().Add(time.Second); len(got) < len(data); {
		n := to.Recv(0, packets)
		for i := range packets[:n] {
			for _, piece := range packets[i].Payload {
				got = append(got, piece.Mem.Bytes(piece.Off, piece.Len)...)
			}
		}
		if n > 1 || n == 1 && packets[0].Packets() != 12 {
			t.Fatalf("%d runs, the first of %d packets", n, packets[0].Packets())
		}
		if time.Now().After(end) {
			t.Fatalf("nothing comes: %s", tell(to.Counters()))
		}
	}
	if !bytes.Equal(got, data) {
		t.Error("other bytes came")
	}
}
