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

	// gatherFrom is the payload from which on references beat a copy beside the header.
	gatherFrom = 512
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
	need := len(f.Payload()) + 3
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
// datagram along path with the IPv4 identification id. The error is the fault of the frame's payload.
func (s *Stage) add(f *wire.Frame, path *wire.Path, id uint16) error {
	sum := s.checksum(f, path, id)
	if f.Stable && f.PayloadLen() >= gatherFrom {
		if ok, err := s.gather(f, sum); ok {
			return err
		}
	}
	begin := len(s.arena)
	b, err := copyFrame(s.arena, f, sum)
	if err != nil {
		return err
	}
	s.arena = b
	s.append(b[begin:])
	return nil
}

// checksum begins the ICRC of a frame: everything in front of its payload. The frames of a message are of one path.
func (s *Stage) checksum(f *wire.Frame, path *wire.Path, id uint16) wire.Checksum {
	if n := f.Len(); n != s.length {
		s.prefix, s.length = wire.StartChecksum(path, udpHeader+n, 0), n
	}
	return s.prefix.Numbered(path, id).BTH(f.Header())
}

// alone copies a frame, with n bytes in front of it for the caller to fill in, where it disturbs no message. The bytes
// and the iovec are good until the next call.
func (s *Stage) alone(f *wire.Frame, n int, path *wire.Path) ([]byte, []Iovec, error) {
	b, err := copyFrame(s.single[:n], f, wire.StartChecksum(path, udpHeader+f.Len(), 0).BTH(f.Header()))
	if err != nil {
		return nil, nil, err
	}
	s.iovecs[maxIovecs] = IovecOf(b)
	return b, s.iovecs[maxIovecs:], nil
}

// copyFrame appends the whole datagram to b, which has room for it. sum is its checksum so far.
func copyFrame(b []byte, f *wire.Frame, sum wire.Checksum) ([]byte, error) {
	b = append(b, f.Header()...)
	body := len(b)
	b = b[:body+f.PayloadLen()]
	if err := dma.ReadPieces(b[body:], f.Payload()); err != nil {
		return nil, err
	}
	b = append(b, zeros[:f.Pad()]...)
	sum = sum.Update(b[body:])
	b = b[:len(b)+wire.ICRCSize]
	sum.Put(b[len(b)-wire.ICRCSize:])
	return b, nil
}

var zeros [4]byte

// gather refers to the payload where it lies, between a header and a trailer in the arena. It does nothing and returns
// false if some of the memory cannot be addressed.
func (s *Stage) gather(f *wire.Frame, sum wire.Checksum) (ok bool, err error) {
	pieces := f.Payload()
	begin, used, last := len(s.arena), s.used, Iovec{}
	if used > 0 {
		last = s.iovecs[used-1]
	}
	undo := func() {
		s.arena, s.used = s.arena[:begin], used
		if used > 0 {
			s.iovecs[used-1] = last
		}
	}
	s.arena = append(s.arena, f.Header()...)
	s.append(s.arena[begin:])
	for i := range pieces {
		b := pieces[i].Mem.Bytes(pieces[i].Off, pieces[i].Len)
		if b == nil {
			undo()
			return false, nil
		}
		s.append(b)
	}
	err = dma.Guarded(func() {
		for i := range pieces {
			sum = sum.Update(pieces[i].Mem.Bytes(pieces[i].Off, pieces[i].Len))
		}
	})
	if err != nil {
		undo()
		return true, err
	}
	at := len(s.arena)
	s.arena = append(s.arena, zeros[:f.Pad()]...)
	sum = sum.Update(s.arena[at:])
	s.arena = s.arena[:len(s.arena)+wire.ICRCSize]
	sum.Put(s.arena[len(s.arena)-wire.ICRCSize:])
	s.append(s.arena[at:])
	return true, nil
}

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
