package trace

import "math/bits"

// Ring is a flight recorder: the latest events, the oldest overwritten. It has one writer and no lock; who is not the
// writer asks the writer for a snapshot. A nil Ring records nothing.
type Ring struct {
	events []Event
	mask   uint64
	total  uint64
	hash   uint64
}

// NewRing returns a ring for n events, rounded up to a power of two.
func NewRing(n int) *Ring {
	size := 1 << bits.Len(uint(max(n, 1)-1))
	return &Ring{events: make([]Event, size), mask: uint64(size - 1), hash: hashSeed}
}

// Add records an event. It allocates nothing.
func (r *Ring) Add(e Event) {
	if r == nil {
		return
	}
	r.events[r.total&r.mask] = e
	r.total++
	h := mix(r.hash, uint64(e.Time))
	h = mix(h, uint64(e.QPN)|uint64(e.PSN)<<32)
	r.hash = mix(h, uint64(e.Length)|uint64(e.Kind)<<32|uint64(e.Opcode)<<40|uint64(e.Syndrome)<<48|uint64(e.Verdict)<<56)
}

// Total returns how many events were recorded, those overwritten among them.
func (r *Ring) Total() uint64 {
	if r == nil {
		return 0
	}
	return r.total
}

// Hash returns a hash of all events so far, in order. Two runs with the same hash made the same decisions at the same
// times.
func (r *Ring) Hash() uint64 {
	if r == nil {
		return hashSeed
	}
	return r.hash
}

// Snapshot appends the events that the ring still holds to dst, oldest first.
func (r *Ring) Snapshot(dst []Event) []Event {
	if r == nil {
		return dst
	}
	n := min(r.total, uint64(len(r.events)))
	for i := r.total - n; i < r.total; i++ {
		dst = append(dst, r.events[i&r.mask])
	}
	return dst
}

const hashSeed = 0xcbf29ce484222325

// mix folds a word into a hash. The full product carries each bit of the word to the whole hash; the addition keeps a
// word that equals the hash from erasing it.
func mix(h, w uint64) uint64 {
	high, low := bits.Mul64(h^w, 0x9e3779b97f4a7c15)
	return (high ^ low) + 0x100000001b3 + bits.RotateLeft64(h, 23)
}
