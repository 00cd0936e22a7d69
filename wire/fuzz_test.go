package wire

import (
	"bytes"
	"testing"
)

// FuzzParse holds Parse to three things: it never panics; what it accepts is accounted for byte by byte; and what it
// accepts is made again from the packet. The ICRC is put right first, or hardly anything would be accepted.
func FuzzParse(f *testing.F) {
	for _, v := range loadVectors(f) {
		if d, ok := datagram(f, v.frame, v.L3Offset); ok {
			f.Add(d.Bytes, !isIPv4(&d.Source), d.ID, true)
			f.Add(d.Bytes, !isIPv4(&d.Source), d.ID, false)
		}
	}
	f.Add([]byte{0xff}, false, uint16(0), true)
	f.Add(packet(RCSendOnly, 18, 3), false, uint16(0), true)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool, id uint16, known bool) {
		path := path4
		if v6 {
			path = path6
		}
		d := Datagram{Bytes: b, Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort, ID: id, IDKnown: known}
		var p Packet
		Parse(&p, &d)
		if len(b) < BTHSize+ICRCSize || len(b) > maxUDPPayload {
			return
		}
		d = seal(path, id, bytes.Clone(b))
		d.IDKnown = known
		if Parse(&p, &d) != Accepted {
			return
		}
		op, pad := p.BTH().Opcode(), int(p.BTH().PadCount())
		if !op.Valid() || len(p.Header) != op.HeaderLen() || len(p.Header)+p.Len+pad+ICRCSize != len(b) {
			t.Fatalf("%v: header %d, payload %d, pad %d of %d bytes", op, len(p.Header), p.Len, pad, len(b))
		}
		again, err := p.AppendTo(nil, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		// The value of the pad is not checked, and made again as zero.
		clear(d.Bytes[len(b)-ICRCSize-pad : len(b)-ICRCSize])
		want := seal(path, d.ID, d.Bytes)
		if !bytes.Equal(again, want.Bytes) {
			t.Fatalf("made again: % x\nwant % x", again, want.Bytes)
		}
	})
}
