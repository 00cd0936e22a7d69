package wire

// A run is one frame in place of several packets that follow each other in a message: the same opcode, numbers one after
// another, each with as much payload as the others. Its header is that of the first packet but for AckReq, which is that of
// the last, since only there a run may ask; its payload is that of all together.
//
// What is done for each packet is most of what a packet costs, and a run does it once, also where datagrams are made of it
// in the end. Runs are a matter between engines and ports that take them ([Path.MaxRun]) or make them of packets that came
// together ([Joiner]). Everybody else sees single packets: whatever is unusual about a run is dealt with by taking it apart,
// so that there is one set of rules.

// MaxRun is the most packets of a run.
const MaxRun = 64

// Packets returns how many packets the frame stands for.
func (f *Frame) Packets() int { return int(max(f.run, 1)) }

// SetRun says that the frame stands for n packets, among which its payload is divided evenly. n is at most MaxRun, and the
// share of each a multiple of four: there is no pad.
func (f *Frame) SetRun(n int) { f.run = uint8(n) }

// AppendHeader appends the headers of the i-th packet to b, counted from 0.
func (f *Frame) AppendHeader(b []byte, i int) []byte {
	begin := len(b)
	b = append(b, f.Header()...)
	if f.run > 1 {
		single((*BTH)(b[begin:]), i, int(f.run))
	}
	return b
}

// Packets returns how many packets p stands for.
func (p *Packet) Packets() int { return int(max(p.run, 1)) }

// SetRun is what it is for a [Frame].
func (p *Packet) SetRun(n int) { p.run = uint8(n) }

// Single is room for one packet of a run.
type Single struct {
	packet Packet
	head   [MaxHeader]byte
	pieces [MaxPieces]Piece
}

// Of makes the i-th packet of the run p, counted from 0. It is valid until the next call, and as long as p is.
func (s *Single) Of(p *Packet, i int) *Packet {
	q, n := &s.packet, p.Len/p.Packets()
	q.Source, q.Dest, q.SourcePort = p.Source, p.Dest, p.SourcePort
	q.TrafficClass, q.HopLimit, q.SL, q.Local = p.TrafficClass, p.HopLimit, p.SL, p.Local
	q.Opcode, q.Len, q.run = p.Opcode, n, 0
	q.Header = s.head[:copy(s.head[:], p.Header)]
	single(q.BTH(), i, p.Packets())
	q.Payload = s.pieces[:0]
	for part := range Parts(p.Payload, i*n, n) {
		q.Payload = append(q.Payload, part)
	}
	return q
}

// Split appends the packets of the run f to b, which has room for them.
func (b *Burst) Split(f *Frame) {
	n := f.length / f.Packets()
	for i := range f.Packets() {
		c := b.Next()
		if c == nil {
			return
		}
		c.Path, c.QPN, c.Stable = f.Path, f.QPN, f.Stable
		// Engines name the packets of a run by its first.
		c.Cookie = f.Cookie
		copy(c.SetHeader(f.BTH().Opcode()), f.Header())
		single(c.BTH(), i, f.Packets())
		for part := range Parts(f.pieces, i*n, n) {
			c.Add(part.Mem, part.Off, part.Len)
		}
	}
}

// single makes the header of a run of n that of its i-th packet.
func single(h *BTH, i, n int) {
	h.SetPSN(h.PSN().Add(uint32(i)))
	h.SetAckReq(h.AckReq() && i == n-1)
}

// Parts goes through the n bytes at off of a payload.
func Parts(payload []Piece, off, n int) func(yield func(Piece) bool) {
	return func(yield func(Piece) bool) {
		for _, p := range payload {
			if off >= p.Len {
				off -= p.Len
				continue
			}
			p.Off, p.Len = p.Off+uint64(off), min(p.Len-off, n)
			off, n = 0, n-p.Len
			if p.Len > 0 && !yield(p) || n == 0 {
				return
			}
		}
	}
}
