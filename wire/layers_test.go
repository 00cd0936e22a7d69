package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// wantLayers are the types behind UDP that a packet of op has.
func wantLayers(op Opcode, payload int) (want []gopacket.LayerType) {
	want = append(want, LayerTypeBTH)
	for _, k := range headerKinds {
		if op.Headers().Has(k.bit) {
			want = append(want, extensionType(k.bit))
		}
	}
	if payload > 0 {
		want = append(want, gopacket.LayerTypePayload)
	}
	return want
}

func TestNewPacketDecodesVectors(t *testing.T) {
	for _, v := range loadVectors(t) {
		d, ok := datagram(t, v.frame, v.L3Offset)
		if !ok {
			continue
		}
		var first gopacket.LayerType = layers.LayerTypeEthernet
		if v.L3Offset == 0 {
			first = layers.LayerTypeIPv4
			if v.frame[0]>>4 == 6 {
				first = layers.LayerTypeIPv6
			}
		}
		p := gopacket.NewPacket(v.frame, first, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Errorf("%s: %v", v.Name, e.Error())
			continue
		}
		var parsed Packet
		if drop := Parse(&parsed, &d); drop != Accepted {
			t.Fatalf("%s: %v", v.Name, drop)
		}
		var got []gopacket.LayerType
		var joined []byte
		for _, l := range p.Layers() {
			if l.LayerType() >= LayerTypeBTH || l.LayerType() == gopacket.LayerTypePayload {
				got = append(got, l.LayerType())
				joined = append(joined, l.LayerContents()...)
			}
		}
		want := append(wantLayers(parsed.Opcode, parsed.Len), LayerTypeICRC)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: layers %v, want %v", v.Name, got, want)
		}
		if !bytes.Equal(joined, d.Bytes) {
			t.Errorf("%s: the layers make % x, want % x", v.Name, joined, d.Bytes)
		}
		bth := p.Layer(LayerTypeBTH).(*BTHLayer)
		if bth.BTH != *parsed.BTH() {
			t.Errorf("%s: BTH % x", v.Name, bth.BTH)
		}
		icrc := p.Layer(LayerTypeICRC).(*ICRCLayer)
		if uint32(icrc.Value) != binary.LittleEndian.Uint32(v.wantOnWire) || len(icrc.Pad) != int(bth.PadCount()) {
			t.Errorf("%s: ICRC %#x, pad %d", v.Name, icrc.Value, len(icrc.Pad))
		}
	}
}

// TestLayersRoundTrip makes a packet of every opcode from layers, parses it, and decodes it with a DecodingLayerParser.
func TestLayersRoundTrip(t *testing.T) {
	l := NewLayers()
	parser := gopacket.NewDecodingLayerParser(LayerTypeBTH, l.Decoding()...)
	for op := range 256 {
		o := Opcode(op)
		if !o.Valid() {
			continue
		}
		for _, n := range []int{0, 1, 2, 3, 8} {
			in := NewLayers()
			in.BTH.SetOpcode(o)
			in.BTH.SetDestQP(9)
			in.BTH.SetPath(path4, 77)
			stack := []gopacket.SerializableLayer{&in.BTH}
			for i, h := range []roceLayer{
				&in.XRCETH, &in.DETH, &in.FETH, &in.RETH, &in.AtomicETH, &in.AETH, &in.AtomicAckETH, &in.ImmDt, &in.IETH,
			} {
				if o.Headers().Has(headerKinds[i].bit) {
					stack = append(stack, h)
				}
			}
			in.RETH.Header.SetVA(0x0102030405060708)
			in.ImmDt.Header.SetData(0xcafe)
			stack = append(stack, gopacket.Payload(fill(n)))
			buf := gopacket.NewSerializeBuffer()
			opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
			if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
				t.Fatalf("%v: %v", o, err)
			}
			d := Datagram{Bytes: buf.Bytes(), Source: path4.Source, Dest: path4.Dest, SourcePort: path4.SourcePort, ID: 77, IDKnown: true}
			var p Packet
			if drop := Parse(&p, &d); drop != Accepted || p.Len != n {
				t.Fatalf("%v with %d bytes: %v, %d", o, n, drop, p.Len)
			}
			var got []gopacket.LayerType
			if err := parser.DecodeLayers(d.Bytes, &got); err != nil {
				t.Fatalf("%v: %v", o, err)
			}
			if want := wantLayers(o, n); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v: layers %v, want %v", o, got, want)
			}
			if r := FindRETH(p.Header); r != nil && *r != l.RETH.Header {
				t.Errorf("%v: RETH % x", o, l.RETH.Header)
			}
			var icrc ICRCLayer
			if err := icrc.DecodeFromBytes(l.BTH.Trailer(), gopacket.NilDecodeFeedback); err != nil || len(icrc.Pad) != -n&3 {
				t.Errorf("%v: trailer % x: %v", o, l.BTH.Trailer(), err)
			}
			// The layers as they were decoded make the same bytes, ICRC as its own layer.
			stack[0] = &l.BTH
			buf = gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, append(stack, &icrc)...); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buf.Bytes(), d.Bytes) {
				t.Errorf("%v: made again % x, want % x", o, buf.Bytes(), d.Bytes)
			}
		}
	}
}

