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
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8

	defaultHopLimit = 64
)

// Ethernet is what stands in front of an IP packet.
type Ethernet struct {
	Source, Dest [6]byte
	// Tagged asks for an 802.1Q tag with VLAN, 12 bits of it, and Priority, 3 bits.
	Tagged   bool
	VLAN     uint16
	Priority uint8
}

// HeaderLen returns the bytes of Ethernet, IP and UDP headers of a datagram along p.
func (e *Ethernet) HeaderLen(p *Path) int {
	n := ethernetLen + ipv6Len + udpLen
	if p.isIPv4() {
		n = ethernetLen + ipv4Len + udpLen
	}
	if e.Tagged {
		n += vlanLen
	}
	return n
}

func (p *Path) isIPv4() bool { return isIPv4(&p.Source) && isIPv4(&p.Dest) }

// AppendEthernet appends the whole Ethernet frame, without FCS, that carries udpPayload along p. id is the IPv4
// identification that its ICRC was made for. The MAC addresses are locally administered and made from the IP addresses:
// the frame is for captures, where no real ones are to be had.
//
// The UDP checksum is 0 over IPv4, as hardware sends it, and a real one over IPv6, where 0 is not allowed.
func AppendEthernet(dst []byte, p *Path, id uint16, udpPayload []byte) []byte {
	f := framers.Get().(*Framer)
	defer framers.Put(f)
	e := Ethernet{Source: macOf(&p.Source), Dest: macOf(&p.Dest)}
	headers := e.HeaderLen(p)
	dst = slices.Grow(dst, headers+len(udpPayload))
	begin := len(dst)
	dst = append(dst[:begin+headers], udpPayload...)
	f.buf = prependBuffer{b: dst[begin:], start: headers}
	f.serialize(&e, p, Port, id, len(udpPayload), !p.isIPv4())
	f.buf.b = nil
	return dst
}

// Framer writes headers. It holds the layers of one frame, so that making a frame allocates nothing; one goroutine uses
// it at a time.
type Framer struct {
	buf            prependBuffer
	eth            layers.Ethernet
	tag            layers.Dot1Q
	ip4            layers.IPv4
	ip6            layers.IPv6
	udp            layers.UDP
	srcMAC, dstMAC [6]byte
}

var framers = sync.Pool{New: func() any { return new(Framer) }}

// Put writes the headers of a datagram of n bytes of UDP payload, ICRC included, along p to dst, which has
// [Ethernet.HeaderLen] bytes. port is the UDP destination port, id the IPv4 identification. The UDP checksum is 0.
func (f *Framer) Put(dst []byte, e *Ethernet, p *Path, port, id uint16, n int) {
	f.buf = prependBuffer{b: dst, start: len(dst)}
	f.serialize(e, p, port, id, n, false)
	f.buf.b = nil
}

// serialize writes the headers in front of what the buffer holds, innermost first. The layers' errors are about buffers
// and addresses of wrong size, which there are none of here; and the Ethernet layer wants to pad short frames, which a
// capture of what was sent does not show.
func (f *Framer) serialize(e *Ethernet, p *Path, port, id uint16, n int, sum bool) {
	hops := p.HopLimit
	if hops == 0 {
		hops = defaultHopLimit
	}
	f.udp.SrcPort, f.udp.DstPort, f.udp.Checksum = layers.UDPPort(p.SourcePort), layers.UDPPort(port), 0
	f.udp.Length = uint16(udpLen + n)
	typ := layers.EthernetTypeIPv6
	if p.isIPv4() {
		typ = layers.EthernetTypeIPv4
		f.ip4.Version, f.ip4.IHL, f.ip4.TOS, f.ip4.TTL = 4, ipv4Len/4, p.TrafficClass, hops
		f.ip4.Id, f.ip4.Flags, f.ip4.Protocol = id, layers.IPv4DontFragment, layers.IPProtocolUDP
		f.ip4.SrcIP, f.ip4.DstIP = p.Source[12:], p.Dest[12:]
		f.ip4.Length = uint16(ipv4Len + udpLen + n)
		_ = f.udp.SerializeTo(&f.buf, gopacket.SerializeOptions{})
		_ = f.ip4.SerializeTo(&f.buf, gopacket.SerializeOptions{ComputeChecksums: true})
	} else {
		f.ip6.Version, f.ip6.TrafficClass, f.ip6.FlowLabel, f.ip6.HopLimit = 6, p.TrafficClass, p.FlowLabel&0xfffff, hops
		f.ip6.NextHeader, f.ip6.SrcIP, f.ip6.DstIP = layers.IPProtocolUDP, p.Source[:], p.Dest[:]
		f.ip6.Length = uint16(udpLen + n)
		_ = f.udp.SetNetworkLayerForChecksum(&f.ip6)
		_ = f.udp.SerializeTo(&f.buf, gopacket.SerializeOptions{ComputeChecksums: sum})
		_ = f.ip6.SerializeTo(&f.buf, gopacket.SerializeOptions{})
	}
	f.eth.EthernetType = typ
	if e.Tagged {
		f.tag.Priority, f.tag.VLANIdentifier, f.tag.Type = e.Priority, e.VLAN&0xfff, typ
		f.eth.EthernetType = layers.EthernetTypeDot1Q
		_ = f.tag.SerializeTo(&f.buf, gopacket.SerializeOptions{})
	}
	f.srcMAC, f.dstMAC = e.Source, e.Dest
	f.eth.SrcMAC, f.eth.DstMAC = f.srcMAC[:], f.dstMAC[:]
	_ = f.eth.SerializeTo(&f.buf, gopacket.SerializeOptions{})
}

// MulticastMAC returns the Ethernet address of the group g (RFC 1112, RFC 2464), and false if it is none.
func MulticastMAC(g *ib.GID) (mac [6]byte, ok bool) {
	if !g.IsMulticast() {
		return mac, false
	}
	return macOf(g), true
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
