package wire

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// vector is a row of testdata/icrc_vectors.json.
type vector struct {
	Name       string `json:"name"`
	L3Offset   int    `json:"l3_offset"`
	FrameHex   string `json:"frame_hex"`
	InputHex   string `json:"icrc_input_hex"`
	CRC        string `json:"crc32_value"`
	WireBytes  string `json:"icrc_wire_bytes"`
	frame      []byte
	input      []byte
	wantOnWire []byte
}

func loadVectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/icrc_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(b, &vs); err != nil {
		t.Fatal(err)
	}
	if len(vs) != 20 {
		t.Fatalf("%d vectors, want 20", len(vs))
	}
	for i := range vs {
		v := &vs[i]
		v.frame, v.input, v.wantOnWire = unhex(t, v.FrameHex), unhex(t, v.InputHex), unhex(t, v.WireBytes)
	}
	return vs
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// datagram takes the IP packet apart that begins at off. It reports false for what is not UDP, RoCEv1 namely.
func datagram(t testing.TB, frame []byte, off int) (d Datagram, ok bool) {
	t.Helper()
	ip := frame[off:]
	d.IDKnown = true
	switch {
	case ip[0] == 0x45 && ip[9] == 17:
		d.TrafficClass, d.HopLimit = ip[1], ip[8]
		d.ID, d.NoDF = binary.BigEndian.Uint16(ip[4:]), ip[6]&0x40 == 0
		copy(d.Source[:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"+string(ip[12:16]))
		copy(d.Dest[:], "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff"+string(ip[16:20]))
		ip = ip[20:binary.BigEndian.Uint16(ip[2:])]
	case ip[0]>>4 == 6 && ip[6] == 17:
		d.TrafficClass, d.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
		copy(d.Source[:], ip[8:24])
		copy(d.Dest[:], ip[24:40])
		ip = ip[40 : 40+int(binary.BigEndian.Uint16(ip[4:]))]
	default:
		return d, false
	}
	d.SourcePort = binary.BigEndian.Uint16(ip)
	if port := binary.BigEndian.Uint16(ip[2:]); port != Port {
		t.Fatalf("UDP port %d", port)
	}
	d.Bytes = ip[8:]
	return d, true
}

// slowCRC is the Ethernet CRC-32 a bit at a time: the oracle, of which nothing is shared with what it judges.
func slowCRC(b []byte) uint32 {
	r := uint32(0xffffffff)
	for _, v := range b {
		for i := range 8 {
			bit := r&1 ^ uint32(v>>i)&1
			r >>= 1
			if bit != 0 {
				r ^= 0xedb88320
			}
		}
	}
	return ^r
}

func TestVectorsOracle(t *testing.T) {
	for _, v := range loadVectors(t) {
		var onWire [4]byte
		binary.LittleEndian.PutUint32(onWire[:], slowCRC(v.input))
		if string(onWire[:]) != string(v.wantOnWire) || string(v.frame[len(v.frame)-4:]) != string(v.wantOnWire) {
			t.Errorf("%s: CRC % x, want % x", v.Name, onWire, v.wantOnWire)
		}
		if got := slowCRC(append(v.input, onWire[:]...)); got != 0x2144df1c {
			t.Errorf("%s: residue %#x", v.Name, got)
		}
	}
}

func TestVectorsParse(t *testing.T) {
	packets := 0
	for _, v := range loadVectors(t) {
		d, ok := datagram(t, v.frame, v.L3Offset)
		if !ok {
			continue
		}
		packets++
		var p Packet
		if drop := Parse(&p, &d); drop != Accepted {
			t.Errorf("%s: dropped: %v", v.Name, drop)
			continue
		}
		if p.Source != d.Source || p.Dest != d.Dest || p.SourcePort != d.SourcePort ||
			p.TrafficClass != d.TrafficClass || p.HopLimit != d.HopLimit || p.Local {
			t.Errorf("%s: packet %+v does not say what the datagram %+v does", v.Name, p, d)
		}
		if !d.NoDF {
			again, err := p.AppendTo(nil, d.ID)
			if err != nil || string(again) != string(d.Bytes) {
				t.Errorf("%s: made again: % x, %v\nwant % x", v.Name, again, err, d.Bytes)
			}
		}
		// Each bit that the ICRC covers matters; those of BTH byte 4 do not.
		for i := range d.Bytes {
			d.Bytes[i] ^= 0x10
			drop := Parse(&p, &d)
			if masked := i == 4; (drop == Accepted) != masked {
				t.Errorf("%s: byte %d changed: %v", v.Name, i, drop)
			}
			d.Bytes[i] ^= 0x10
		}
		d.Source[15] ^= 1
		if Parse(&p, &d) != DropICRC {
			t.Errorf("%s: another source address passed", v.Name)
		}
	}
	if packets != 18 {
		t.Errorf("%d vectors are RoCEv2, want 18", packets)
	}
}
