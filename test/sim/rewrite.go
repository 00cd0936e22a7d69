package sim

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A network element that is broken may change a header and make the ICRC right again. What can be asked for then depends on
// the field. A changed address, key, length, operand or byte of payload is a request that the peer might have meant: nothing
// can survive that, and the tests of the oracle show that it is noticed. A changed opcode, pad count or syndrome may end a
// queue pair, as it should. The fields below are the others: the packet is as good, or as good as lost.
var rewrites = [...]func(n *network, h *wire.BTH, all []byte){
	// Nobody reads these: migration state, reserved bits, congestion marks.
	func(n *network, h *wire.BTH, _ []byte) { h.SetMigReq(!h.MigReq()) },
	func(n *network, h *wire.BTH, _ []byte) { h[4] ^= byte(n.dice.below(256)) },
	func(n *network, h *wire.BTH, _ []byte) { h[8] ^= byte(n.dice.below(128)) },
	// An acknowledgement more, or one that has to be asked for again.
	func(n *network, h *wire.BTH, _ []byte) { h.SetAckReq(!h.AckReq()) },
	// Another version, partition or queue pair: dropped. A member's kind is the exception, and is let in.
	func(n *network, h *wire.BTH, _ []byte) { h[1] ^= byte(n.dice.between(1, 15)) },
	func(n *network, h *wire.BTH, _ []byte) { h.SetPKey(h.PKey() ^ 1<<n.dice.below(16)) },
	func(n *network, h *wire.BTH, _ []byte) {
		q := h.DestQP() ^ 1<<n.dice.below(24)
		if q != ib.MulticastQPN && n.w.ownerOf(q) == nil {
			h.SetDestQP(q)
		}
	},
	// A number far from all others: a repetition of what nobody remembers, or from beyond a hole.
	func(n *network, h *wire.BTH, _ []byte) { h.SetPSN(h.PSN() ^ 1<<n.dice.between(16, 22)) },
	// Credits and message numbers, which a requester may ignore.
	func(n *network, _ *wire.BTH, all []byte) {
		if a := wire.FindAETH(all); a != nil {
			a.SetMSN(uint32(n.dice.below(1 << 24)))
			if a.Syndrome().IsAck() {
				a.SetSyndrome(wire.Syndrome(n.dice.below(32)))
			}
		}
	},
}

// rewrite changes a header of a packet and repairs its ICRC.
func (n *network) rewrite(p *packet) {
	var parsed wire.Packet
	judged := p.Datagram
	judged.ID, judged.IDKnown = p.id, true
	if wire.Parse(&parsed, &judged) != wire.Accepted {
		return
	}
	oneOf(n.dice, rewrites[:]...)(n, parsed.BTH(), parsed.Header)
	b, err := parsed.AppendTo(nil, p.id)
	if err != nil {
		n.w.failf("%v", err)
	}
	p.Bytes = append(p.Bytes[:0], b...)
	p.altered = true
	p.end.conn.losses++
	n.w.census["rewritten headers"]++
}

// ownerOf returns the end that has a queue pair number, on whichever device.
func (w *world) ownerOf(q ib.QPN) *endpoint {
	for _, n := range w.nodes {
		if e := n.endpointOf(q); e != nil {
			return e
		}
	}
	return nil
}
