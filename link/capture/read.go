package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/bits"
	"time"
)

// Packet is a packet of a capture file.
type Packet struct {
	Interface string
	Time      time.Time
	Direction Direction
	// Data is the frame from the Ethernet header on, as far as it was captured; Length is what it had.
	Data     []byte
	Length   int
	Comments []string
}

// Read gives the packets of a pcapng file one by one, of this program or others. The sequence ends after an error; a file
// that breaks off gives what it has and then io.ErrUnexpectedEOF.
func Read(r io.Reader) iter.Seq2[Packet, error] {
	return func(yield func(Packet, error) bool) {
		s := section{r: r}
		for {
			p, err := s.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// section is the part of a file that one section header governs.
type section struct {
	r          io.Reader
	order      binary.ByteOrder // nil before the first header
	interfaces []ngInterface
	buf        []byte
}

type ngInterface struct {
	name   string
	resol  uint8
	offset int64 // seconds
}

// maxBlock bounds what a file can make us allocate.
const maxBlock = 16 << 20

var errCorrupt = errors.New("not a pcapng file, or corrupt")

// next returns the next packet. Blocks of other kinds are taken in or passed over.
func (s *section) next() (Packet, error) {
	for {
		kind, body, err := s.block()
		if err != nil {
			return Packet{}, err
		}
		switch kind {
		case blockSection:
			s.interfaces = nil
		case blockInterface:
			if err := s.addInterface(body); err != nil {
				return Packet{}, err
			}
		case blockPacket:
			return s.packet(body)
		}
	}
}

// block reads a block and returns its type and what is between its two lengths.
func (s *section) block() (kind uint32, body []byte, err error) {
	var head [12]byte
	if _, err := io.ReadFull(s.r, head[:8]); err != nil {
		return 0, nil, err // io.EOF between blocks is the end
	}
	skip := 8
	if binary.BigEndian.Uint32(head[:]) == blockSection { // reads the same both ways
		if _, err := io.ReadFull(s.r, head[8:]); err != nil {
			return 0, nil, unexpected(err)
		}
		skip = 12
		switch uint32(byteOrderMagic) {
		case binary.LittleEndian.Uint32(head[8:]):
			s.order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[8:]):
			s.order = binary.BigEndian
		default:
			return 0, nil, errCorrupt
		}
	}
	if s.order == nil {
		return 0, nil, errCorrupt
	}
	kind, size := s.order.Uint32(head[:]), s.order.Uint32(head[4:])
	if size < blockFrame || size%4 != 0 || size < uint32(skip)+4 {
		return 0, nil, fmt.Errorf("%w: block of %d bytes", errCorrupt, size)
	}
	if size > maxBlock {
		return 0, nil, fmt.Errorf("%w: block of %d bytes is too long", errCorrupt, size)
	}
	n := int(size) - skip
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	b := s.buf[:n]
	if _, err := io.ReadFull(s.r, b); err != nil {
		return 0, nil, unexpected(err)
	}
	if s.order.Uint32(b[n-4:]) != size {
		return 0, nil, fmt.Errorf("%w: the two lengths of a block differ", errCorrupt)
	}
	return kind, b[:n-4], nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *section) addInterface(b []byte) error {
	if len(b) < 8 {
		return fmt.Errorf("%w: interface", errCorrupt)
	}
	i := ngInterface{resol: 6}
	err := s.options(b[8:], func(code uint16, v []byte) {
		switch {
		case code == optName:
			i.name = string(v)
		case code == optTSResol && len(v) == 1:
			i.resol = v[0]
		case code == optTSOffset && len(v) == 8:
			i.offset = int64(s.order.Uint64(v))
		}
	})
	s.interfaces = append(s.interfaces, i)
	return err
}

func (s *section) packet(b []byte) (Packet, error) {
	if len(b) < packetFixed {
		return Packet{}, fmt.Errorf("%w: packet", errCorrupt)
	}
	n, captured := s.order.Uint32(b), s.order.Uint32(b[12:])
	if uint64(n) >= uint64(len(s.interfaces)) {
		return Packet{}, fmt.Errorf("%w: packet of interface %d, which was not described", errCorrupt, n)
	}
	data := b[packetFixed:]
	if uint64(captured) > uint64(len(data)) || align4(int(captured)) > len(data) {
		return Packet{}, fmt.Errorf("%w: packet longer than its block", errCorrupt)
	}
	i := &s.interfaces[n]
	p := Packet{
		Interface: i.name,
		Time:      i.time(uint64(s.order.Uint32(b[4:]))<<32 | uint64(s.order.Uint32(b[8:]))),
		Data:      append([]byte(nil), data[:captured]...),
		Length:    int(s.order.Uint32(b[16:])),
	}
	err := s.options(data[align4(int(captured)):], func(code uint16, v []byte) {
		switch {
		case code == optComment:
			p.Comments = append(p.Comments, string(v))
		case code == optFlags && len(v) == 4:
			p.Direction = Direction(s.order.Uint32(v) & 3)
		}
	})
	return p, err
}

// options calls f for each option of a list, which may end with the block.
func (s *section) options(b []byte, f func(code uint16, v []byte)) error {
	for len(b) >= optionHeader {
		code, n := s.order.Uint16(b), int(s.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		b = b[optionHeader:]
		if align4(n) > len(b) {
			return fmt.Errorf("%w: option longer than its block", errCorrupt)
		}
		f(code, b[:n])
		b = b[align4(n):]
	}
	return nil
}

// time turns a count of ticks into a time. The resolution is a power of ten, or of two if the highest bit is set.
func (i *ngInterface) time(ticks uint64) time.Time {
	exp := uint(i.resol & 0x7f)
	perSecond := uint64(1)
	for range exp {
		base := uint64(10)
		if i.resol&0x80 != 0 {
			base = 2
		}
		high, low := bits.Mul64(perSecond, base)
		if high != 0 {
			return time.Unix(i.offset, 0) // finer than 64 bits can count
		}
		perSecond = low
	}
	// The remainder is below perSecond, so the quotient is below 10^9.
	high, low := bits.Mul64(ticks%perSecond, 1e9)
	ns, _ := bits.Div64(high, low, perSecond)
	return time.Unix(int64(ticks/perSecond)+i.offset, int64(ns))
}