func TestLayersRefuse(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":        nil,
		"short BTH":      make([]byte, 11),
		"no ICRC":        packet(RCSendOnly, 15, 0),
		"pad too large":  packet(RCSendOnly, 17, 3),
		"unknown opcode": packet(0xff, 60, 0),
		"RETH cut":       packet(RCWriteOnly, 30, 0),
	} {
		p := gopacket.NewPacket(b, LayerTypeBTH, gopacket.Default)
		if len(b) > 0 && p.ErrorLayer() == nil {
			t.Errorf("%s: decoded as %v", name, p)
		}
		if err := new(BTHLayer).DecodeFromBytes(b, gopacket.NilDecodeFeedback); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	bth := new(BTHLayer)
	if err := gopacket.SerializeLayers(gopacket.NewSerializeBuffer(), opts, bth); err == nil || !strings.Contains(err.Error(), "SetPath") {
		t.Errorf("an ICRC without a path: %v", err)
	}
	bth.SetOpcode(RCWriteOnly)
	if err := gopacket.SerializeLayers(gopacket.NewSerializeBuffer(), opts, bth); err == nil {
		t.Error("a WRITE without RETH was made")
	}
	p := gopacket.NewPacket(make([]byte, 20), LayerTypeRETH, gopacket.Default)
	if p.ErrorLayer() != nil || p.Layer(LayerTypeRETH) == nil || len(p.Layers()) != 2 {
		t.Errorf("a RETH alone: %v", p)
	}
}

func TestAppendEthernet(t *testing.T) {
	f := writeOnly(NewBurst(1), path4, &Buffer{B: fill(100)}, 31)
	for _, path := range []*Path{path4, path6, path("10.0.0.1", "224.1.2.3"), path("fe80::1", "ff02::1:2")} {
		f.Path = path
		udp, err := f.AppendTo(nil, 0x4321)
		if err != nil {
			t.Fatal(err)
		}
		frame := AppendEthernet([]byte("front"), path, 0x4321, udp)[5:]
		d, ok := datagram(t, frame, 14)
		if !ok || d.Source != path.Source || d.Dest != path.Dest || d.SourcePort != path.SourcePort ||
			d.TrafficClass != path.TrafficClass || d.HopLimit != path.HopLimit || d.NoDF {
			t.Fatalf("%v: %+v", path.Dest, d)
		}
		var p Packet
		if drop := Parse(&p, &d); drop != Accepted {
			t.Fatalf("%v: %v", path.Dest, drop)
		}
		pkt := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		if pkt.ErrorLayer() != nil || pkt.Layer(LayerTypeRETH) == nil {
			t.Fatalf("%v: %v", path.Dest, pkt)
		}
		checkChecksums(t, path, frame)
		eth := pkt.LinkLayer().(*layers.Ethernet)
		multicast := path.Dest.IsMulticast()
		if eth.SrcMAC[0]&3 != 2 || multicast != (eth.DstMAC[0]&1 == 1) || !multicast && eth.DstMAC[0]&3 != 2 {
			t.Errorf("%v: MACs %v %v", path.Dest, eth.SrcMAC, eth.DstMAC)
		}
	}
}

