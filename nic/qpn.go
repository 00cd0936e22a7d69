package nic

import (
	"math/bits"
	"sync"

	"github.com/softnic/softnicd/ib"
)

const (
	qpnBits = 24
	// maxQPs leaves a quarter of the numbers in use at the most: the rest is quarantine.
	maxQPs = 1 << (qpnBits - 2)
)

// ShardOf returns which of so many shards a queue pair number belongs to: its lowest bits say it, so that whoever has a
// packet in hand can tell, a program in the kernel or the sender. A number that is no shard's is taken for the first one's;
// no queue pair has it.
func ShardOf(n ib.QPN, shards int) int {
	if i := int(n) & (1<<shardBits(shards) - 1); i < shards {
		return i
	}
	return 0
}

// shardBits is how many bits of a queue pair number say which shard it belongs to.
func shardBits(shards int) uint { return uint(bits.Len(uint(shards - 1))) }

// qpTable finds the queue pairs of a shard by number. A number is the shard in its lowest bits, and above them a keyed
// permutation of slot and generation: unpredictable outside, an index inside. The slot's queue pair is compared with the
// whole number, so a number of an earlier generation finds nothing.
//
// There are at least twice as many slots as queue pairs, reused in the order in which they became free, each with its
// next generation: a number comes back after 2^23 others, divided by the shards. Numbers are taken and given back from
// anywhere; the shard alone publishes, hides and finds.
type qpTable struct {
	perm      qpnPermutation
	slots     []*QP
	slotBits  uint
	shard     uint32
	shardBits uint
	recent    [recentQPs]struct {
		n    ib.QPN
		slot uint32
	}

	mu       sync.Mutex // control goroutines take numbers and give them back
	capacity int
	live     int
	gens     []uint32
	free     []uint32 // ring of free slots, oldest first
	first    int
	frees    int
}

func newQPTable(capacity, shard, shards int, random func() uint64) *qpTable {
	share := shardBits(shards)
	capacity = min(max(capacity, 1), maxQPs>>share)
	slotBits := uint(bits.Len(uint(2*capacity - 1)))
	n := 1 << slotBits
	t := &qpTable{
		perm:      newQPNPermutation(qpnBits-share, random),
		slots:     make([]*QP, n),
		slotBits:  slotBits,
		shard:     uint32(shard),
		shardBits: share,
		capacity:  capacity,
		gens:      make([]uint32, n),
		free:      make([]uint32, n),
		frees:     n,
	}
	for i := range t.free {
		t.gens[i] = uint32(random()) & t.genMask()
		j := int(random() % uint64(i+1))
		t.free[i] = t.free[j]
		t.free[j] = uint32(i)
	}
	return t
}

func (t *qpTable) genMask() uint32 { return 1<<(qpnBits-t.shardBits-t.slotBits) - 1 }

// take returns a number that nobody has, and false when all are taken.
func (t *qpTable) take() (ib.QPN, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == t.capacity {
		return 0, false
	}
	slot := t.free[t.first]
	t.first = (t.first + 1) & (len(t.free) - 1)
	t.frees--
	t.live++
	for {
		v := t.gens[slot]<<t.slotBits | slot
		t.gens[slot] = (t.gens[slot] + 1) & t.genMask()
		// QP0 and QP1 are management's, the highest number is multicast's.
		if n := ib.QPN(t.perm.forward(v)<<t.shardBits | t.shard); n > ib.GSI && n != ib.MulticastQPN {
			return n, true
		}
	}
}

// count returns how many numbers are taken.
func (t *qpTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live
}

// publish makes q findable by its number, which take returned.
func (t *qpTable) publish(q *QP) { t.slots[t.slot(q.qpn)] = q }

// hide makes it unfindable. The number stays taken.
func (t *qpTable) hide(q *QP) {
	if s := &t.slots[t.slot(q.qpn)]; *s == q {
		*s = nil
	}
}

// put gives a number back.
func (t *qpTable) put(n ib.QPN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free[(t.first+t.frees)&(len(t.free)-1)] = t.slot(n)
	t.frees++
	t.live--
}

// recentQPs is of how many numbers that were looked for lately the slot is remembered, which is a function of the number and
// never stale.
const recentQPs = 256

// find returns the queue pair with exactly this number, nil if there is none.
func (t *qpTable) find(n ib.QPN) *QP {
	r := &t.recent[n>>t.shardBits%recentQPs]
	if r.n != n {
		r.n, r.slot = n, t.slot(n)
	}
	// Before anything was looked for, r is about number 0, which nobody has.
	if q := t.slots[r.slot]; q != nil && q.qpn == n {
		return q
	}
	return nil
}

func (t *qpTable) slot(n ib.QPN) uint32 {
	return t.perm.inverse(uint32(n)&ib.QPNMask>>t.shardBits) & (1<<t.slotBits - 1)
}

// qpnPermutation is a keyed permutation of the numbers of some width, at most 24 bits: a Feistel network of four rounds,
// whose halves differ by a bit where the width is odd.
type qpnPermutation struct {
	keys  [4]struct{ add, mul uint64 }
	right uint      // bits of the right half
	masks [2]uint32 // of the left half and of the right one
}

func newQPNPermutation(width uint, random func() uint64) (p qpnPermutation) {
	p.right = width / 2
	p.masks = [2]uint32{1<<(width-p.right) - 1, 1<<p.right - 1}
	for i := range p.keys {
		p.keys[i].add, p.keys[i].mul = random(), random()|1
	}
	return p
}

func (p *qpnPermutation) mix(round int, half uint32) uint32 {
	h := (uint64(half) + p.keys[round].add) * p.keys[round].mul
	h ^= h >> 31
	h *= 0x9e3779b97f4a7c15
	return uint32(h>>52) & p.masks[round&1]
}

func (p *qpnPermutation) forward(v uint32) uint32 {
	l, r := v>>p.right, v&p.masks[1]
	for i := range p.keys {
		l, r = r, l^p.mix(i, r)
	}
	return l<<p.right | r
}

func (p *qpnPermutation) inverse(v uint32) uint32 {
	l, r := v>>p.right, v&p.masks[1]
	for i := len(p.keys) - 1; i >= 0; i-- {
		l, r = r^p.mix(i, l), l
	}
	return l<<p.right | r
}
