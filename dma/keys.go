package dma

import "sync/atomic"

// keyBits is the part of a key that the device chooses. The low 8 bits are the variant, which the owner of a type 2
// window may choose (IBA 10.6.3.1); for regions they are zero.
const keyBits = 24

const halfBits, halfMask = keyBits / 2, 1<<(keyBits/2) - 1

// permutation is a keyed permutation of the 24-bit numbers: a balanced Feistel network. It makes keys that cannot be
// guessed by who does not know the round keys, yet are an index for who does.
type permutation struct {
	round [4]roundKey
}

type roundKey struct{ add, mul uint64 }

func newPermutation(random func() uint64) permutation {
	var p permutation
	for i := range p.round {
		p.round[i] = roundKey{random(), random() | 1}
	}
	return p
}

// mix is the round function: 12 bits in, 12 bits out that depend on all of them and on the round's key.
func (k *roundKey) mix(x uint32) uint32 {
	h := (uint64(x) + k.add) * k.mul
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return uint32(h >> (64 - halfBits))
}

// forward maps an index to the device's part of a key.
func (p *permutation) forward(v uint32) uint32 {
	l, r := v>>halfBits, v&halfMask
	for i := range p.round {
		l, r = r, l^p.round[i].mix(r)
	}
	return l<<halfBits | r
}

// inverse maps the device's part of a key to its index.
func (p *permutation) inverse(v uint32) uint32 {
	l, r := v>>halfBits, v&halfMask
	for i := len(p.round) - 1; i >= 0; i-- {
		l, r = r^p.round[i].mix(l), l
	}
	return l<<halfBits | r
}

// memo remembers the slots of keys that were looked up lately. It holds only what can be computed from the key at any time,
// never what is in the slot, so it is never wrong; whoever guesses at keys wears it out and slows down, by the time of a
// permutation, those that share a place with his guesses.
type memo [memoPlaces]atomic.Uint64

const (
	memoPlaces = 1024
	memoValid  = 1 << (2 * keyBits)
)

func (m *memo) look(key uint32) (slot uint32, ok bool) {
	v := m[key%memoPlaces].Load()
	return uint32(v) & (1<<keyBits - 1), v>>keyBits == uint64(key)|memoValid>>keyBits
}

func (m *memo) keep(key, slot uint32) {
	m[key%memoPlaces].Store(memoValid | uint64(key)<<keyBits | uint64(slot))
}
