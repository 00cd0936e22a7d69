package nic

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/uc"
	"github.com/softnic/softnicd/transport/ud"
)

// engineOf makes the transport engine of a queue pair.
func (d *Device) engineOf(q *QP) transport.Engine {
	switch q.typ {
	case ib.QPTypeUC:
		return uc.New(d.unreliable(q))
	case ib.QPTypeUD:
		q.congestion.slowed = new(slowed)
		return ud.New(ud.Config{
			Common:    d.unreliable(q),
			ActiveMTU: func() int { return ib.MTUForLink(d.link.Load().MTU).Bytes() },
			PKey:      func(index uint16) ib.PKey { return d.pkeys[index] },
		})
	}
	return d.newRC(q)
}

// unreliable is what the engines of both unreliable services are made of.
func (d *Device) unreliable(q *QP) uc.Config {
	c := uc.Config{
		QPN: q.qpn, Cap: q.cap, Domain: &q.pd.domain, Table: d.keys, QP: (*served)(q), Counters: &q.counters,
		MaxMessage: d.limits.MaxMessage,
	}
	if q.srq != nil {
		c.Cap.MaxRecvSGE, c.RecvDomain, c.SharedRecv = q.srq.maxSGE, &q.srq.pd.domain, true
	}
	return c
}
