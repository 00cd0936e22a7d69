package raw

import (
	"encoding/binary"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// headers are the layers in front of a datagram, kept so that reading them allocates nothing.
type headers struct {
	eth layers.Ethernet
	tag layers.Dot1Q
	ip4 layers.IPv4
	ip6 layers.IPv6
	udp layers.UDP
	// tagged says that there was a tag in the frame, which is rare: the kernel takes it off and tells us beside.
	tagged bool
}

const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
)

// read takes an Ethernet frame apart: into the payload of its UDP datagram, which may be a group that the kernel left
// whole, and what d is told about its way. It refuses what cannot be a RoCEv2 datagram to port: fragments, options and
// extension headers, lengths that disagree, an IPv4 header whose checksum is wrong. For the UDP checksum ask checked.
func (h *headers) read(frame []byte, port uint16, d *wire.Datagram) (payload []byte, ok bool) {
	nobody := gopacket.NilDecodeFeedback
	if h.eth.DecodeFromBytes(frame, nobody) != nil {
		return nil, false
	}
	typ, rest := h.eth.EthernetType, h.eth.Payload
	if h.tagged = typ == layers.EthernetTypeDot1Q; h.tagged {
		if h.tag.DecodeFromBytes(rest, nobody) != nil {
			return nil, false
		}
		typ, rest = h.tag.Type, h.tag.Payload
	}
	switch typ {
	case layers.EthernetTypeIPv4:
		rest, ok = h.readIPv4(rest, d)
	case layers.EthernetTypeIPv6:
		rest, ok = h.readIPv6(rest, d)
	}
	if !ok || h.udp.DecodeFromBytes(rest, nobody) != nil {
		return nil, false
	}
	if int(h.udp.Length) != len(rest) || uint16(h.udp.DstPort) != port {
		return nil, false
	}
	d.SourcePort = uint16(h.udp.SrcPort)
	return rest[udpHeader:], true
}

func (h *headers) readIPv4(b []byte, d *wire.Datagram) (rest []byte, ok bool) {
	// Options are refused before the decoder would make room for them. It takes a length of 0 for one left out.
	if len(b) < ipv4Header || b[0] != 0x45 || binary.BigEndian.Uint16(b[2:]) == 0 {
		return nil, false
	}
	p := &h.ip4
	if p.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil || int(p.Length) > len(b) ||
		p.Protocol != layers.IPProtocolUDP || p.Flags&layers.IPv4MoreFragments != 0 || p.FragOffset != 0 ||
		fold(sum(0, b[:ipv4Header])) != 0xffff {
		return nil, false
	}
	*d = wire.Datagram{
		Source: mapped(p.SrcIP), Dest: mapped(p.DstIP), TrafficClass: p.TOS, HopLimit: p.TTL,
		ID: p.Id, IDKnown: true, NoDF: p.Flags&layers.IPv4DontFragment == 0,
	}
	return p.Payload, true
}

func (h *headers) readIPv6(b []byte, d *wire.Datagram) (rest []byte, ok bool) {
	if len(b) < ipv6Header || b[0]>>4 != 6 || layers.IPProtocol(b[6]) != layers.IPProtocolUDP {
		return nil, false
	}
	p := &h.ip6
	if p.DecodeFromBytes(b, gopacket.NilDecodeFeedback) != nil || int(p.Length) > len(b)-ipv6Header {
		return nil, false
	}
	*d = wire.Datagram{
		Source: ib.GID(p.SrcIP), Dest: ib.GID(p.DstIP), TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
	}
	return p.Payload, true
}

func mapped(ip []byte) ib.GID {
	return ib.GID{10: 0xff, 11: 0xff, 12: ip[0], 13: ip[1], 14: ip[2], 15: ip[3]}
}

// checked reports whether the UDP checksum of the datagram that was read is right. 0 stands for none, over IPv6 too, which
// is what most senders of RoCEv2 send (RFC 6936).
func (h *headers) checked(d *wire.Datagram) bool {
	if h.udp.Checksum == 0 {
		return true
	}
	p := wire.Path{Source: d.Source, Dest: d.Dest}
	s := uint64(pseudoSum(&p, isIPv4(&d.Source), int(h.udp.Length)))
	return fold(sum(sum(s, h.udp.Contents), h.udp.Payload)) == 0xffff
}

// sum adds 32-bit words, and fold makes them the sum of the Internet checksum (RFC 1071).
func sum(s uint64, b []byte) uint64 {
	for ; len(b) >= 4; b = b[4:] {
		s += uint64(binary.BigEndian.Uint32(b))
	}
	for i, v := range b {
		s += uint64(v) << (24 - 8*i)
	}
	return s
}

func fold(s uint64) uint16 {
	for s>>16 != 0 {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// pseudoSum is the sum over the pseudo-header of a UDP datagram of n bytes, header included (RFC 768, RFC 8200 8.1).
func pseudoSum(p *wire.Path, v4 bool, n int) uint16 {
	src, dst := p.Source[:], p.Dest[:]
	if v4 {
		src, dst = src[12:], dst[12:]
	}
	return fold(sum(sum(uint64(n)+uint64(layers.IPProtocolUDP), src), dst))
}
