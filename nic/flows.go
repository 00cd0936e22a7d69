package nic

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Congestion of datagrams. A queue pair for datagrams has no peer but many, over ways of which one is congested and the next
// is not. So what a connection knows of its one way is known here of each: the sender keeps a rate for every destination
// that complained, and the receiver spaces CNPs by the queue pair that it heard. A CNP slows down what goes to the host
// that it comes from, and nothing else: it is forged easily, and its sender may be a client among hundreds.

// slowed are the destinations that have sent CNPs to a queue pair lately.
type slowed struct {
	list [slowedMost]destination
	n    int
}

type destination struct {
	gid   ib.GID
	heard clock.Time // the last CNP
	dcqcn dcqcn
}

// slowedMost bounds the memory of a queue pair. Who congests more ways than that has forgotten some.
const slowedMost = 8

// notify is a CNP from a destination.
func (d *slowed) notify(now clock.Time, from ib.GID, line uint64) {
	to := d.find(from)
	if to == nil {
		to = d.replace()
		*to = destination{gid: from}
	}
	to.heard = now
	to.dcqcn.notify(now, line)
}

func (d *slowed) find(gid ib.GID) *destination {
	for i := range d.list[:d.n] {
		if d.list[i].gid == gid {
			return &d.list[i]
		}
	}
	return nil
}

// replace returns a place: a free one, one whose rate is back, or that of who complained longest ago.
func (d *slowed) replace() *destination {
	if d.n < len(d.list) {
		d.n++
		return &d.list[d.n-1]
	}
	oldest := &d.list[0]
	for i := range d.list {
		to := &d.list[i]
		if !to.dcqcn.limited {
			return to
		}
		if to.heard.Before(oldest.heard) {
			oldest = to
		}
	}
	return oldest
}

// rate returns the rate for datagrams to a destination at now, in bytes a second, if it is below another, 0 for none. Only
// time raises it again: at the rates that matter the byte steps of DCQCN come long after those of time.
func (d *slowed) rate(now clock.Time, gid ib.GID, other uint64) uint64 {
	if d.n == 0 {
		return other
	}
	if to := d.find(gid); to != nil {
		if r := to.dcqcn.rate(now); r != 0 && (other == 0 || r < other) {
			return r
		}
	}
	return other
}

// informed are the senders of datagrams that were told of marks, for as long as they are not to be told again.
type informed [64]notice

// notice is the CNPs for a queue pair of another host.
type notice struct {
	path wire.Path
	qpn  ib.QPN
	next clock.Time // when another may go
	end  uint64     // wire.Burst.End behind the last
}

// find returns the notice for the sender of a marked datagram, ready to be sent, or nil if it is not its time, or all are in
// use: the next marked datagram will do. A path may be written when no frame refers to it any more.
func (n *informed) find(now clock.Time, p *wire.Packet, burst *wire.Burst) *notice {
	from := wire.FindDETH(p.Header).SourceQP()
	var free *notice
	for i := range n {
		x := &n[i]
		idle := !x.next.After(now) && burst.Taken() >= x.end
		if x.qpn == from && x.path.Dest == p.Source && x.path.Source == p.Dest {
			if !idle {
				return nil
			}
			return x
		}
		if idle && (free == nil || x.next.Before(free.next)) {
			free = x
		}
	}
	if free != nil {
		free.qpn = from
		free.path = wire.Path{
			Source: p.Dest, Dest: p.Source, SourcePort: ib.FlowLabelUDPPort(0, p.BTH().DestQP(), from), TrafficClass: cnpClass,
			HopLimit: defaultHopLimit, SL: p.SL,
		}
	}
	return free
}

// markedDatagram tells the sender of a datagram for q that it was marked on its way. One that came by the local link was not
// marked by any switch.
func (s *shard) markedDatagram(now clock.Time, q *QP, p *wire.Packet) {
	if p.Local {
		return
	}
	if n := s.informed.find(now, p, s.burst); n != nil {
		n.path.PKey = q.pkey()
		if s.sendCNP(q, &n.path, n.qpn) {
			n.next, n.end = now.Add(cnpSpacing), s.burst.End()
		}
	}
}
