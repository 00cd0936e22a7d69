package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/softnic/softnicd/ib"
)

var errGone = errors.New("gone")

// gone is memory that cannot be read.
type gone struct{}

func (gone) Bytes(uint64, int) []byte   { return nil }
func (gone) Read([]byte, uint64) error  { return errGone }
func (gone) Write([]byte, uint64) error { return errGone }

func fill(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(7*i + 3)
	}
	return b
}

// writeOnly puts a WRITE of n bytes, out of two pieces, into the burst.
func writeOnly(b *Burst, p *Path, mem Memory, n int) *Frame {
	f := b.Next()
	f.Path = p
	h := f.SetHeader(RCWriteOnly)
	bth := f.BTH()
	bth.SetPKey(ib.DefaultPKey)
	bth.SetDestQP(0x11)
	bth.SetPSN(0xabcdef)
	reth := FindRETH(h)
	reth.SetVA(0x1000)
	reth.SetLength(uint32(n))
	f.Add(mem, 5, n/3)
	f.Add(mem, 5+uint64(n/3), n-n/3)
	return f
}

func TestFrameRoundTrip(t *testing.T) {
	data := fill(5000)
	mem := &Buffer{B: data}
	burst := NewBurst(1)
	for _, path := range []*Path{path4, path6} {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 64, 1023, 1024, 4096} {
			f := writeOnly(burst, path, mem, n)
			b, err := f.AppendTo([]byte("before"), 3)
			if err != nil {
				t.Fatal(err)
			}
			if string(b[:6]) != "before" || len(b) != 6+f.Len() || f.Len()%4 != 0 {
				t.Fatalf("%d bytes: made %d, Len says %d", n, len(b)-6, f.Len())
			}
			d := Datagram{Bytes: b[6:], Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort, ID: 3, IDKnown: true}
			var p Packet
			if drop := Parse(&p, &d); drop != Accepted {
				t.Fatalf("%d bytes: %v", n, drop)
			}
			var payload []byte
			for _, piece := range p.Payload {
				payload = append(payload, piece.Mem.Bytes(piece.Off, piece.Len)...)
			}
			if !bytes.Equal(payload, data[5:5+n]) || p.Len != n || !bytes.Equal(p.Header, f.Header()) {
				t.Fatalf("%d bytes: the packet is not the frame", n)
			}
			// A local peer's view of the frame makes the same bytes.
			var local Packet
			local.FromFrame(f)
			again, err := local.AppendTo(nil, 3)
			if err != nil || !bytes.Equal(again, b[6:]) {
				t.Fatalf("%d bytes: local packet: %v, % x", n, err, again)
			}
			if !local.Local || local.Opcode != RCWriteOnly || local.PSN() != 0xabcdef || local.Len != n {
				t.Fatalf("local packet %+v", local)
			}
			burst.Consume(1)
		}
	}
}

func TestFrameFault(t *testing.T) {
	f := writeOnly(NewBurst(1), path4, gone{}, 100)
	b, err := f.AppendTo([]byte("kept"), 0)
	if !errors.Is(err, errGone) || string(b) != "kept" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestBurst(t *testing.T) {
	mem := &Buffer{B: fill(64)}
	b := NewBurst(3)
	for i := range 3 {
		f := writeOnly(b, path4, mem, 9)
		f.Cookie = uint64(i)
	}
	if !b.Full() || b.Next() != nil || b.Len() != 3 {
		t.Fatal("a burst of three holds three")
	}
	b.Undo()
	if b.Len() != 2 || b.Full() {
		t.Fatal("undo makes room")
	}
	b.Consume(1)
	if fs := b.Frames(); len(fs) != 1 || fs[0].Cookie != 1 || fs[0].PayloadLen() != 9 || fs[0].Pad() != 3 || len(fs[0].Payload()) != 2 {
		t.Fatalf("left over: %+v", fs)
	}
	b.Consume(1)
	if b.Len() != 0 || b.Full() {
		t.Fatal("consumed, but not empty")
	}
}

func TestCancelledFramesKeepTheirPlaces(t *testing.T) {
	mem := &Buffer{B: fill(64)}
	b := NewBurst(6)
	for i, qpn := range []ib.QPN{7, 1, 7, 7, 2, 7} {
		f := writeOnly(b, path4, mem, 9)
		f.QPN, f.Cookie = qpn, uint64(i)
	}
	end := b.End()
	b.Cancel(7)
	var sent []uint64
	for {
		frames := b.Sendable()
		if len(frames) == 0 {
			break
		}
		for i := range frames {
			sent = append(sent, frames[i].Cookie)
		}
		b.Consume(len(frames))
	}
	if !slices.Equal(sent, []uint64{1, 4}) || b.Len() != 0 || b.Taken() != end {
		t.Errorf("sent %v, %d left, %d of %d have left the burst", sent, b.Len(), b.Taken(), end)
	}
	writeOnly(b, path4, mem, 9)
	if len(b.Sendable()) != 1 {
		t.Error("a frame made later is not cancelled")
	}
}

func TestFramesAllocateNothing(t *testing.T) {
	mem := &Buffer{B: fill(5000)}
	burst := NewBurst(4)
	out := make([]byte, 0, 10000)
	var p Packet
	if n := testing.AllocsPerRun(100, func() {
		f := writeOnly(burst, path4, mem, 4096)
		b, err := f.AppendTo(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.FromFrame(f)
		if _, err := p.AppendTo(out, 0); err != nil {
			t.Fatal(err)
		}
		if !raceEnabled {
			_ = AppendEthernet(out[len(b):len(b)], path4, 0, b)
			_ = AppendEthernet(out[len(b):len(b)], path6, 0, b)
		}
		burst.Consume(1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEncodeHeader(b *testing.B) {
	burst := NewBurst(1)
	for b.Loop() {
		f := burst.Next()
		h := f.SetHeader(RCWriteOnly)
		bth := f.BTH()
		bth.SetPKey(ib.DefaultPKey)
		bth.SetDestQP(0x11)
		bth.SetPSN(0xabcdef)
		reth := FindRETH(h)
		reth.SetVA(0x1000)
		reth.SetRKey(7)
		reth.SetLength(64)
		burst.Consume(1)
	}
}

func BenchmarkFrameAppendTo4KiB(b *testing.B) {
	f := writeOnly(NewBurst(1), path4, &Buffer{B: fill(5000)}, 4096)
	out := make([]byte, 0, 5000)
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = f.AppendTo(out, 0)
	}
}
