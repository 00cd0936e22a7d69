package batch

import "encoding/binary"

// Control messages: a length that counts its own header, level, type, data, and padding to eight bytes.
const cmsgHeader = 16

// ControlWriter writes control messages into B, which has room for them.
type ControlWriter struct {
	B   []byte
	Len int // bytes written
}

// Begin starts a message and returns its n bytes of data, which are zero.
func (c *ControlWriter) Begin(level, typ, n int) []byte {
	h := c.B[c.Len:]
	binary.NativeEndian.PutUint64(h, uint64(cmsgHeader+n))
	binary.NativeEndian.PutUint32(h[8:], uint32(level))
	binary.NativeEndian.PutUint32(h[12:], uint32(typ))
	from := c.Len + cmsgHeader
	c.Len = from + align8(n)
	clear(c.B[from:c.Len])
	return c.B[from : from+n]
}

// NextControl returns the first control message of b and what follows it; ok is false at the end.
func NextControl(b []byte) (level, typ int, data, rest []byte, ok bool) {
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
