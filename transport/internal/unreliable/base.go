// Package unreliable has what unreliable connections and datagrams share: a send queue whose requests end when their
// packets have left, the send queue error state, and a receive that stays with its queue pair until a message fills it.
//
//	type Engine struct{ *unreliable.Base }      // most of transport.Engine
//	e.Base = unreliable.New(cfg, e)             // e is the Service: what differs
//	func (e *Engine) Receive(...)               // Hears, Take, Table().Scatter, End
//
// Nothing here is answered by the peer, so there are no timers but those of the pace, and of looking whether the burst has
// left.
package unreliable

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Config is what a queue pair of an unreliable service is made of.
type Config struct {
	QPN    ib.QPN
	Cap    ib.QPCap // real capacities
	Domain *dma.Domain
	// RecvDomain is whose keys receives name; nil means Domain.
	RecvDomain *dma.Domain
	Table      *dma.Table
	QP         transport.QueuePair
	Counters   *transport.Counters
	MaxMessage uint64 // bytes; at most 2^31
	// SharedRecv says that receives come from a shared receive queue.
	SharedRecv bool
}

// Service is what the services do in their own way.
type Service interface {
	// Judge says whether a request can be sent, WCSuccess, or how it fails.
	Judge(r *transport.Request) (ib.WCStatus, transport.VendorErr)
	// Head makes the header of packet i of n and the frame's path.
	Head(f *wire.Frame, r *transport.Request, i, n uint32, psn ib.PSN)
	// MTU is the bytes of a full packet.
	MTU() int
	// Changed is called at the end of every Modify.
	Changed(mask ib.QPAttrMask)
}

// Base is all of an engine but Receive.
type Base struct {
	cfg     Config
	service Service
	state   ib.QPState
	attr    ib.QPAttr
	path    *wire.Path
	pace    transport.Pacer
	way     transport.Pacer // of datagrams whose paths have rates
	paced   bool            // something waits for one of them

	sender

	recv transport.Receive
	held bool // recv was fetched and has not completed
	wc   transport.Completion
}

// New makes a queue pair in RESET.
func New(cfg Config, s Service) *Base {
	if cfg.RecvDomain == nil {
		cfg.RecvDomain = cfg.Domain
	}
	if cfg.MaxMessage == 0 || cfg.MaxMessage > 1<<31 {
		cfg.MaxMessage = 1 << 31
	}
	b := &Base{cfg: cfg, service: s}
	b.sender.due = clock.Never
	b.recv.SGE = make([]ib.SGE, 0, cfg.Cap.MaxRecvSGE)
	return b
}

// State returns the state the engine is in.
func (b *Base) State() ib.QPState { return b.state }

// Attr returns the attributes as of the last Modify.
func (b *Base) Attr() *ib.QPAttr { return &b.attr }

// Path returns the way to the peer, nil for datagrams.
func (b *Base) Path() *wire.Path { return b.path }

// Modify implements transport.Engine.
func (b *Base) Modify(_ clock.Time, attr *ib.QPAttr, mask ib.QPAttrMask, path *wire.Path) bool {
	b.attr = *attr
	if path != nil {
		b.path = path
	}
	before := b.state
	if mask&ib.QPAttrState != 0 {
		b.state = attr.State
	}
	switch b.state {
	case ib.StateReset:
		b.path, b.held = nil, false
		b.forget()
	case ib.StateRTS:
		switch before {
		case ib.StateRTR:
			b.start()
		case ib.StateSQE:
			b.resume()
		}
		b.drained = false
	}
	b.service.Changed(mask)
	return b.state != ib.StateReset
}

// Query implements transport.Engine.
func (b *Base) Query(attr *ib.QPAttr) {
	attr.State, attr.CurState = b.state, b.state
	attr.SQPSN = b.psn
	attr.SQDraining = b.state == ib.StateSQD && !b.drained
}

// Transmit implements transport.Engine.
func (b *Base) Transmit(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	b.paced = false
	bytes, more = b.transmitSends(now, out, budget)
	if b.state == ib.StateErr && !more {
		n, m := b.flushRecvs(budget - bytes)
		bytes, more = bytes+n, m
	}
	b.arm(now)
	return bytes, more
}

// Expire implements transport.Engine.
func (b *Base) Expire(now clock.Time) (active bool) {
	if !b.due.After(now) {
		b.due, b.patient = clock.Never, true
		active = true
	}
	if b.paced && b.open(now) {
		b.paced, active = false, true
	}
	return active
}

// Deadline implements transport.Engine.
func (b *Base) Deadline() clock.Time {
	if b.paced {
		return min(b.due, b.opens())
	}
	return b.due
}

// open reports whether the pace of the queue pair, and that of the path of a datagram, allow a packet of the request in hand.
// Requests leave in the order in which they were posted, so that one that waits holds up those behind it; and since paths
// with rates share one pacer, each keeps to its own, and together they are no faster than the fastest.
func (b *Base) open(now clock.Time) bool { return !b.opens().After(now) }

func (b *Base) opens() clock.Time {
	if b.request.Datagram.Rate == 0 {
		return b.pace.Due()
	}
	return max(b.pace.Due(), b.way.Due())
}

// counts counts n bytes that were sent.
func (b *Base) counts(now clock.Time, n int) {
	b.pace.Sent(now, n)
	if rate := b.request.Datagram.Rate; rate != 0 {
		b.way.SetRate(rate)
		b.way.Sent(now, n)
	}
}

// patience is how long a burst that has not left is left alone.
const patience = 50 * time.Microsecond

// arm has the engine called again when requests wait for their frames to leave: at once, since a burst usually leaves with
// the call; later, when it did not.
func (b *Base) arm(now clock.Time) {
	switch {
	case b.head == b.tail || b.state == ib.StateReset:
		b.due = clock.Never
	case b.patient:
		b.due = now.Add(patience)
	default:
		b.due = now
	}
}

// SetRate bounds what the queue pair sends, in bytes a second; 0 for no bound.
func (b *Base) SetRate(rate uint64) { b.pace.SetRate(rate) }

// enter goes to a state by itself and tells the device.
func (b *Base) enter(s ib.QPState) {
	if b.state != s && b.state != ib.StateErr {
		b.state = s
		b.cfg.QP.SetState(s)
	}
}

// Abort implements transport.Aborter.
func (b *Base) Abort(_ clock.Time, status ib.WCStatus, vendor transport.VendorErr) bool {
	if b.state == ib.StateErr || b.state == ib.StateReset {
		return b.state == ib.StateErr
	}
	b.enter(ib.StateErr)
	if b.head != b.tail {
		b.end(status, vendor)
	}
	return true
}
