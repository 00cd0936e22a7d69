package wire

import (
	"errors"
	"slices"
)

var errRun = errors.New("a run of packets is not one datagram")

// AppendTo appends the UDP payload that f makes: headers, a copy of the payload, pad and ICRC. id is the IPv4
// identification that the datagram will travel with. The error is that of the memory, or f is a run, which is no datagram;
// dst is then returned as it was.
func (f *Frame) AppendTo(dst []byte, id uint16) ([]byte, error) {
	if f.run > 1 {
		return dst, errRun
	}
	start := startChecksum(&f.Path.Source, &f.Path.Dest, f.Path.SourcePort, udpLen+f.Len(), id, dontFragment)
	return appendPacket(dst, start, f.Header(), f.pieces, f.length, f.Pad())
}

// AppendTo appends the UDP payload that would have carried p, for a packet of a local peer that is to be captured or
// spoilt. id is the IPv4 identification to pretend.
func (p *Packet) AppendTo(dst []byte, id uint16) ([]byte, error) {
	if p.run > 1 {
		return dst, errRun
	}
	pad := int(p.BTH().PadCount())
	n := udpLen + len(p.Header) + p.Len + pad + ICRCSize
	start := startChecksum(&p.Source, &p.Dest, p.SourcePort, n, id, dontFragment)
	return appendPacket(dst, start, p.Header, p.Payload, p.Len, pad)
}

func appendPacket(dst []byte, c Checksum, header []byte, pieces []Piece, length, pad int) ([]byte, error) {
	out := slices.Grow(dst, len(header)+length+pad+ICRCSize)
	out = append(out, header...)
	begin := len(out)
	for i := range pieces {
		piece := &pieces[i]
		at := len(out)
		out = out[:at+piece.Len]
		if err := piece.Mem.Read(out[at:], piece.Off); err != nil {
			return dst, err
		}
	}
	for range pad {
		out = append(out, 0)
	}
	c = c.BTH(header).Update(out[begin:])
	out = append(out, 0, 0, 0, 0)
	c.Put(out[len(out)-ICRCSize:])
	return out, nil
}
