package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// resource is what the responder remembers of a READ, FLUSH or atomic, so that it can answer it again (IBA 9.7.5.1.5): of a
// READ the memory, of an atomic the value that was there before.
type resource struct {
	kind        resourceKind
	answered    bool // all that the peer asked for has left once
	first, last ib.PSN
	domain      *dma.Domain // whose key it is
	key         ib.RKey
	va, size    uint64
	original    uint64
}

type resourceKind uint8

const (
	unused resourceKind = iota
	reading
	atomic
	flushing
)

// outstanding reports whether the request counts against max_dest_rd_atomic. Once it was answered, a further answer is a
// repetition that may be dropped at any time.
func (x *resource) outstanding() bool { return x.kind != unused && !x.answered }

func (x *resource) has(psn ib.PSN) bool {
	return x.kind != unused && !psn.Before(x.first) && !psn.After(x.last)
}

// covers reports whether a READ of n bytes at va lies within x. In this order nothing wraps: a request for the end of the
// address space once passed for part of another, elsewhere.
func (x *resource) covers(key ib.RKey, va, n uint64) bool {
	return key == x.key && va >= x.va && n <= x.size && va-x.va <= x.size-n
}

// resources is the ring of the newest READs and atomics.
type resources struct {
	ring  []resource
	limit int // max_dest_rd_atomic
	next  int // slot of the next request; it holds the oldest
}

// room reports whether the peer may have one more READ or atomic outstanding. One that asks for more than was agreed
// is refused (IBA 9.7.4.1.4), and so is everyone if the limit is 0.
func (t *resources) room() bool {
	return t.limit > 0 && !t.ring[t.slot(t.limit)].outstanding()
}

// slot returns the slot of the n-th newest request.
func (t *resources) slot(n int) int { return (t.next - n + len(t.ring)) % len(t.ring) }

// find returns the slot of the newest request to which psn belongs, -1 if none is remembered.
func (t *resources) find(psn ib.PSN) int {
	for n := 1; n <= len(t.ring); n++ {
		if s := t.slot(n); t.ring[s].has(psn) {
			return s
		}
	}
	return -1
}

func (t *resources) reset() {
	clear(t.ring)
	t.next = 0
}

// remember takes the oldest slot for a new request. A repetition of the old one that still waits is dropped: the peer
// cannot have one more request outstanding unless it has seen the end of that.
func (r *responder) remember(x resource) {
	t := &r.resources
	r.answers.remove(t.next)
	t.ring[t.next] = x
	t.next = (t.next + 1) % len(t.ring)
}

// resize sets max_dest_rd_atomic. What is remembered stays, and so do answers under way: only the count of new requests
// changes, so that it does no harm under traffic.
func (r *responder) resize(limit int) {
	t := &r.resources
	t.limit = limit
	old := len(t.ring)
	if limit <= old {
		return
	}
	ring := make([]resource, limit)
	for n := old; n >= 1; n-- {
		ring[old-n] = t.ring[t.slot(n)]
	}
	r.answers.grow(limit)
	for i := range r.answers.waiting() {
		if a := &r.answers.waiting()[i]; a.kind != acknowledging {
			a.slot = (a.slot - t.next + old) % old
		}
	}
	t.ring, t.next = ring, old
}

// repeat answers a request that was executed before (IBA 9.7.5.1.5). It is never executed again, a READ apart, and
// changes neither PSN nor MSN.
func (r *responder) repeat(p *wire.Packet) {
	r.e.cfg.Counters.DuplicateRequest++
	switch op := operation(p.Opcode); {
	case op.IsSend(), op.IsWrite(), op == wire.RCAtomicWrite:
		// The ACK may cover more than the peer asks about: all that was executed.
		if p.BTH().AckReq() || op == wire.RCAtomicWrite {
			r.answers.acknowledge(r.epsn.Sub(1), r.msn)
		}
	case op.IsRead():
		r.repeatRead(p)
	case op.IsAtomic():
		r.repeatAtomic(p)
	case op == wire.RCFlush:
		r.repeatFlush(p)
	}
}

// repeatRead reads once more what the original read, or a part of it: from where a response was lost. If the answer is under
// way it begins again at the place asked for. A request is dropped that is older than what is remembered, is not within the
// original, or begins elsewhere than at the bytes that the response with its PSN had carried: no requester that repeats its
// own READ asks that (IBA 9.7.5.1.1), and who forges one is not to choose among the bytes of others.
func (r *responder) repeatRead(p *wire.Packet) {
	first, h := p.PSN(), wire.FindRETH(p.Header)
	slot := r.resources.find(first)
	if slot < 0 || p.Len != 0 || r.e.attr.AccessFlags&ib.AccessRemoteRead == 0 {
		return
	}
	x := &r.resources.ring[slot]
	n := uint64(h.Length())
	if x.kind != reading || !x.covers(h.RKey(), h.VA(), n) || r.packets(h.Length()) > distance(first, x.last)+1 {
		return
	}
	if h.VA()-x.va != uint64(distance(x.first, first))*uint64(r.e.mtu) {
		return
	}
	r.answers.remove(slot)
	r.answers.insert(answer{kind: returning, slot: slot, psn: first, va: h.VA(), left: n, msn: r.msn})
}

// repeatAtomic answers with the original value again.
func (r *responder) repeatAtomic(p *wire.Packet) {
	slot := r.resources.find(p.PSN())
	if slot < 0 || r.resources.ring[slot].kind != atomic || r.answers.has(slot) {
		return
	}
	r.answers.insert(answer{kind: replying, slot: slot, psn: p.PSN(), msn: r.msn})
}
