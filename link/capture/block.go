package capture

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
)

// Of pcapng (draft-ietf-opsawg-pcapng), what gopacket does not write: enhanced packet blocks with options.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6
	byteOrderMagic = 0x1a2b3c4d

	optEnd      = 0
	optComment  = 1
	optFlags    = 2 // of a packet: bits 0-1 are its direction
	optName     = 2 // of an interface
	optTSResol  = 9
	optTSOffset = 14

	// blockFrame is type, length, and length again; packetFixed what precedes the data of a packet.
	blockFrame   = 12
	packetFixed  = 20
	optionHeader = 4
)

// Direction of a packet, as the flags word has it.
type Direction uint8

// Directions.
const (
	Unknown  Direction = 0
	Inbound  Direction = 1
	Outbound Direction = 2
)

func (d Direction) String() string {
	switch d {
	case Inbound:
		return "in"
	case Outbound:
		return "out"
	}
	return "unknown"
}

// block is one packet on its way to the file.
type block struct {
	iface     int
	time      clock.Time
	direction Direction
	data      []byte
	comment   []byte
}

func align4(n int) int { return (n + 3) &^ 3 }

// size is the length of the block in the file.
func (p *block) size() int {
	n := blockFrame + packetFixed + align4(len(p.data)) + optionHeader + 4 + optionHeader
	if len(p.comment) > 0 {
		n += optionHeader + align4(len(p.comment))
	}
	return n
}

// appendTo appends the block; start is the wall time of clock zero in nanoseconds.
func (p *block) appendTo(b []byte, start int64) []byte {
	le := binary.LittleEndian
	size := uint32(p.size())
	at := uint64(start + int64(p.time))
	b = le.AppendUint32(b, blockPacket)
	b = le.AppendUint32(b, size)
	b = le.AppendUint32(b, uint32(p.iface))
	b = le.AppendUint32(b, uint32(at>>32))
	b = le.AppendUint32(b, uint32(at))
	b = le.AppendUint32(b, uint32(len(p.data)))
	b = le.AppendUint32(b, uint32(len(p.data)))
	b = appendPadded(b, p.data)
	if len(p.comment) > 0 {
		b = le.AppendUint16(b, optComment)
		b = le.AppendUint16(b, uint16(len(p.comment)))
		b = appendPadded(b, p.comment)
	}
	b = le.AppendUint16(b, optFlags)
	b = le.AppendUint16(b, 4)
	b = le.AppendUint32(b, uint32(p.direction))
	b = le.AppendUint32(b, optEnd)
	return le.AppendUint32(b, size)
}

func appendPadded(b, data []byte) []byte {
	b = append(b, data...)
	for range align4(len(data)) - len(data) {
		b = append(b, 0)
	}
	return b
}
