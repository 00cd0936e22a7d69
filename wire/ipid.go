package wire

import "hash/crc32"

// The ICRC covers the IPv4 identification, which who receives on a UDP socket never sees. The CRC is linear: changing
// the identification changes the CRC by an amount that depends on the change and on how many bytes follow, and on
// nothing else. So the effect of an identification can be added afterwards, and from a CRC that is wrong one can tell
// which identification, if any, would make it right.

// IDDelta returns what the ICRC changes by, as an exclusive or, when the IPv4 identification becomes id instead of 0.
// n is the bytes of UDP payload without the ICRC, at most 65503.
func IDDelta(id uint16, n int) Checksum {
	// Two bytes at the distance d of the end add w(x)*x^(8(d+2)), where the lowest bit of w stands for x^31. The loop
	// goes through the sixteen bits that can be set, beginning with that of x^16.
	w := uint32(swap16(id))
	b := forward.power(n + idToPayload + 4)
	var sum uint32
	for j := 15; j >= 0; j-- {
		sum ^= b & -(w >> j & 1)
		b = timesX(b)
	}
	return Checksum(sum)
}

// FindID is the inverse of [IDDelta]: it returns the change of identification that changes the ICRC by delta, and false
// if none does. One delta in 65536 has one.
func FindID(delta Checksum, n int) (id uint16, ok bool) {
	w := multiply(uint32(delta), backward.power(n+idToPayload+2))
	return swap16(uint16(w)), w>>16 == 0
}

// idToPayload is the bytes between the identification and the BTH: the rest of the IPv4 header and the UDP header.
const idToPayload = 14 + 8

// powers holds x^(8i) or its inverse modulo the CRC polynomial, for i in 0..255 and for multiples of 256.
type powers struct{ low, high [256]uint32 }

var (
	forward  = makePowers(timesX)
	backward = makePowers(overX)
)

func makePowers(step func(uint32) uint32) *powers {
	t := new(powers)
	v := uint32(1 << 31) // x^0
	for i := range 256 {
		t.low[i] = v
		for range 8 {
			v = step(v)
		}
	}
	t.high[0] = 1 << 31
	for i := 1; i < 256; i++ {
		t.high[i] = multiply(t.high[i-1], v)
	}
	return t
}

// power returns x^(8n), or x^(-8n).
func (t *powers) power(n int) uint32 {
	return multiply(t.low[byte(n)], t.high[byte(n>>8)])
}

// timesX multiplies by x modulo the polynomial. In the reflected form the highest bit is the coefficient of x^0.
func timesX(v uint32) uint32 { return v>>1 ^ crc32.IEEE&-(v&1) }

// overX divides by x.
func overX(v uint32) uint32 {
	top := v >> 31
	return (v^crc32.IEEE&-top)<<1 | top
}

// multiply multiplies modulo the polynomial.
func multiply(a, b uint32) uint32 {
	var sum uint32
	for j := 31; j >= 0; j-- {
		sum ^= b & -(a >> j & 1)
		b = timesX(b)
	}
	return sum
}