// checkChecksums verifies the ones' complement sums by adding everything up.
func checkChecksums(t *testing.T, p *Path, frame []byte) {
	t.Helper()
	sum := func(b []byte) (s uint32) {
		for i, v := range b {
			s += uint32(v) << (8 * (1 - i&1))
		}
		for s>>16 != 0 {
			s = s&0xffff + s>>16
		}
		return s
	}
	if p.Source.Is4() {
		if s := sum(frame[14:34]); s != 0xffff {
			t.Errorf("%v: IPv4 header sums up to %#x", p.Dest, s)
		}
		if udp := frame[34:]; udp[6]|udp[7] != 0 {
			t.Errorf("%v: UDP checksum % x, want none", p.Dest, udp[6:8])
		}
		return
	}
	udp := frame[54:]
	pseudo := append(append(append([]byte{}, p.Source[:]...), p.Dest[:]...), 0, 0, byte(len(udp)>>8), byte(len(udp)), 0, 0, 0, 17)
	if s := sum(append(pseudo, udp...)); s != 0xffff {
		t.Errorf("%v: UDP sums up to %#x", p.Dest, s)
	}
	if flow := binary.BigEndian.Uint32(frame[14:]) & 0xfffff; flow != p.FlowLabel {
		t.Errorf("%v: flow label %#x", p.Dest, flow)
	}
}

func TestLayersAllocateNothing(t *testing.T) {
	d := seal(path4, 0, packet(RCWriteOnlyImm, 200, 0))
	l := NewLayers()
	parser := gopacket.NewDecodingLayerParser(LayerTypeBTH, l.Decoding()...)
	got := make([]gopacket.LayerType, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		if err := parser.DecodeLayers(d.Bytes, &got); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLayersAlone(t *testing.T) {
	ieth := []byte{1, 2, 3, 4}
	p := gopacket.NewPacket(ieth, LayerTypeIETH, gopacket.Default)
	l, ok := p.Layer(LayerTypeIETH).(*IETHLayer)
	if !ok || l.Header.RKey() != 0x01020304 || len(p.Layers()) != 1 || l.NextLayerType() != gopacket.LayerTypePayload {
		t.Errorf("an IETH alone: %v", p)
	}
	p = gopacket.NewPacket([]byte{0, 0, 0x78, 0x56, 0x34, 0x12}, LayerTypeICRC, gopacket.Default)
	icrc, ok := p.Layer(LayerTypeICRC).(*ICRCLayer)
	if !ok || icrc.Value != 0x12345678 || len(icrc.Pad) != 2 {
		t.Errorf("an ICRC alone: %v", p)
	}
	if icrc.CanDecode() != LayerTypeICRC || icrc.NextLayerType() != gopacket.LayerTypeZero {
		t.Error("nothing follows an ICRC")
	}
	for layerType := LayerTypeXRCETH; layerType <= LayerTypeICRC; layerType++ {
		p := gopacket.NewPacket([]byte{1, 2, 3}, layerType, gopacket.Default)
		if p.ErrorLayer() == nil || !p.Metadata().Truncated {
			t.Errorf("%v of three bytes: %v", layerType, p)
		}
	}
}

// TestAppendEthernetShort makes the shortest packet there is: it is captured without the padding of a real link.
func TestAppendEthernetShort(t *testing.T) {
	d := seal(path4, 0, packet(RCSendOnly, 16, 0))
	frame := AppendEthernet(nil, path4, 0, d.Bytes)
	if len(frame) != 14+20+8+16 || !bytes.HasSuffix(frame, d.Bytes) {
		t.Errorf("% x", frame)
	}
	nowhere := *path4
	nowhere.HopLimit = 0
	if d, _ := datagram(t, AppendEthernet(nil, &nowhere, 0, d.Bytes), 14); d.HopLimit != 64 {
		t.Errorf("hop limit %d", d.HopLimit)
	}
}
