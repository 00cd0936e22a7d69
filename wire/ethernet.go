package wire

import (
	"errors"
	"slices"
	"sync"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/softnic/softnicd/ib"
)

const (
	ethernetLen = 14
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8

	defaultHopLimit = 64
)

// AppendEthernet appends the whole Ethernet frame, without FCS, that carries udpPayload along p. id is the IPv4
// identification that its ICRC was made for. The MAC addresses are locally administered and made from the IP addresses:
// the frame is for captures, where no real ones are to be had.
//
// The UDP checksum is 0 over IPv4, as hardware sends it, and a real one over IPv6, where 0 is not allowed.
func AppendEthernet(dst []byte, p *Path, id uint16, udpPayload []byte) []byte {
	f := framers.Get().(*framer)
	defer framers.Put(f)
	v4 := isIPv4(&p.Source) && isIPv4(&p.Dest)
	headers := ethernetLen + ipv6Len + udpLen
	if v4 {
		headers = ethernetLen + ipv4Len + udpLen
	}
	dst = slices.Grow(dst, headers+len(udpPayload))
	begin := len(dst)
	dst = append(dst[:begin+headers], udpPayload...)
	f.buf = prependBuffer{b: dst[begin:], start: headers}
	f.serialize(p, v4, id)
	f.buf.b = nil
	return dst
}

// framer holds the layers of one frame, so that making a frame allocates nothing.
type framer struct {
	buf            prependBuffer
	eth            layers.Ethernet
	ip4            layers.IPv4
	ip6            layers.IPv6
	udp            layers.UDP
	srcMAC, dstMAC [6]byte
}

var framers = sync.Pool{New: func() any { return new(framer) }}

// serialize writes the headers in front of the payload, innermost first. The layers' errors are about buffers and
// addresses of wrong size, which there are none of here; and the Ethernet layer wants to pad short frames, which a
// capture of what was sent does not show.
func (f *framer) serialize(p *Path, v4 bool, id uint16) {
	hops := p.HopLimit
	if hops == 0 {
		hops = defaultHopLimit
	}
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: !v4}
	f.udp.SrcPort, f.udp.DstPort, f.udp.Checksum = layers.UDPPort(p.SourcePort), Port, 0
	f.eth.EthernetType = layers.EthernetTypeIPv6
	if v4 {
		f.eth.EthernetType = layers.EthernetTypeIPv4
		f.ip4.Version, f.ip4.IHL, f.ip4.TOS, f.ip4.TTL = 4, ipv4Len/4, p.TrafficClass, hops
		f.ip4.Id, f.ip4.Flags, f.ip4.Protocol = id, layers.IPv4DontFragment, layers.IPProtocolUDP
		f.ip4.SrcIP, f.ip4.DstIP = p.Source[12:], p.Dest[12:]
		_ = f.udp.SerializeTo(&f.buf, opts)
		opts.ComputeChecksums = true
		_ = f.ip4.SerializeTo(&f.buf, opts)
	} else {
		f.ip6.Version, f.ip6.TrafficClass, f.ip6.FlowLabel, f.ip6.HopLimit = 6, p.TrafficClass, p.FlowLabel&0xfffff, hops
		f.ip6.NextHeader, f.ip6.SrcIP, f.ip6.DstIP = layers.IPProtocolUDP, p.Source[:], p.Dest[:]
		_ = f.udp.SetNetworkLayerForChecksum(&f.ip6)
		_ = f.udp.SerializeTo(&f.buf, opts)
		_ = f.ip6.SerializeTo(&f.buf, opts)
	}
	f.srcMAC, f.dstMAC = macOf(&p.Source), macOf(&p.Dest)
	f.eth.SrcMAC, f.eth.DstMAC = f.srcMAC[:], f.dstMAC[:]
	_ = f.eth.SerializeTo(&f.buf, gopacket.SerializeOptions{})
}

// macOf returns the MAC address of a multicast group, or one that stands for a unicast address.
func macOf(g *ib.GID) [6]byte {
	switch v4 := isIPv4(g); {
	case v4 && g.IsMulticast():
		return [6]byte{0x01, 0x00, 0x5e, g[13] & 0x7f, g[14], g[15]}
	case g.IsMulticast():
		return [6]byte{0x33, 0x33, g[12], g[13], g[14], g[15]}
	case v4:
		return [6]byte{0x02, 0x00, g[12], g[13], g[14], g[15]}
	}
	var prefix byte
	for _, b := range g[:12] {
		prefix = prefix*31 + b
	}
	return [6]byte{0x06, prefix, g[12], g[13], g[14], g[15]}
}

var errNoRoom = errors.New("wire: no room in a fixed buffer")

// prependBuffer is a gopacket.SerializeBuffer whose room in front was made beforehand.
type prependBuffer struct {
	b     []byte
	start int
}

func (p *prependBuffer) Bytes() []byte { return p.b[p.start:] }

func (p *prependBuffer) PrependBytes(n int) ([]byte, error) {
	if n > p.start {
		return nil, errNoRoom
	}
	p.start -= n
	return p.b[p.start : p.start+n], nil
}

func (p *prependBuffer) AppendBytes(int) ([]byte, error) { return nil, errNoRoom }

func (p *prependBuffer) Clear() error { return errNoRoom }

func (p *prependBuffer) Layers() []gopacket.LayerType { return nil }

func (p *prependBuffer) PushLayer(gopacket.LayerType) {}
