package wire

import "github.com/softnic/softnicd/ib"

// Packet is a received packet that [Parse] has judged, or a frame of a local peer handed over as it is, which may be a run
// of packets: the accessors are plain loads. It is valid until the port's next Recv.
type Packet struct {
	Source, Dest ib.GID
	SourcePort   uint16
	TrafficClass uint8
	HopLimit     uint8
	SL           uint8 // priority of the VLAN tag; 0 where it cannot be seen
	// Local says that the packet never left the device: it has no ICRC, and its payload is the peer's memory.
	Local bool

	Opcode Opcode
	// Header holds BTH and the extension headers of Opcode.
	Header []byte
	// Payload is the payload without pad. A datagram has one piece at the most.
	Payload []Piece
	// Len is the bytes of payload.
	Len int

	run uint8 // packets; 0 is 1
	one [1]Piece
	buf Buffer
}

// BTH returns the base transport header.
func (p *Packet) BTH() *BTH { return (*BTH)(p.Header) }

// PSN returns the packet's sequence number.
func (p *Packet) PSN() ib.PSN { return p.BTH().PSN() }

// SetPayload makes b the whole payload, of one packet.
func (p *Packet) SetPayload(b []byte) {
	p.buf.B, p.Len, p.run = b, len(b), 0
	p.one[0] = Piece{&p.buf, 0, len(b)}
	p.Payload = p.one[:]
	if len(b) == 0 {
		p.Payload = p.one[:0]
	}
}

// FromFrame makes p the packet that a local peer receives when f is sent to it. It shares f's header and pieces, and is
// valid as long as f is.
func (p *Packet) FromFrame(f *Frame) {
	p.Source, p.Dest = f.Path.Source, f.Path.Dest
	p.SourcePort, p.TrafficClass, p.HopLimit = f.Path.SourcePort, f.Path.TrafficClass, f.Path.HopLimit
	p.SL, p.Local = f.Path.SL, true
	p.Opcode, p.Header = f.BTH().Opcode(), f.Header()
	p.Payload, p.Len, p.run = f.pieces, f.length, f.run
}
