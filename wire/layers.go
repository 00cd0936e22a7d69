package wire

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// The headers as layers of gopacket. Importing this package registers them for UDP port 4791, so that
// gopacket.NewPacket takes a capture apart into BTH, extension headers, payload and ICRC. [Layers] is for
// gopacket.DecodingLayerParser. To make a packet:
//
//	bth := &wire.BTHLayer{}
//	bth.SetOpcode(wire.RCWriteOnly)
//	bth.SetPath(path, 0)
//	gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
//		ip, udp, bth, &wire.RETHLayer{Header: reth}, gopacket.Payload(data))

// Layer types. They are numbers in gopacket's range for applications.
var (
	LayerTypeBTH          = register(1790, "RoCE BTH", decodePacket)
	LayerTypeXRCETH       = register(1791, "RoCE XRCETH", decodeAlone(func() roceLayer { return new(XRCETHLayer) }))
	LayerTypeDETH         = register(1792, "RoCE DETH", decodeAlone(func() roceLayer { return new(DETHLayer) }))
	LayerTypeFETH         = register(1793, "RoCE FETH", decodeAlone(func() roceLayer { return new(FETHLayer) }))
	LayerTypeRETH         = register(1794, "RoCE RETH", decodeAlone(func() roceLayer { return new(RETHLayer) }))
	LayerTypeAtomicETH    = register(1795, "RoCE AtomicETH", decodeAlone(func() roceLayer { return new(AtomicETHLayer) }))
	LayerTypeAETH         = register(1796, "RoCE AETH", decodeAlone(func() roceLayer { return new(AETHLayer) }))
	LayerTypeAtomicAckETH = register(1797, "RoCE AtomicAckETH", decodeAlone(func() roceLayer { return new(AtomicAckETHLayer) }))
	LayerTypeImmDt        = register(1798, "RoCE ImmDt", decodeAlone(func() roceLayer { return new(ImmDtLayer) }))
	LayerTypeIETH         = register(1799, "RoCE IETH", decodeAlone(func() roceLayer { return new(IETHLayer) }))
	LayerTypeICRC         = register(1800, "RoCE ICRC", decodeAlone(func() roceLayer { return new(ICRCLayer) }))
)

func init() { layers.RegisterUDPPortLayerType(Port, LayerTypeBTH) }

func register(number int, name string, decode gopacket.DecodeFunc) gopacket.LayerType {
	return gopacket.RegisterLayerType(number, gopacket.LayerTypeMetadata{Name: name, Decoder: decode})
}

// extensionType returns the layer type of the first header of h.
func extensionType(h HeaderSet) gopacket.LayerType {
	return firstExtension + gopacket.LayerType(bits.TrailingZeros16(uint16(h)))
}

// firstExtension is the number of LayerTypeXRCETH. The others follow in the order of the HeaderSet.
const firstExtension gopacket.LayerType = 1791

// roceLayer is what all types here are.
type roceLayer interface {
	gopacket.Layer
	gopacket.DecodingLayer
	gopacket.SerializableLayer
}

var (
	errLayerShort = errors.New("wire: too short")
	errNoPath     = errors.New("wire: BTH layer: SetPath must be called before an ICRC can be computed")
)

// BTHLayer is the base transport header, and what stands at both ends of a packet: pad and ICRC are its trailer, so
// that its payload is what follows the header without them.
type BTHLayer struct {
	BTH
	contents, payload, trailer []byte
	path                       *Path
	id                         uint16
}

// SetPath names what the ICRC covers of IP and UDP. It must be called before the layer is serialised with
// ComputeChecksums; id is the IPv4 identification.
func (l *BTHLayer) SetPath(p *Path, id uint16) { l.path, l.id = p, id }

// Trailer returns pad and ICRC of a decoded packet: the bytes of an [ICRCLayer].
func (l *BTHLayer) Trailer() []byte { return l.trailer }

// LayerType implements gopacket.Layer.
func (l *BTHLayer) LayerType() gopacket.LayerType { return LayerTypeBTH }

// CanDecode implements gopacket.DecodingLayer.
func (l *BTHLayer) CanDecode() gopacket.LayerClass { return LayerTypeBTH }

// LayerContents implements gopacket.Layer.
func (l *BTHLayer) LayerContents() []byte { return l.contents }

// LayerPayload implements gopacket.Layer: extension headers and payload.
func (l *BTHLayer) LayerPayload() []byte { return l.payload }

