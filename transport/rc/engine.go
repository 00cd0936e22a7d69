package rc

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Config is what a reliable connection is made of. Everything the engine ever needs is allocated from it in New and in
// the first Modify to RTR or RTS.
type Config struct {
	QPN ib.QPN
	// Service is ServiceRC, or ServiceXRC for one half of an extended connection: the target if there is a Target, else
	// the initiator.
	Service wire.Service
	// Target finds the shared receive queues of an XRC target, which has no Domain.
	Target Target
	Cap    ib.QPCap // real capacities: the private copies of requests are sized by them
	Domain *dma.Domain
	// RecvDomain is whose keys receives name: the domain of the shared receive queue, which may be another (IBA 10.2.9).
	// Nil means Domain.
	RecvDomain *dma.Domain
	Table      *dma.Table
	// QP is the queue pair served.
	QP       transport.QueuePair
	Counters *transport.Counters
	Trace    *trace.Ring // may be nil
	Limits   Limits
	// Outstanding counts what the requester has outstanding against a bound that engines share; nil for none.
	Outstanding *transport.Outstanding
}

// Limits are properties of the device.
type Limits struct {
	MaxMessage uint64 // bytes of the largest message
	// AckFloor is the least time before a missing acknowledgement counts as lost: on a real host a busy machine
	// stalls longer than short ACK timeouts ask for. 0 in virtual time.
	AckFloor time.Duration
	// Probe is the least silence of a peer after which the oldest packet is sent once more, to ask; 0 for no such thing:
	// losses then wait for the ACK timer whenever the responder does not speak by itself.
	Probe time.Duration
	// Window is the most packets a queue pair has outstanding.
	Window int
	// AckEvery asks for an acknowledgement after so many packets of a long message.
	AckEvery int
}

// Engine is a reliable connection: a requester, a responder, and the state they share. It implements transport.Engine.
type Engine struct {
	cfg   Config
	state ib.QPState
	attr  ib.QPAttr
	path  *wire.Path
	mtu   int // payload bytes of a full packet
	pace  transport.Pacer
	paced bool // something waits for the pace

	req  requester
	resp responder
}

var _ transport.Engine = (*Engine)(nil)

// New makes an engine in RESET.
func New(cfg Config) *Engine {
	if cfg.RecvDomain == nil {
		cfg.RecvDomain = cfg.Domain
	}
	if cfg.Outstanding == nil {
		cfg.Outstanding = new(transport.Outstanding)
	}
	e := &Engine{cfg: cfg}
	e.req.init(e)
	e.resp.init(e)
	return e
}

// Receive implements transport.Engine: responses belong to the requester, everything else to the responder.
func (e *Engine) Receive(now clock.Time, p *wire.Packet) bool {
	switch response := p.Opcode.IsResponse(); {
	case p.Opcode.Service() != e.cfg.Service:
		return false
	case response && e.initiates():
		return e.req.receive(now, p)
	case !response && e.targets():
		return e.resp.receive(now, p)
	}
	return false
}

// Transmit implements transport.Engine. Responses go first: the peer waits for them.
func (e *Engine) Transmit(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	e.paced = false
	bytes, more = e.resp.transmit(now, out, budget)
	if more {
		return bytes, true
	}
	n, more := e.req.transmit(now, out, budget-bytes)
	return bytes + n, more
}

// Expire implements transport.Engine. Requesters have timers, and both halves a pace.
func (e *Engine) Expire(now clock.Time) bool {
	active := e.req.expire(now)
	if e.paced && e.pace.Open(now) {
		e.paced = false
		active = true
	}
	return active
}

// Deadline implements transport.Engine.
func (e *Engine) Deadline() clock.Time {
	if e.paced {
		return min(e.req.deadline(), e.pace.Due())
	}
	return e.req.deadline()
}

// SetRate bounds what the queue pair sends, in bytes a second; 0 for no bound. Requests and the responses of READs keep to
// it. Acknowledgements do not wait: they are small, and the peer's window hangs on them.
func (e *Engine) SetRate(rate uint64) { e.pace.SetRate(rate) }

// open reports whether the pace allows another packet, and otherwise has the engine called again when it does.
func (e *Engine) open(now clock.Time) bool {
	e.paced = !e.pace.Open(now)
	return !e.paced
}

// Modify implements transport.Engine.
func (e *Engine) Modify(now clock.Time, attr *ib.QPAttr, mask ib.QPAttrMask, path *wire.Path) bool {
	e.attr = *attr
	// Until the way to RTR gives one, the least there is.
	e.mtu = max(attr.PathMTU.Bytes(), ib.MTU256.Bytes())
	if path != nil {
		e.path = path
	}
	if mask&ib.QPAttrState != 0 && e.state != attr.State {
		e.state = attr.State
		e.enters(now, e.state)
	}
	if e.state == ib.StateReset {
		e.req.reset()
		e.resp.reset()
		return false
	}
	e.req.modify(mask)
	e.resp.modify(now, mask)
	switch e.state {
	case ib.StateRTS, ib.StateSQD, ib.StateErr:
		return true
	}
	return false
}

// Query implements transport.Engine.
func (e *Engine) Query(attr *ib.QPAttr) {
	attr.State, attr.CurState = e.state, e.state
	e.req.query(attr)
	e.resp.query(attr)
}

// responseCookie marks the cookie of a response; the low 24 bits of every cookie are the frame's PSN.
const responseCookie uint64 = 1 << 63

// Faulted implements transport.Engine.
func (e *Engine) Faulted(now clock.Time, cookie uint64) bool {
	if cookie&responseCookie != 0 {
		return e.resp.faulted(now, cookie)
	}
	return e.req.faulted(now, cookie)
}

// fatal takes the queue pair to the error state for a reason of its own. Both halves flush what is posted the next time
// they transmit (IBA 10.3.1.7).
func (e *Engine) fatal(now clock.Time) {
	if e.state == ib.StateErr {
		return
	}
	e.state = ib.StateErr
	e.enters(now, e.state)
	e.req.stopTimers()
	e.cfg.QP.SetState(ib.StateErr)
}

// header starts a frame to the peer: base transport header and path. Cookie and what follows the header are the
// caller's.
func (e *Engine) header(f *wire.Frame, op wire.Opcode, psn ib.PSN) []byte {
	h := f.SetHeader(e.opcode(op))
	bth := f.BTH()
	// Migrated, since there are no alternate paths.
	bth.SetPKey(e.path.Partition())
	bth.SetMigReq(true)
	bth.SetDestQP(e.attr.DestQPN)
	bth.SetPSN(psn)
	f.Path, f.QPN = e.path, e.cfg.QPN
	return h
}
