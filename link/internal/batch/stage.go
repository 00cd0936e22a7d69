package batch

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/wire"
)

const (
	// MaxMessages is how many messages one system call may carry.
	MaxMessages = 64
	// MaxSegments is the kernel's UDP_MAX_SEGMENTS before Linux 6.9, 128 since.
	MaxSegments = 64
	// MaxDatagram is what fits behind an IPv4 and a UDP header; it bounds a group too.
	MaxDatagram = 65507

	// gatherFrom is the payload of a packet from which on references beat a copy beside the header: one costs the kernel
	// as much as copying 1 to 2 KiB costs here, where the ICRC then finds the copy in the cache.
	gatherFrom = 2048
	// maxIovLen is the kernel's UIO_MAXIOV, for one message.
	maxIovLen = 1024
	maxIovecs = 2048
	// The arena is small enough to stay in the processor's cache.
	arenaSize = 256 << 10
	udpHeader = 8
)

// Stage puts frames together for one system call, in memory made beforehand.
type Stage struct {
	iovecs [maxIovecs + 1]Iovec // the last is for alone
	used   int
	first  int // iovec of the current message
	// What the ICRCs of the current message's frames of one length begin with, identification 0.
	prefix wire.Checksum
	length int
	arena  []byte
	single []byte
	pieces [wire.MaxPieces]wire.Piece // what one packet of a run has of its payload
}

// Init makes the memory.
func (s *Stage) Init() {
	s.arena = make([]byte, 0, arenaSize)
	s.single = make([]byte, 0, 2*udpHeader+MaxDatagram+256)
}

// Reset forgets all messages.
func (s *Stage) Reset() { s.used, s.first, s.arena = 0, 0, s.arena[:0] }

// begin starts a message.
func (s *Stage) begin() { s.first, s.length = s.used, 0 }

// message returns the iovecs of the current message, good until the next Reset.
func (s *Stage) message() []Iovec { return s.iovecs[s.first:s.used] }

// Room reports whether a frame fits, whichever way it is added, and n bytes in front of it.
func (s *Stage) Room(f *wire.Frame, n int) bool {
	need := len(f.Payload()) + 3*f.Packets()
	return cap(s.arena)-len(s.arena) >= n+f.Len() && maxIovecs-s.used >= need && maxIovLen-(s.used-s.first) >= need
}

// reserve adds n bytes to the message, to be filled in by the caller.
func (s *Stage) reserve(n int) []byte {
	begin := len(s.arena)
	s.arena = s.arena[:begin+n]
	s.append(s.arena[begin:])
	return s.arena[begin:]
}

// add puts a frame behind the last: by reference if its owner promised to leave the payload alone and it is worth it,
// else as a copy, with the ICRC made over the copy, since the owner may write what we read. The ICRC is that of a
// datagram along path with the IPv4 identification id; the packets of a run count from there. The error is the fault of the
// frame's payload.
func (s *Stage) add(f *wire.Frame, path *wire.Path, id uint16) error {
	if n := f.PacketLen(); n != s.length {
		s.prefix, s.length = wire.StartChecksum(path, udpHeader+n, 0), n
	}
	copied := !f.Stable || f.PayloadLen() < gatherFrom*f.Packets()
	if ok, err := s.gather(f, path, id, copied); ok {
		return err
	}
	begin := len(s.arena)
	b := s.arena
	var err error
	for i := range f.Packets() {
		if b, err = s.copyPacket(b, f, i, s.prefix.Numbered(path, id+uint16(i))); err != nil {
			return err
		}
	}
	s.arena = b
	s.append(b[begin:])
	return nil
}

// alone copies a frame, with n bytes in front of it for the caller to fill in, where it disturbs no message. The bytes
// and the iovec are good until the next call.
func (s *Stage) alone(f *wire.Frame, n int, path *wire.Path) ([]byte, []Iovec, error) {
	b, err := s.copyPacket(s.single[:n], f, 0, wire.StartChecksum(path, udpHeader+f.Len(), 0))
	if err != nil {
		return nil, nil, err
	}
	s.iovecs[maxIovecs] = IovecOf(b)
	return b, s.iovecs[maxIovecs:], nil
}

