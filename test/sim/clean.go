package sim

import (
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A network without faults shows what faults would hide: a device that loses packets itself and recovers, or recovers
// too soon or too late, does nothing wrong elsewhere.

// clean reports whether every packet that a port took arrives, in order, and in time.
func (p *Plan) clean() bool {
	n := &p.Network
	return n.Loss+n.Duplicate+n.Corrupt+n.Rewrite == 0 && n.Jitter == 0 && (n.Reorder == 0 || n.Late == 0) && !p.Fragile && p.Faults.none() && p.Attack == 0 && p.Death+p.Madness+p.Overrun+p.Crash == 0
}

// checkClean holds the counters of the devices against such a network.
func (w *world) checkClean() {
	if !w.plan.clean() {
		return
	}
	sum := func(name string) (n uint64) {
		for _, x := range w.nodes {
			for _, c := range x.dev.Counters() {
				if c.Name == name {
					n += c.Value
				}
			}
		}
		return n
	}
	never := []string{"packet_seq_err", "bad_responses", "tx_lost", "rx_unknown_qpn", "rx_qp_state"}
	ready := sum("rnr_nak_retry_err") == 0 // a receiver that is not ready drops what follows
	prompt := w.plan.Network.Congest == 0  // a port that takes nothing makes others believe that something was lost
	if ready {
		never = append(never, "out_of_sequence")
	}
	if prompt {
		never = append(never, "implied_nak_seq_err", "local_ack_timeout_err")
	}
	if ready && prompt {
		never = append(never, "duplicate_request", "retransmissions", "ghost_acks")
	}
	for _, name := range never {
		if n := sum(name); n != 0 {
			w.failf("nothing went wrong on the network, and %s is %d", name, n)
		}
	}
}

// notePatience remembers an RNR NAK that arrives.
func (e *endpoint) notePatience(p *wire.Packet) {
	w := e.app.w
	if a := wire.FindAETH(p.Header); a != nil && a.Syndrome().IsRNR() && w.plan.clean() && w.plan.Network.Congest == 0 {
		e.rnrEnds = w.now.Add(ib.RNRTimer(a.Syndrome().RNRCode()))
	}
}

// checkPatience asks whether the first request after an RNR NAK waits for the time that the NAK named (IBA 9.7.5.2.8),
// and not much longer.
func (e *endpoint) checkPatience(op wire.Opcode) {
	w := e.app.w
	if e.rnrEnds == 0 || !op.IsRequest() {
		return
	}
	switch late := w.now.Sub(e.rnrEnds); {
	case late < 0:
		w.accuse("%s asked again %v before a receiver that was not ready could be asked", e.name, -late)
	case late > 20*time.Microsecond && w.plan.Network.Mark == 0: // who is told of congestion keeps to a pace
		w.accuse("%s asked again %v after a receiver that was not ready could be asked", e.name, late)
	}
	e.rnrEnds = 0
}