// NextLayerType implements gopacket.DecodingLayer.
func (l *BTHLayer) NextLayerType() gopacket.LayerType { return l.after(0, l.payload) }

// after returns the type of what follows the headers up to and including bit.
func (l *BTHLayer) after(bit HeaderSet, rest []byte) gopacket.LayerType {
	if bit != 0 {
		bit = bit<<1 - 1
	}
	if left := l.Opcode().Headers() &^ bit; left != 0 {
		return extensionType(left)
	}
	if len(rest) == 0 {
		return gopacket.LayerTypeZero
	}
	return gopacket.LayerTypePayload
}

// DecodeFromBytes implements gopacket.DecodingLayer. It asks for what [Parse] asks for, the ICRC's value apart.
func (l *BTHLayer) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < BTHSize {
		df.SetTruncated()
		return errLayerShort
	}
	op, h := Opcode(data[0]), (*BTH)(data)
	if !op.Valid() || h.TVer() != 0 {
		return fmt.Errorf("wire: not a RoCEv2 packet: %v, header version %d", op, h.TVer())
	}
	end := len(data) - ICRCSize - int(h.PadCount())
	if end < op.HeaderLen() {
		df.SetTruncated()
		return errLayerShort
	}
	l.BTH = *h
	l.contents, l.payload, l.trailer = data[:BTHSize], data[BTHSize:end], data[end:]
	return nil
}

// SerializeTo implements gopacket.SerializableLayer. With FixLengths it sets the pad count and adds pad and ICRC;
// without, it writes the header alone, and pad and ICRC are an [ICRCLayer]'s business. With ComputeChecksums it writes
// the ICRC over the last four bytes of the packet.
func (l *BTHLayer) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	extensions := l.Opcode().HeaderLen() - BTHSize
	n := len(b.Bytes()) - extensions
	if n < 0 {
		return fmt.Errorf("wire: BTH layer: %v wants %d bytes of extension headers", l.Opcode(), extensions)
	}
	if opts.FixLengths {
		l.SetPadCount(uint8(-n & 3))
		trailer, err := b.AppendBytes(int(l.PadCount()) + ICRCSize)
		if err != nil {
			return err
		}
		clear(trailer)
	}
	head, err := b.PrependBytes(BTHSize)
	if err != nil {
		return err
	}
	copy(head, l.BTH[:])
	if !opts.ComputeChecksums {
		return nil
	}
	packet := b.Bytes()
	headers := BTHSize + extensions
	switch {
	case l.path == nil:
		return errNoPath
	case len(packet) < headers+ICRCSize:
		return errLayerShort
	}
	end := len(packet) - ICRCSize
	StartChecksum(l.path, udpLen+len(packet), l.id).BTH(packet[:headers]).Update(packet[headers:end]).Put(packet[end:])
	return nil
}

// ICRCLayer is the end of a packet: 0 to 3 bytes of pad, and the ICRC.
type ICRCLayer struct {
	Pad      []byte
	Value    Checksum
	contents []byte
}

// LayerType implements gopacket.Layer.
func (l *ICRCLayer) LayerType() gopacket.LayerType { return LayerTypeICRC }

// CanDecode implements gopacket.DecodingLayer.
func (l *ICRCLayer) CanDecode() gopacket.LayerClass { return LayerTypeICRC }

// NextLayerType implements gopacket.DecodingLayer: nothing follows.
func (l *ICRCLayer) NextLayerType() gopacket.LayerType { return gopacket.LayerTypeZero }

// LayerContents implements gopacket.Layer.
func (l *ICRCLayer) LayerContents() []byte { return l.contents }

// LayerPayload implements gopacket.Layer.
func (l *ICRCLayer) LayerPayload() []byte { return nil }

// DecodeFromBytes implements gopacket.DecodingLayer.
func (l *ICRCLayer) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	pad := len(data) - ICRCSize
	if pad < 0 {
		df.SetTruncated()
		return errLayerShort
	}
	v := data[pad:]
	l.Pad, l.contents = data[:pad], data
	l.Value = Checksum(uint32(v[0]) | uint32(v[1])<<8 | uint32(v[2])<<16 | uint32(v[3])<<24)
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (l *ICRCLayer) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	out, err := b.PrependBytes(len(l.Pad) + ICRCSize)
	if err != nil {
		return err
	}
	l.Value.Put(out[copy(out, l.Pad):])
	return nil
}
