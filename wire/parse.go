package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// Datagram is a UDP payload as a port received it, with what is known about its way.
type Datagram struct {
	// Bytes is everything behind the UDP header, ICRC included. A parsed packet refers to it.
	Bytes        []byte
	Source, Dest ib.GID
	SourcePort   uint16
	TrafficClass uint8
	HopLimit     uint8
	// ID is the IPv4 identification if IDKnown, else the one that the receiver expects: 0 for a single datagram, the
	// index of a segment in a group that the kernel merged. [Parse] puts the one it found here.
	ID      uint16
	IDKnown bool
	// NoDF says that the IPv4 header had DF clear, which the ICRC covers too. No sender worth the name does that, so
	// who cannot see the header leaves it false.
	NoDF bool
	// Merged says that between this call of [Parse] and the next nothing but Bytes and ID changes, so that what is the same
	// is summed up once.
	Merged bool

	prefix Checksum // of the headers of datagrams of so many bytes, with identification 0
	length int
}

// Drop is why a datagram is no packet. The reasons count those of a port.
type Drop uint8

// Reasons to drop, in the order in which they are looked for. DestQP 0 is the subnet manager's, which Ethernet has not.
const (
	Accepted Drop = iota
	DropTooShort
	DropUnknownOpcode
	DropVersion
	DropLength
	DropPad
	DropDestQP0
	DropICRC
	DropIP // of Ethernet, IP or UDP headers, by a port that sees them; before all others
	NumDrops
)

var dropNames = [NumDrops]string{
	"accepted", "too short", "unknown opcode", "header version", "length", "pad count", "destination QP 0", "ICRC",
	"IP or UDP header",
}

func (d Drop) String() string {
	if d < NumDrops {
		return dropNames[d]
	}
	return fmt.Sprintf("Drop(%d)", uint8(d))
}

// maxUDPPayload is what fits behind an IPv4 and a UDP header.
const maxUDPPayload = 65535 - ipv4Len - udpLen

// Parse judges the datagram d. If it returns [Accepted], p is the packet, and refers to d.Bytes; otherwise p is not
// touched.
//
// It refuses what cannot be a packet: BTH and extension headers, pad and ICRC must fit, and the ICRC must be right.
// Whether the payload obeys [Opcode.Payload] and whether its pad is the right one is a question for the engine, since
// an RC responder answers it with a NAK (IBA 9.7.4.1.5).
//
// When the IPv4 identification is not known the expected one is tried, and then any other: of the ICRC's 32 bits the
// check of 16 remains, beside the UDP checksum.
func Parse(p *Packet, d *Datagram) Drop {
	b := d.Bytes
	if len(b) < BTHSize {
		return DropTooShort
	}
	// First of all, so that nothing below asks the table about an opcode it does not know.
	op := Opcode(b[0])
	if !op.Valid() {
		return DropUnknownOpcode
	}
	h := (*BTH)(b)
	if h.TVer() != 0 {
		return DropVersion
	}
	headers := op.HeaderLen()
	if len(b) < headers+ICRCSize || len(b) > maxUDPPayload {
		return DropLength
	}
	rest := len(b) - headers - ICRCSize
	pad := int(h.PadCount())
	if pad > rest {
		return DropPad
	}
	if h.DestQP() == 0 {
		return DropDestQP0
	}
	if !d.checkICRC(headers) {
		return DropICRC
	}
	p.Source, p.Dest, p.SourcePort = d.Source, d.Dest, d.SourcePort
	p.TrafficClass, p.HopLimit, p.SL, p.Local = d.TrafficClass, d.HopLimit, 0, false
	p.Opcode, p.Header = op, b[:headers:headers]
	p.SetPayload(b[headers : headers+rest-pad])
	return Accepted
}

func (d *Datagram) checkICRC(headers int) bool {
	b := d.Bytes
	end := len(b) - ICRCSize
	want := d.start().BTH(b[:headers]).Update(b[headers:end])
	delta := want ^ Checksum(binary.LittleEndian.Uint32(b[end:]))
	if delta == 0 {
		return true
	}
	if d.IDKnown || !isIPv4(&d.Source) || !isIPv4(&d.Dest) {
		return false
	}
	change, ok := FindID(delta, end)
	if ok {
		d.ID ^= change
	}
	return ok
}

// start returns the checksum of the headers in front of the BTH.
func (d *Datagram) start() Checksum {
	n := len(d.Bytes)
	if d.NoDF {
		return startChecksum(&d.Source, &d.Dest, d.SourcePort, udpLen+n, d.ID, 0)
	}
	if !d.Merged || int(d.ID) >= len(idDeltas) {
		return startChecksum(&d.Source, &d.Dest, d.SourcePort, udpLen+n, d.ID, dontFragment)
	}
	if d.length != n {
		d.prefix, d.length = startChecksum(&d.Source, &d.Dest, d.SourcePort, udpLen+n, 0, dontFragment), n
	}
	if !isIPv4(&d.Source) || !isIPv4(&d.Dest) {
		return d.prefix
	}
	return d.prefix ^ idDeltas[d.ID]
}