// copyPacket appends the datagram of the i-th packet of a frame to b, which has room for it. sum is the checksum of what is in
// front of its BTH.
func (s *Stage) copyPacket(b []byte, f *wire.Frame, i int, sum wire.Checksum) ([]byte, error) {
	pieces, length := f.Payload(), f.PayloadLen()
	if n := f.Packets(); n > 1 {
		length /= n
		pieces = s.pieces[:0]
		for part := range wire.Parts(f.Payload(), i*length, length) {
			pieces = append(pieces, part)
		}
	}
	begin := len(b)
	b = f.AppendHeader(b, i)
	body := len(b)
	sum = sum.BTH(b[begin:])
	b = b[:body+length]
	if err := dma.ReadPieces(b[body:], pieces); err != nil {
		return nil, err
	}
	b = append(b, zeros[:f.Pad()]...)
	sum = sum.Update(b[body:])
	b = b[:len(b)+wire.ICRCSize]
	sum.Put(b[len(b)-wire.ICRCSize:])
	return b, nil
}

var zeros [4]byte

// gather refers to the payload where it lies, between headers and trailers in the arena, or copies it there. It does nothing
// and returns false if some of the memory cannot be addressed.
func (s *Stage) gather(f *wire.Frame, path *wire.Path, id uint16, copied bool) (ok bool, err error) {
	for i := range f.Payload() {
		if bytesOf(&f.Payload()[i]) == nil {
			return false, nil
		}
	}
	begin, used, last := len(s.arena), s.used, Iovec{}
	if used > 0 {
		last = s.iovecs[used-1]
	}
	err = dma.Guarded(func() { s.lay(f, path, id, copied) })
	if err != nil {
		s.arena, s.used = s.arena[:begin], used
		if used > 0 {
			s.iovecs[used-1] = last
		}
	}
	return true, err
}

// lay adds the packets of a frame whose payload can be addressed.
func (s *Stage) lay(f *wire.Frame, path *wire.Path, id uint16, copied bool) {
	pieces, length := f.Payload(), f.PayloadLen()/f.Packets()
	var body []byte
	for i := range f.Packets() {
		at := len(s.arena)
		s.arena = f.AppendHeader(s.arena, i)
		s.append(s.arena[at:])
		sum := s.prefix.Numbered(path, id+uint16(i)).BTH(s.arena[at:])
		for left := length; left > 0; {
			if len(body) == 0 {
				body, pieces = bytesOf(&pieces[0]), pieces[1:]
			}
			part := body[:min(left, len(body))]
			if copied {
				begin := len(s.arena)
				s.arena = append(s.arena, part...)
				part = s.arena[begin:]
			}
			s.append(part)
			sum = sum.Update(part)
			body, left = body[len(part):], left-len(part)
		}
		at = len(s.arena)
		s.arena = append(s.arena, zeros[:f.Pad()]...)
		sum = sum.Update(s.arena[at:])
		s.arena = s.arena[:len(s.arena)+wire.ICRCSize]
		sum.Put(s.arena[len(s.arena)-wire.ICRCSize:])
		s.append(s.arena[at:])
	}
}

// bytesOf returns a piece of payload in place; nil if it cannot be addressed.
func bytesOf(p *wire.Piece) []byte { return p.Mem.Bytes(p.Off, p.Len) }

// append adds bytes to the message, to the last iovec if they follow it in memory: a group of copied frames is one, and
// a trailer and the next header are.
func (s *Stage) append(b []byte) {
	base := addressOf(b)
	if s.used > s.first {
		if v := &s.iovecs[s.used-1]; v.base+uintptr(v.len) == base {
			v.len += uint64(len(b))
			return
		}
	}
	s.iovecs[s.used] = Iovec{base, uint64(len(b))}
	s.used++
}
