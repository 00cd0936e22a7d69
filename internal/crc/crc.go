// Package crc is hash/crc32 with the IEEE polynomial, for processors that multiply without carries in vectors of 512 bits:
// the ICRC is taken of every payload byte, by the sender and by the receiver, and there the standard library's way, with
// vectors of 128 bits, takes two to three times as long.
package crc

import "hash/crc32"

// Update adds the bytes of p to a checksum, as hash/crc32.Update does with crc32.IEEETable. It does not allocate, and may be
// given memory whose pages fault: it reads each byte once, in order, and writes nothing.
func Update(crc uint32, p []byte) uint32 {
	if wide && len(p) >= smallest {
		n := len(p) &^ 15
		crc = ^update(^crc, &p[0], n)
		p = p[n:]
		if len(p) == 0 {
			return crc
		}
	}
	return crc32.Update(crc, crc32.IEEETable, p)
}

// smallest is what one vector holds. Below it there is nothing to gain.
const smallest = 64
