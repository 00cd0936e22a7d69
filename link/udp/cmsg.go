package udp

import "encoding/binary"

// Control messages: a length that counts its own header, level, type, data, and padding to eight bytes.
const cmsgHeader = 16

// cmsgWriter writes control messages into b, which has room for them.
type cmsgWriter struct {
	b   []byte
	len int // bytes written
}

// begin starts a message and returns its n bytes of data, which are zero.
func (c *cmsgWriter) begin(level, typ, n int) []byte {
	h := c.b[c.len:]
	binary.NativeEndian.PutUint64(h, uint64(cmsgHeader+n))
	binary.NativeEndian.PutUint32(h[8:], uint32(level))
	binary.NativeEndian.PutUint32(h[12:], uint32(typ))
	from := c.len + cmsgHeader
	c.len = from + align8(n)
	clear(c.b[from:c.len])
	return c.b[from : from+n]
}

// nextCmsg returns the first control message of b and what follows it; ok is false at the end.
func nextCmsg(b []byte) (level, typ int, data, rest []byte, ok bool) {
	if len(b) < cmsgHeader {
		return 0, 0, nil, nil, false
	}
	n := binary.NativeEndian.Uint64(b)
	if n < cmsgHeader || n > uint64(len(b)) {
		return 0, 0, nil, nil, false
	}
	level = int(int32(binary.NativeEndian.Uint32(b[8:])))
	typ = int(int32(binary.NativeEndian.Uint32(b[12:])))
	return level, typ, b[cmsgHeader:n], b[min(align8(int(n)), len(b)):], true
}

func align8(n int) int { return (n + 7) &^ 7 }
