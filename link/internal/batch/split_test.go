package batch

import (
	"bytes"
	"slices"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// group makes the datagrams of packets from the middle of a message, each with its number in the payload, that travel with these
// identifications.
func group(t *testing.T, path *wire.Path, ids []uint16) (b []byte, segment int) {
	t.Helper()
	burst := wire.NewBurst(1)
	for i, id := range ids {
		f := burst.Next()
		f.Path = path
		f.SetHeader(wire.RCWriteMiddle)
		f.BTH().SetDestQP(0x11)
		f.BTH().SetPSN(ib.NewPSN(uint32(i)))
		f.Add(&wire.Buffer{B: bytes.Repeat([]byte{byte(i)}, 256)}, 0, 256)
		var err error
		if b, err = f.AppendTo(b, id); err != nil {
			t.Fatal(err)
		}
		segment = f.Len()
		burst.Consume(1)
	}
	return b, segment
}

// A group is split into its packets, whether their identifications count or stay, are known or have to be found, and whether runs are
// asked for or not. One that is damaged on the way takes none of the others with it.
func TestSplit(t *testing.T) {
	path := &wire.Path{Source: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 1}, Dest: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}, SourcePort: 50001}
	for _, ids := range [][]uint16{{7, 8, 9, 10, 11, 12}, {7, 7, 7, 7, 7, 7}, {0, 1, 2, 3, 4, 5}, {0xfffe, 0xffff, 0, 1, 2, 3}} {
		for _, known := range []bool{false, true} {
			for _, runs := range []bool{false, true} {
				for bad := -1; bad < len(ids); bad++ {
					b, segment := group(t, path, ids)
					if bad >= 0 {
						b[bad*segment+100] ^= 0x5a
						b[bad*segment+101] ^= 0x77
						b[bad*segment+102] ^= 0x13
					}
					var c nic.PortCounters
					in := &Inbox{counters: &c, SL: 3}
					if runs {
						in.GiveRuns()
					}
					in.Datagram = wire.Datagram{Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort, IDKnown: known}
					if known {
						in.Datagram.ID = ids[0]
					}
					in.Begin(b, segment)
					packets := make([]wire.Packet, 16)
					var got []int
					for i := range packets[:in.split(packets)] {
						p := &packets[i]
						for k := range p.Packets() {
							got = append(got, int(p.PSN())+k)
						}
						if p.SL != 3 {
							t.Errorf("SL %d", p.SL)
						}
					}
					var want []int
					for i := range ids {
						if i != bad {
							want = append(want, i)
						}
					}
					if dropped := c.Dropped[wire.DropICRC].Load(); !slices.Equal(got, want) || dropped != uint64(len(ids)-len(want)) {
						t.Errorf("identifications %v, known %v, runs %v, %d is damaged: %v came, %d dropped", ids, known, runs, bad, got, dropped)
					}
				}
			}
		}
	}
}
