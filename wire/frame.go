package wire

import "github.com/softnic/softnicd/ib"

// MaxHeader is the longest run of BTH and extension headers (BTH 12, XRCETH 4, AtomicETH 28), rounded up.
const MaxHeader = 48

// MaxPieces is the most pieces one frame can have: a packet spans at most every entry of a scatter/gather list.
const MaxPieces = 32

// Path says how frames of a flow travel. A Path is never changed once a frame points to it: who wants another makes
// another.
type Path struct {
	Source, Dest ib.GID
	SourcePort   uint16 // UDP; entropy, constant for a flow
	TrafficClass uint8  // IPv4 TOS, IPv6 traffic class
	HopLimit     uint8
	SL           uint8
	FlowLabel    uint32
	PKey         ib.PKey // of the base transport header, for engines that speak along one path; 0: the default partition
	// MaxRun is the most packets of a run along this path; 0: the port takes none.
	MaxRun int
}

// Partition returns the P_Key that packets of the path bear.
func (p *Path) Partition() ib.PKey {
	if p.PKey == 0 {
		return ib.DefaultPKey
	}
	return p.PKey
}

// Frame is a packet to be sent, or a run of them ([Frame.SetRun]): headers in place, payload by reference.
type Frame struct {
	Path *Path
	// QPN is the local queue pair that sends, for those who look at frames on their way.
	QPN ib.QPN
	// Cookie is the sending engine's own: it comes back in transport.Engine.Faulted when the payload cannot be read.
	Cookie uint64
	// Stable says that the owner of the payload promised to leave it alone until the completion (first transmission of
	// a SEND or WRITE): a port may gather it. What is not stable is copied first and the ICRC made over the copy, since
	// its owner may legally write it meanwhile.
	Stable bool

	headLen uint8
	pad     uint8
	run     uint8 // packets; 0 is 1
	length  int
	head    [MaxHeader]byte
	pieces  []Piece
	burst   *Burst
}

// Header returns BTH and extension headers.
func (f *Frame) Header() []byte { return f.head[:f.headLen] }

// BTH returns the base transport header.
func (f *Frame) BTH() *BTH { return (*BTH)(f.head[:]) }

// Payload returns the pieces of the payload in order. The pad is not among them.
func (f *Frame) Payload() []Piece { return f.pieces }

// PayloadLen returns the bytes of payload, pad not counted.
func (f *Frame) PayloadLen() int { return f.length }

// Pad returns how many bytes of zero follow the payload, 0 to 3.
func (f *Frame) Pad() int { return int(f.pad) }

// Len returns the bytes of UDP payload that the frame makes: headers, payload, pad and ICRC, of all packets of a run.
func (f *Frame) Len() int { return f.Packets()*(int(f.headLen)+ICRCSize) + f.length + int(f.pad) }

// PacketLen is Len of each packet.
func (f *Frame) PacketLen() int {
	if f.run <= 1 {
		return f.Len()
	}
	return f.Len() / int(f.run)
}

// SetHeader starts a packet: it sets the length of the headers that op has, zeroes them, writes the opcode, and
// returns the header for the other fields to be set.
func (f *Frame) SetHeader(op Opcode) []byte {
	n := op.HeaderLen()
	f.headLen = uint8(n)
	h := f.head[:n]
	clear(h)
	h[0] = byte(op)
	return h
}

// Add appends n bytes of payload by reference and keeps the pad count in BTH right.
func (f *Frame) Add(m Memory, off uint64, n int) {
	if n == 0 {
		return
	}
	b := f.burst
	b.pieces = append(b.pieces, Piece{m, off, n})
	first := len(b.pieces) - 1 - len(f.pieces)
	f.pieces = b.pieces[first:]
	f.length += n
	f.pad = uint8(-f.length & 3)
	f.BTH().SetPadCount(f.pad)
}

// Burst is a queue of frames on their way to a port. Frames a port did not take stay first. It allocates nothing after
// [NewBurst].
type Burst struct {
	frames []Frame
	first  int
	n      int
	taken  uint64 // frames that left, ever
	pieces []Piece
	// cancelled says that there may be frames without a path, which nobody sends.
	cancelled bool
}

// NewBurst makes room for n frames.
func NewBurst(n int) *Burst {
	return &Burst{frames: make([]Frame, n), pieces: make([]Piece, 0, 2*n+MaxPieces)}
}

// Full reports whether [Burst.Next] would return nil.
func (b *Burst) Full() bool {
	return b.first+b.n == len(b.frames) || cap(b.pieces)-len(b.pieces) < MaxPieces
}

// Next appends an empty frame and returns it, or nil when the burst is full.
func (b *Burst) Next() *Frame {
	if b.Full() {
		return nil
	}
	f := &b.frames[b.first+b.n]
	b.n++
	f.Path, f.QPN, f.Cookie, f.Stable = nil, 0, 0, false
	f.headLen, f.pad, f.run, f.length, f.burst = 0, 0, 0, 0, b
	f.pieces = nil
	return f
}

// Undo takes the last frame back: its maker found that it cannot be sent.
func (b *Burst) Undo() {
	b.n--
	f := &b.frames[b.first+b.n]
	b.pieces = b.pieces[:len(b.pieces)-len(f.pieces)]
}

// Len returns how many frames wait.
func (b *Burst) Len() int { return b.n }

// Taken counts the frames that have left the burst, ever, and End those that will have when all that wait now are gone: who
// notes End behind a frame of his knows that it has left when Taken is as much.
func (b *Burst) Taken() uint64 { return b.taken }

// End is explained at [Burst.Taken].
func (b *Burst) End() uint64 { return b.taken + uint64(b.n) }

// Frames returns the waiting frames, oldest first.
func (b *Burst) Frames() []Frame { return b.frames[b.first : b.first+b.n] }

// Consume drops the first n frames: a port took them.
func (b *Burst) Consume(n int) {
	b.taken += uint64(n)
	b.first += n
	b.n -= n
	if b.n == 0 {
		b.first, b.pieces, b.cancelled = 0, b.pieces[:0], false
	}
}

// Cancel keeps the frames of a queue pair that wait from being sent. They stay in their places, since others have noted
// theirs by End, and leave in their turn.
func (b *Burst) Cancel(n ib.QPN) {
	for i := range b.Frames() {
		if f := &b.frames[b.first+i]; f.QPN == n {
			f.Path, b.cancelled = nil, true
		}
	}
}

// Sendable drops the cancelled frames at the head, and returns those behind them up to the next cancelled one.
func (b *Burst) Sendable() []Frame {
	if !b.cancelled {
		return b.Frames()
	}
	for b.n > 0 && b.frames[b.first].Path == nil {
		b.Consume(1)
	}
	frames := b.Frames()
	for i := range frames {
		if frames[i].Path == nil {
			return frames[:i]
		}
	}
	return frames
}
