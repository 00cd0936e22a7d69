package wire

import "encoding/binary"

// Joiner makes runs of packets that arrived together: segments of a group that the kernel merged, say.
//
//	j.Reset()
//	wire.Parse(p, d)
//	for … the next datagram d, as long as j.Join(p, d) …
//
// The runs are good until Reset. It allocates nothing after [NewJoiner].
type Joiner struct {
	pieces  []Piece
	buffers []Buffer
}

// NewJoiner makes room for runs of n packets together.
func NewJoiner(n int) *Joiner { return &Joiner{make([]Piece, 0, n), make([]Buffer, 0, n)} }

// Reset forgets all runs.
func (j *Joiner) Reset() { j.pieces, j.buffers = j.pieces[:0], j.buffers[:0] }

// Join makes d the last packet of p if it follows p in the message: the same headers with the next number, as much payload,
// a right ICRC. p is what [Parse] made of a datagram of the same length and way as d, or a run that ends with such a one. If
// it returns false nothing has happened.
func (j *Joiner) Join(p *Packet, d *Datagram) bool {
	n := p.Packets()
	if !p.joins() || n == MaxPieces {
		return false
	}
	b := d.Bytes
	headers := len(p.Header)
	if len(b) != headers+p.Len/n+ICRCSize || !p.follows(b[:headers], n) {
		return false
	}
	first := len(j.pieces) - n
	if n == 1 {
		first = len(j.pieces)
	}
	if first+n+1 > cap(j.pieces) || !d.checkICRC(headers) {
		return false
	}
	if n == 1 {
		j.pieces = append(j.pieces, p.one[0])
	}
	payload := b[headers : len(b)-ICRCSize]
	j.buffers = append(j.buffers, Buffer{B: payload})
	j.pieces = append(j.pieces, Piece{&j.buffers[len(j.buffers)-1], 0, len(payload)})
	p.Payload = j.pieces[first:]
	p.Len += len(payload)
	p.run = uint8(n + 1)
	p.BTH().SetAckReq((*BTH)(b).AckReq())
	return true
}

// joins reports whether another packet may follow p in a run: one from the middle of a message of a reliable service, whose
// engines take runs, that does not ask for an acknowledgement and has a payload to be divided evenly.
func (p *Packet) joins() bool {
	s := p.Opcode.Service()
	return p.Opcode.IsMiddle() && (s == ServiceRC || s == ServiceXRC) && !p.BTH().AckReq() && p.BTH().PadCount() == 0 &&
		p.Len > 0 && p.Len&3 == 0
}

// follows reports whether h are the headers of packet n of the run that p begins, counted from 0: they differ in the last
// word of the BTH alone, which holds AckReq, seven reserved bits, and the number.
func (p *Packet) follows(h []byte, n int) bool {
	const ackReq = 1 << 31
	if binary.LittleEndian.Uint64(h) != binary.LittleEndian.Uint64(p.Header) || string(h[BTHSize:]) != string(p.Header[BTHSize:]) {
		return false
	}
	last, first := binary.BigEndian.Uint32(h[8:])&^ackReq, binary.BigEndian.Uint32(p.Header[8:])&^ackReq
	return last&^0xffffff == first&^0xffffff && last&0xffffff == (first+uint32(n))&0xffffff
}
