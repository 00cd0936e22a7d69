package rxe

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"github.com/softnic/softnicd/wire"
)

// allFrames is how many there are: a file that is lost or cut would not be missed otherwise.
const allFrames = 1081

func all(string) bool { return true }

// Every frame parses with a right ICRC, and the same bytes come of it again in three ways: from what was received, from a
// frame as an engine makes it, and from layers, the IP and UDP headers included.
func TestFrames(t *testing.T) {
	n := 0
	captures(t, all, func(t *testing.T, _ string, frames []*frame) {
		for _, f := range frames {
			n++
			if again, err := f.packet.AppendTo(nil, f.datagram.ID); err != nil || !bytes.Equal(again, f.datagram.Bytes) {
				t.Errorf("frame %d: the packet makes %.80x, %v, not %.80x", f.index, again, err, f.datagram.Bytes)
			}
			if again, err := engineFrame(f).AppendTo(nil, f.datagram.ID); err != nil || !bytes.Equal(again, f.datagram.Bytes) {
				t.Errorf("frame %d: an engine's frame makes %.80x, %v, not %.80x", f.index, again, err, f.datagram.Bytes)
			}
			if again, want := throughLayers(t, f), f.ethernet[ethernetLen:]; !bytes.Equal(again, want) {
				t.Errorf("frame %d: layers make\n%.80x, not\n%.80x", f.index, again, want)
			}
			if sum := binary.BigEndian.Uint16(f.udp()[6:]); sum != 0 {
				t.Errorf("frame %d: rxe sends UDP checksum 0, this is %#x", f.index, sum)
			}
		}
	})
	if n != allFrames {
		t.Errorf("%d frames, not %d", n, allFrames)
	}
}

func (f *frame) udp() []byte {
	return f.ethernet[len(f.ethernet)-len(f.datagram.Bytes)-udpLen:]
}

// engineFrame is the same packet to be sent.
func engineFrame(f *frame) *wire.Frame {
	burst := wire.NewBurst(1)
	out := burst.Next()
	out.Path = &wire.Path{Source: f.datagram.Source, Dest: f.datagram.Dest, SourcePort: f.datagram.SourcePort}
	copy(out.SetHeader(f.packet.Opcode), f.packet.Header)
	if p := f.payload(); p != nil {
		out.Add(&wire.Buffer{B: p}, 0, len(p))
	}
	return out
}

// throughLayers takes the frame apart as gopacket does and puts it together from the layers, but for the Ethernet header,
// since gopacket pads frames to the length that a wire asks for.
func throughLayers(t *testing.T, f *frame) []byte {
	t.Helper()
	p := gopacket.NewPacket(f.ethernet, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("frame %d: %v", f.index, e.Error())
	}
	var parts []gopacket.SerializableLayer
	for _, l := range p.Layers()[1:] {
		if b, ok := l.(*wire.BTHLayer); ok {
			b.SetPath(engineFrame(f).Path, f.datagram.ID)
		}
		s, ok := l.(gopacket.SerializableLayer)
		if !ok {
			t.Fatalf("frame %d: layer %v cannot be serialized", f.index, l.LayerType())
		}
		parts = append(parts, s)
	}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(out, gopacket.SerializeOptions{}, parts...); err != nil {
		t.Fatalf("frame %d: %v", f.index, err)
	}
	return out.Bytes()
}
