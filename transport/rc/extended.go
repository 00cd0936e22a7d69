package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// The extended reliable connection (XRC, IBA A14) is this connection cut in half: the initiator is a requester alone, the
// target a responder alone. What is different:
//
//   - opcodes are of the group 0xa0, and every request packet has an XRCETH directly behind the BTH;
//   - the target has neither receive queue nor protection domain. Each request names a shared receive queue, whose receives
//     and whose domain's keys it uses. So one target serves every process of a node that made a queue for itself.

// Target is what the engine of an XRC target asks of its device.
type Target interface {
	// Select makes the shared receive queue with this number the one that FetchRecv takes from and CompleteRecv completes
	// for, and returns the domain of its keys. It returns nil if the XRC domain of the queue pair has none such.
	Select(srqn uint32) *dma.Domain
}

// operation returns the opcode that the same operation has on a plain reliable connection, whose group is 0: the engine
// thinks in those.
func operation(o wire.Opcode) wire.Opcode { return o & 0x1f }

// opcode is the way back.
func (e *Engine) opcode(operation wire.Opcode) wire.Opcode {
	return operation | wire.Opcode(e.cfg.Service)<<5
}

// initiates and targets tell the halves that there are: both of a plain connection.
func (e *Engine) initiates() bool { return e.cfg.Target == nil }
func (e *Engine) targets() bool   { return e.cfg.Target != nil || e.cfg.Service != wire.ServiceXRC }

// violation answers a request whose shared receive queue is none of this domain. A14 leaves the code of an XRC violation to
// be looked for; rxe's patches say remote access error, which is also what a key of another domain gets.
var violation = verdict{action: refuse, syndrome: wire.NakRemoteAccess, vendor: transport.VendorBadDomain}

// checkTarget finds the shared receive queue of an XRC request. Every packet names it, and every packet of a message the
// same; so does what comes in place of a packet whose receive is still in hand.
func (r *responder) checkTarget(p *wire.Packet) verdict {
	if r.e.cfg.Target == nil {
		return proceed
	}
	n := wire.FindXRCETH(p.Header).SRQN()
	if (r.held || r.msg.kind != idle) && n != r.srqn {
		return violation
	}
	domain := r.e.cfg.Target.Select(n)
	if domain == nil {
		return violation
	}
	r.srqn, r.domain, r.recvDomain = n, domain, domain
	return proceed
}

// remote looks up memory that the request in hand names.
func (r *responder) remote(key ib.RKey, va, n uint64, need ib.AccessFlags) (dma.Span, dma.Verdict) {
	return r.e.cfg.Table.Remote(r.domain, r.e.cfg.QPN, key, va, n, need)
}

// addressTarget names the peer's shared receive queue in a request, if it is one of XRC.
func (r *requester) addressTarget(header []byte, w *work) {
	if x := wire.FindXRCETH(header); x != nil {
		x.SetSRQN(w.srqn)
	}
}
