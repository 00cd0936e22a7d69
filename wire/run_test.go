package wire

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// newRun appends a run of n packets of size bytes to b. Its payload is in pieces of so many bytes; the last is repeated.
func newRun(b *Burst, n, size int, pieces ...int) (f *Frame, payload []byte) {
	f = b.Next()
	f.Path, f.QPN, f.Cookie, f.Stable = &Path{HopLimit: 3, TrafficClass: 2}, 7, 0xfffffe, true
	f.SetHeader(RCWriteMiddle)
	f.BTH().SetPSN(0xfffffe)
	f.BTH().SetDestQP(0x1234)
	f.BTH().SetAckReq(true)
	for i := range n * size {
		payload = append(payload, byte(i*7+i>>8))
	}
	for at := 0; at < len(payload); {
		k := min(pieces[0], len(payload)-at)
		f.Add(&Buffer{payload}, uint64(at), k)
		at += k
		if len(pieces) > 1 {
			pieces = pieces[1:]
		}
	}
	f.SetRun(n)
	return f, payload
}

// Taken apart, a run is the packets that it stands for, whatever its pieces: numbers that wrap, and the question at the
// end alone.
func TestRunTakenApart(t *testing.T) {
	for _, pieces := range [][]int{{5 * 256}, {256}, {100}, {1, 600, 1000}, {255, 2, 255, 2000}} {
		f, payload := newRun(NewBurst(1), 5, 256, pieces...)
		if f.Packets() != 5 || f.PayloadLen() != 5*256 || f.Len() != 5*(BTHSize+256+ICRCSize) || f.Pad() != 0 {
			t.Fatalf("%d packets, %d bytes of payload, %d in all, pad %d", f.Packets(), f.PayloadLen(), f.Len(), f.Pad())
		}
		out := NewBurst(MaxRun)
		out.Split(f)
		if out.Len() != 5 {
			t.Fatalf("%d frames", out.Len())
		}
		var run Packet
		run.FromFrame(f)
		var single Single
		for i := range out.Frames() {
			g := &out.Frames()[i]
			want := payload[i*256 : (i+1)*256]
			p := single.Of(&run, i)
			for _, h := range []*BTH{g.BTH(), p.BTH()} {
				if h.PSN() != ib.PSN(0xfffffe).Add(uint32(i)) || h.AckReq() != (i == 4) || h.DestQP() != 0x1234 || h.PadCount() != 0 {
					t.Errorf("packet %d has header %x", i, *h)
				}
			}
			if b, err := g.AppendTo(nil, 0); err != nil || !bytes.Equal(b[BTHSize:BTHSize+256], want) {
				t.Errorf("frame %d of pieces %v has other bytes", i, pieces)
			}
			if b, err := p.AppendTo(nil, 0); err != nil || !bytes.Equal(b[BTHSize:BTHSize+256], want) {
				t.Errorf("packet %d of pieces %v has other bytes", i, pieces)
			}
			if g.Packets() != 1 || p.Packets() != 1 || p.Len != 256 || !p.Local || p.HopLimit != 3 || p.Opcode != RCWriteMiddle ||
				g.Path != f.Path || g.QPN != 7 || g.Cookie != f.Cookie || !g.Stable {
				t.Errorf("packet %d is another: %+v", i, p)
			}
		}
	}
}

// Of the longest run with the most pieces all packets have room.
func TestRunRoom(t *testing.T) {
	most := make([]int, MaxPieces)
	for i := range most {
		most[i] = 1
	}
	most[MaxPieces-1] = MaxRun * 256
	f, _ := newRun(NewBurst(1), MaxRun, 256, most...)
	out := NewBurst(MaxRun)
	out.Split(f)
	if out.Len() != MaxRun {
		t.Errorf("%d of %d packets", out.Len(), MaxRun)
	}
}

// Neither the frame nor the packet of a run is one when it is used again.
func TestRunIsForgotten(t *testing.T) {
	b := NewBurst(1)
	f, _ := newRun(b, 3, 256, 256)
	var p Packet
	p.FromFrame(f)
	if p.Packets() != 3 {
		t.Errorf("%d packets", p.Packets())
	}
	b.Consume(1)
	if f = b.Next(); f.Packets() != 1 {
		t.Error("the next frame is a run")
	}
	if p.SetPayload([]byte{1}); p.Packets() != 1 {
		t.Error("the next packet is a run")
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	f, _ := newRun(NewBurst(1), 8, 256, 100)
	out := NewBurst(MaxRun)
	var p Packet
	p.FromFrame(f)
	var single Single
	if n := testing.AllocsPerRun(100, func() {
		out.Split(f)
		out.Consume(out.Len())
		for i := range 8 {
			single.Of(&p, i)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
