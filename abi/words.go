package abi

import "sync/atomic"

// Words that one side publishes and the other looks at. Go's atomics are sequentially consistent, and two protocols rely
// on that: publish, then look whether the other side sleeps (doorbell) or is armed (completion queue).

func (w words) load32(off uint64) uint32     { return atomic.LoadUint32(&w.d[off/4]) }
func (w words) store32(off uint64, v uint32) { atomic.StoreUint32(&w.d[off/4], v) }
func (w words) load64(off uint64) uint64     { return atomic.LoadUint64(&w.q[off/8]) }
func (w words) store64(off uint64, v uint64) { atomic.StoreUint64(&w.q[off/8], v) }

// copyBytes stores data in 64-bit words from w[0] on, zero-padding the last one. at is how many bytes of the first word
// are there already, in part; what does not fill a word comes back as the new (part, at).
func copyBytes(w []uint64, data []byte, part uint64, at uint) (rest []uint64, newPart uint64, newAt uint) {
	for len(data) >= 8 && at == 0 {
		put(&w[0], uint64(data[0])|uint64(data[1])<<8|uint64(data[2])<<16|uint64(data[3])<<24|
			uint64(data[4])<<32|uint64(data[5])<<40|uint64(data[6])<<48|uint64(data[7])<<56)
		w, data = w[1:], data[8:]
	}
	for _, v := range data {
		part |= uint64(v) << (8 * at)
		if at++; at == 8 {
			put(&w[0], part)
			w, part, at = w[1:], 0, 0
		}
	}
	return w, part, at
}
