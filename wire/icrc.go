package wire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/crc"
)

// ICRCSize is the bytes of the invariant CRC that ends every packet.
const ICRCSize = 4

// Port is the UDP destination port of every RoCEv2 packet.
const Port = 4791

// Checksum is an ICRC under way: the Ethernet CRC-32 over eight bytes of ones, the IP and UDP headers with what routers
// may change replaced by ones, the BTH with byte 4 replaced by ones, and the rest as it is (IBA A17.3.4, 7.8.1).
//
//	c := wire.StartChecksum(path, 8+n, 0).BTH(header).Update(payload).Update(pad)
//	c.Put(icrc)
//
// It is a value, and making one allocates nothing.
type Checksum uint32

// StartChecksum returns the checksum over the headers in front of the BTH. udpLen is the length in the UDP header: 8
// and everything behind, ICRC included, at most 65515. id is the IPv4 identification, which the ICRC covers; DF is taken
// as set. IPv6 has no identification.
func StartChecksum(p *Path, udpLen int, id uint16) Checksum {
	return startChecksum(&p.Source, &p.Dest, p.SourcePort, udpLen, id, dontFragment)
}

// Numbered is c, a checksum that [StartChecksum] has just begun with identification 0 for p, with identification id.
func (c Checksum) Numbered(p *Path, id uint16) Checksum {
	if !isIPv4(&p.Source) || !isIPv4(&p.Dest) {
		return c
	}
	if int(id) < len(idDeltas) {
		return c ^ idDeltas[id]
	}
	return c ^ IDDelta(id, 0)
}

// idDeltas are those of the segments of a group.
var idDeltas = makeIDDeltas()

func makeIDDeltas() (t [128]Checksum) {
	for id := range t {
		t[id] = IDDelta(uint16(id), 0)
	}
	return t
}

// dontFragment is the DF flag as the upper half of the IPv4 fragment field.
const dontFragment = 0x40

func startChecksum(src, dst *ib.GID, port uint16, udpLen int, id uint16, flags uint8) Checksum {
	var r uint32
	if isIPv4(src) && isIPv4(dst) {
		total := uint16(udpLen + ipv4Len)
		r = fold8(seed, 0x0000ff45|uint64(swap16(total))<<16|uint64(swap16(id))<<32|uint64(flags)<<48)
		r = fold8(r, 0xffff11ff|uint64(binary.LittleEndian.Uint32(src[12:]))<<32)
		r = fold4(r, binary.LittleEndian.Uint32(dst[12:]))
	} else {
		r = fold8(seed, 0xff110000_ffffff6f|uint64(swap16(uint16(udpLen)))<<32)
		r = fold8(r, binary.LittleEndian.Uint64(src[0:]))
		r = fold8(r, binary.LittleEndian.Uint64(src[8:]))
		r = fold8(r, binary.LittleEndian.Uint64(dst[0:]))
		r = fold8(r, binary.LittleEndian.Uint64(dst[8:]))
	}
	r = fold8(r, 0xffff0000_00000000|uint64(swap16(port))|uint64(swap16(Port))<<16|uint64(swap16(uint16(udpLen)))<<32)
	return Checksum(^r)
}

// BTH goes on over a BTH and the extension headers behind it.
func (c Checksum) BTH(header []byte) Checksum {
	if len(header) < BTHSize {
		return c.Update(header)
	}
	r := fold8(^uint32(c), binary.LittleEndian.Uint64(header)|0xff<<32)
	r = fold4(r, binary.LittleEndian.Uint32(header[8:]))
	header = header[BTHSize:]
	for len(header) >= 8 {
		r = fold8(r, binary.LittleEndian.Uint64(header))
		header = header[8:]
	}
	if len(header) >= 4 {
		r = fold4(r, binary.LittleEndian.Uint32(header))
		header = header[4:]
	}
	for _, b := range header {
		r = r>>8 ^ tables[0][byte(r)^b]
	}
	return Checksum(^r)
}

// Update goes on over payload and pad.
func (c Checksum) Update(b []byte) Checksum {
	return Checksum(crc.Update(uint32(c), b))
}

// Put writes the finished ICRC to the first four bytes of dst. It is the one little-endian field of the packet.
func (c Checksum) Put(dst []byte) { binary.LittleEndian.PutUint32(dst, uint32(c)) }

// Headers are short and on the stack, where crc.Update would move them to the heap (hash/crc32 calls through a variable). So
// they are folded here, eight bytes at a step, by the usual eight tables.

// seed is the CRC register after the eight bytes of ones that stand for the LRH a RoCE packet lacks.
const seed = 0xdebb20e3

var tables = makeTables()

func makeTables() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for i := range t[0] {
		for k := 1; k < len(t); k++ {
			t[k][i] = t[k-1][i]>>8 ^ t[0][byte(t[k-1][i])]
		}
	}
	return t
}

// fold8 moves the register over the eight bytes that v holds, the first in the lowest bits.
func fold8(r uint32, v uint64) uint32 {
	v ^= uint64(r)
	return tables[7][byte(v)] ^ tables[6][byte(v>>8)] ^ tables[5][byte(v>>16)] ^ tables[4][byte(v>>24)] ^
		tables[3][byte(v>>32)] ^ tables[2][byte(v>>40)] ^ tables[1][byte(v>>48)] ^ tables[0][byte(v>>56)]
}

// fold4 does the same for four bytes.
func fold4(r, v uint32) uint32 {
	v ^= r
	return tables[3][byte(v)] ^ tables[2][byte(v>>8)] ^ tables[1][byte(v>>16)] ^ tables[0][byte(v>>24)]
}

func swap16(v uint16) uint16 { return v<<8 | v>>8 }

// isIPv4 is GID.Is4 without the detour by net/netip.
func isIPv4(g *ib.GID) bool {
	return binary.LittleEndian.Uint64(g[:]) == 0 && binary.LittleEndian.Uint32(g[8:]) == 0xffff0000
}
