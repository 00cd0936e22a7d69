package fault

import (
	"math/rand/v2"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// rule is a Rule at work.
type rule struct {
	Rule
	wanted  [256]bool // by opcode
	rnd     *rand.Rand
	seen    uint64 // packets that it looks for
	applied uint64
}

// compile makes the rules of a sound plan. Each has random numbers of its own, so that one more rule does not change what
// the others do.
func compile(p *Plan) []*rule {
	rules := make([]*rule, len(p.Rules))
	for i := range p.Rules {
		r := &rule{Rule: p.Rules[i], rnd: rand.New(rand.NewPCG(p.Seed, uint64(i)))}
		for _, op := range r.opcodes() {
			r.wanted[op] = true
		}
		r.Every, r.Behind, r.Copies, r.Bits = max(r.Every, 1), max(r.Behind, 1), max(r.Copies, 1), max(r.Bits, 1)
		if r.Delay == 0 {
			r.Delay = Duration(defaultHold)
		}
		if r.Nth == 0 {
			r.Nth = 1
		} else if r.Count == 0 {
			r.Count = 1
		}
		if r.Probability == 0 {
			r.Probability = 1
		}
		rules[i] = r
	}
	return rules
}

// applies reports whether the rule applies to a packet, and counts it. qpn is the queue pair at this end.
func (r *rule) applies(d Direction, qpn ib.QPN, h *wire.BTH) bool {
	if r.Direction != Both && r.Direction != d || r.QP != 0 && r.QP != qpn || !r.wanted[h.Opcode()] || !r.wantsPSN(h.PSN()) {
		return false
	}
	r.seen++
	if r.seen < r.Nth || (r.seen-r.Nth)%r.Every != 0 || r.Count != 0 && r.applied >= r.Count {
		return false
	}
	if r.Probability < 1 && r.rnd.Float64() >= r.Probability {
		return false
	}
	r.applied++
	return true
}

// spoil corrupts or truncates the datagram b, which travels along p, in place, and returns what is left of it.
func (r *rule) spoil(b []byte, p *wire.Path) []byte {
	switch r.Action {
	case Corrupt:
		end := len(b)
		if r.FixICRC {
			end -= wire.ICRCSize
		}
		for range r.Bits {
			// Byte 0 is left alone: another opcode is another packet.
			bit := r.rnd.IntN((end - 1) * 8)
			b[1+bit/8] ^= 1 << (bit % 8)
		}
	case Truncate:
		b = b[:min(len(b), r.Length)]
	}
	if end := len(b) - wire.ICRCSize; r.FixICRC && end >= wire.BTHSize {
		sum := wire.StartChecksum(p, 8+len(b), 0).BTH(b[:wire.BTHSize]).Update(b[wire.BTHSize:end])
		sum.Put(b[end:])
	}
	return b
}
