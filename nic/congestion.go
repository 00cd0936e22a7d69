package nic

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Congestion, both ends of it (IBA A17.9.3). A switch that is congested marks packets CE instead of dropping them; the
// receiver of a marked packet, the notification point, tells its sender by a CNP; the sender, the reaction point, cuts the
// rate of that queue pair (dcqcn.go). What a peer may be told by ECN it must ask for: packets leave as ECT(0) unless their
// traffic class says otherwise.
//
// A mark on a datagram to a group is counted and not answered: all who hear the group would. So nobody asks for marks there.

const (
	ecnMask = 3
	ecnECT0 = 2
	ecnCE   = 3
	// cnpSpacing is the least time between two CNPs for a flow: DCQCN's N. The sender's timers, a little longer, count on
	// it.
	cnpSpacing = 50 * time.Microsecond
	// cnpClass is the traffic class of a CNP: DSCP 48, which switches forward first, and ECT(0), as ConnectX sends them.
	cnpClass = 48<<2 | ecnECT0
)

// paced is an engine that keeps to a rate.
type paced interface{ SetRate(bytesPerSecond uint64) }

// congestion is what the shard knows about the ways of a queue pair.
type congestion struct {
	engine paced // nil if it does not keep to rates
	rate   uint64
	bound  uint64 // by the address vector or RATE_LIMIT, bytes a second; 0 for none
	dcqcn  dcqcn
	slowed *slowed // of datagrams, in place of dcqcn
	// As notification point.
	path *wire.Path // of CNPs
	next clock.Time // when another may go
}

// route takes over what a new path means for congestion, and returns the path that data travels.
func (c *congestion) route(p *wire.Path, l *Limits) *wire.Path {
	cnp := *p
	cnp.TrafficClass = cnpClass
	c.path = &cnp
	capable(p, l)
	return p
}

// capable has the packets of a path ask for marks, if there is somebody to heed them. A traffic class that is marked already,
// copied perhaps from a datagram that was, is that of a packet that asks: marking is for switches.
func capable(p *wire.Path, l *Limits) {
	switch ecn := p.TrafficClass & ecnMask; {
	case ecn == ecnCE, ecn == 0 && !l.NoDCQCN:
		p.TrafficClass = p.TrafficClass&^ecnMask | ecnECT0
	}
}

// reset forgets everything but what belongs to the engine, which has its rate still.
func (c *congestion) reset() {
	*c = congestion{engine: c.engine, rate: c.rate, slowed: c.slowed}
	if c.slowed != nil {
		c.slowed.n = 0
	}
}

// limit sets the rate that the attributes allow, and tells the engine of whatever rate there is now.
func (c *congestion) limit(now clock.Time, a *ib.QPAttr) {
	c.bound = ib.StaticRate(a.AH.StaticRate)
	if r := uint64(a.RateLimit) * 1000; r != 0 && (c.bound == 0 || r < c.bound) {
		c.bound = r
	}
	c.bound /= 8
	c.pace(now)
}

// pace tells the engine the rate of now.
func (c *congestion) pace(now clock.Time) {
	rate := c.bound
	if r := c.dcqcn.rate(now); r != 0 && (rate == 0 || r < rate) {
		rate = r
	}
	if rate != c.rate && c.engine != nil {
		c.rate = rate
		c.engine.SetRate(rate)
	}
}

// notified is a CNP for q.
func (s *shard) notified(now clock.Time, q *QP, p *wire.Packet) {
	s.cnpsHandled++
	line := s.dev.limits.LineRate / 8
	if d := q.congestion.slowed; d != nil {
		d.notify(now, p.Source, line)
		return
	}
	q.congestion.dcqcn.notify(now, line)
	q.congestion.pace(now)
}

// marked is a packet for q that was marked on its way. Its sender is told, unless it was a moment ago. When the burst is
// full it is not: the next marked packet will do.
func (s *shard) marked(now clock.Time, q *QP, p *wire.Packet) {
	s.ecnMarked++
	if s.dev.limits.NoCNP {
		return
	}
	if q.typ == ib.QPTypeUD {
		s.markedDatagram(now, q, p)
		return
	}
	c := &q.congestion
	if c.path == nil || c.next.After(now) {
		return
	}
	if s.sendCNP(q, c.path, q.attr.DestQPN) {
		c.next = now.Add(cnpSpacing)
	}
}

// sendCNP puts a CNP for a queue pair at the other end of path into the burst, and reports whether it had room.
func (s *shard) sendCNP(q *QP, path *wire.Path, to ib.QPN) bool {
	f := s.burst.Next()
	if f == nil {
		return false
	}
	f.SetHeader(wire.CNP)
	h := f.BTH()
	h.SetPKey(path.Partition())
	h.SetBECN(true)
	h.SetDestQP(to)
	f.Path, f.QPN, f.Stable = path, q.qpn, true
	f.Add(&cnpBody, 0, len(cnpBody.B))
	s.settled = s.burst.Len()
	s.cnpsSent++
	return true
}

// cnpBody is the reserved bytes of a CNP.
var cnpBody = wire.Buffer{B: make([]byte, 16)}
