package wire

import "github.com/google/gopacket"

// ExtensionLayer is an extension header as a gopacket layer. Header is a copy of the bytes.
type ExtensionLayer[H any, V view[H]] struct {
	Header            H
	bth               *BTHLayer
	contents, payload []byte
}

// view is a pointer to the header type H.
type view[H any] interface {
	*H
	kind() HeaderSet
	bytes() []byte
}

// XRCETHLayer is the XRCETH as a layer.
type XRCETHLayer = ExtensionLayer[XRCETH, *XRCETH]

// DETHLayer is the DETH as a layer.
type DETHLayer = ExtensionLayer[DETH, *DETH]

// FETHLayer is the FETH as a layer.
type FETHLayer = ExtensionLayer[FETH, *FETH]

// RETHLayer is the RETH as a layer.
type RETHLayer = ExtensionLayer[RETH, *RETH]

// AtomicETHLayer is the AtomicETH as a layer.
type AtomicETHLayer = ExtensionLayer[AtomicETH, *AtomicETH]

// AETHLayer is the AETH as a layer.
type AETHLayer = ExtensionLayer[AETH, *AETH]

// AtomicAckETHLayer is the AtomicAckETH as a layer.
type AtomicAckETHLayer = ExtensionLayer[AtomicAckETH, *AtomicAckETH]

// ImmDtLayer is the ImmDt as a layer.
type ImmDtLayer = ExtensionLayer[ImmDt, *ImmDt]

// IETHLayer is the IETH as a layer.
type IETHLayer = ExtensionLayer[IETH, *IETH]

// LayerType implements gopacket.Layer.
func (l *ExtensionLayer[H, V]) LayerType() gopacket.LayerType {
	return extensionType(V(&l.Header).kind())
}

// CanDecode implements gopacket.DecodingLayer.
func (l *ExtensionLayer[H, V]) CanDecode() gopacket.LayerClass { return l.LayerType() }

// LayerContents implements gopacket.Layer.
func (l *ExtensionLayer[H, V]) LayerContents() []byte { return l.contents }

// LayerPayload implements gopacket.Layer.
func (l *ExtensionLayer[H, V]) LayerPayload() []byte { return l.payload }

// NextLayerType implements gopacket.DecodingLayer. What follows an extension header depends on the opcode in the BTH: a
// layer that was not made by [NewLayers] has none, and takes the rest for payload.
func (l *ExtensionLayer[H, V]) NextLayerType() gopacket.LayerType {
	if l.bth == nil {
		return gopacket.LayerTypePayload
	}
	return l.bth.after(V(&l.Header).kind(), l.payload)
}

// DecodeFromBytes implements gopacket.DecodingLayer.
func (l *ExtensionLayer[H, V]) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	b := V(&l.Header).bytes()
	if len(data) < len(b) {
		df.SetTruncated()
		return errLayerShort
	}
	copy(b, data)
	l.contents, l.payload = data[:len(b)], data[len(b):]
	return nil
}

// SerializeTo implements gopacket.SerializableLayer.
func (l *ExtensionLayer[H, V]) SerializeTo(b gopacket.SerializeBuffer, _ gopacket.SerializeOptions) error {
	h := V(&l.Header).bytes()
	out, err := b.PrependBytes(len(h))
	if err != nil {
		return err
	}
	copy(out, h)
	return nil
}

// Layers are all layers of a packet behind UDP. They belong together: which extension header follows which is for the
// opcode in BTH to say.
type Layers struct {
	BTH          BTHLayer
	XRCETH       XRCETHLayer
	DETH         DETHLayer
	FETH         FETHLayer
	RETH         RETHLayer
	AtomicETH    AtomicETHLayer
	AETH         AETHLayer
	AtomicAckETH AtomicAckETHLayer
	ImmDt        ImmDtLayer
	IETH         IETHLayer
	Payload      gopacket.Payload
}

// NewLayers makes layers that know each other.
func NewLayers() *Layers {
	l := new(Layers)
	b := &l.BTH
	l.XRCETH.bth, l.DETH.bth, l.FETH.bth, l.RETH.bth, l.AtomicETH.bth = b, b, b, b, b
	l.AETH.bth, l.AtomicAckETH.bth, l.ImmDt.bth, l.IETH.bth = b, b, b, b
	return l
}

// Decoding returns the layers for gopacket.NewDecodingLayerParser.
func (l *Layers) Decoding() []gopacket.DecodingLayer {
	return []gopacket.DecodingLayer{
		&l.BTH, &l.XRCETH, &l.DETH, &l.FETH, &l.RETH, &l.AtomicETH, &l.AETH, &l.AtomicAckETH, &l.ImmDt, &l.IETH, &l.Payload,
	}
}

// decodePacket is the decoder of LayerTypeBTH: it takes the whole packet apart, since only the BTH tells how.
func decodePacket(data []byte, p gopacket.PacketBuilder) error {
	l := NewLayers()
	if err := l.BTH.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(&l.BTH)
	rest := l.BTH.payload
	for _, h := range []roceLayer{
		&l.XRCETH, &l.DETH, &l.FETH, &l.RETH, &l.AtomicETH, &l.AETH, &l.AtomicAckETH, &l.ImmDt, &l.IETH,
	} {
		if !l.BTH.Opcode().Headers().Has(1 << (h.LayerType() - firstExtension)) {
			continue
		}
		if err := h.DecodeFromBytes(rest, p); err != nil {
			return err
		}
		p.AddLayer(h)
		rest = h.LayerPayload()
	}
	if len(rest) > 0 {
		l.Payload = gopacket.Payload(rest)
		p.AddLayer(&l.Payload)
		p.SetApplicationLayer(&l.Payload)
	}
	icrc := new(ICRCLayer)
	if err := icrc.DecodeFromBytes(l.BTH.trailer, p); err != nil {
		return err
	}
	p.AddLayer(icrc)
	return nil
}

// decodeAlone returns the decoder of a header that somebody wants decoded without its BTH.
func decodeAlone(fresh func() roceLayer) gopacket.DecodeFunc {
	return func(data []byte, p gopacket.PacketBuilder) error {
		l := fresh()
		if err := l.DecodeFromBytes(data, p); err != nil {
			return err
		}
		p.AddLayer(l)
		if len(l.LayerPayload()) == 0 {
			return nil
		}
		return p.NextDecoder(gopacket.LayerTypePayload)
	}
}

func (h *XRCETH) kind() HeaderSet       { return HasXRCETH }
func (h *DETH) kind() HeaderSet         { return HasDETH }
func (h *FETH) kind() HeaderSet         { return HasFETH }
func (h *RETH) kind() HeaderSet         { return HasRETH }
func (h *AtomicETH) kind() HeaderSet    { return HasAtomicETH }
func (h *AETH) kind() HeaderSet         { return HasAETH }
func (h *AtomicAckETH) kind() HeaderSet { return HasAtomicAckETH }
func (h *ImmDt) kind() HeaderSet        { return HasImm }
func (h *IETH) kind() HeaderSet         { return HasIETH }

func (h *XRCETH) bytes() []byte       { return h[:] }
func (h *DETH) bytes() []byte         { return h[:] }
func (h *FETH) bytes() []byte         { return h[:] }
func (h *RETH) bytes() []byte         { return h[:] }
func (h *AtomicETH) bytes() []byte    { return h[:] }
func (h *AETH) bytes() []byte         { return h[:] }
func (h *AtomicAckETH) bytes() []byte { return h[:] }
func (h *ImmDt) bytes() []byte        { return h[:] }
func (h *IETH) bytes() []byte         { return h[:] }
