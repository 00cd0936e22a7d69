package fault

import (
	"errors"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// Port is a port with faults. It is used by the goroutine that uses the port within.
type Port struct {
	inner    nic.Port
	rules    []*rule
	out      outbound
	in       inbound
	spoilt   nic.PortCounters // what we refused in the name of the port within
	counters nic.PortCounters // sums
}

var _ nic.Port = (*Port)(nil)

// Wrap puts a plan between a device and its port.
func Wrap(inner nic.Port, plan Plan) (*Port, error) {
	p := &Port{inner: inner, out: outbound{judged: make([]*rule, 0, 1024)}}
	if err := p.SetPlan(plan); err != nil {
		return nil, err
	}
	return p, nil
}

// SetPlan replaces the plan; counting begins anew. Packets that are held back stay so. After an error the plan is as it
// was.
func (p *Port) SetPlan(plan Plan) error {
	if err := plan.Validate(); err != nil {
		return err
	}
	p.rules = compile(&plan)
	p.out.judged = p.out.judged[:0]
	return nil
}

// Applied returns how often each rule was applied.
func (p *Port) Applied() []uint64 {
	n := make([]uint64, len(p.rules))
	for i, r := range p.rules {
		n[i] = r.applied
	}
	return n
}

// Deadline is when a packet that is held back becomes due, clock.Never if there is none: Recv is to be called then, even
// if nothing came.
func (p *Port) Deadline() clock.Time {
	d := nic.PortDeadline(p.inner)
	for _, h := range p.out.held {
		d = min(d, h.due)
	}
	for _, h := range p.in.held {
		d = min(d, h.due)
	}
	return d
}

// Descriptor implements nic.Port. It knows nothing of packets that are held back: see [Port.Deadline].
func (p *Port) Descriptor() int { return p.inner.Descriptor() }

// Counters implements nic.Port: what the port within counts, as of this call. Packets that were spoilt are counted as
// refused, whichever way they went.
func (p *Port) Counters() *nic.PortCounters {
	p.counters.SetSum(p.inner.Counters(), &p.spoilt)
	return &p.counters
}

// Close implements nic.Port. What is held back is lost.
func (p *Port) Close() error { return p.inner.Close() }

// hold is when a packet that is held back goes on: at a time, or when enough others have passed it.
type hold struct {
	due    clock.Time
	behind int // packets still to pass it; 0 is only by time
}

func (h *hold) ready(now clock.Time) bool { return !h.due.After(now) }

// passed notes that a packet went by.
func (h *hold) passed() {
	if h.behind > 0 {
		if h.behind--; h.behind == 0 {
			h.due = 0
		}
	}
}

func (r *rule) hold(now clock.Time) hold {
	switch r.Action {
	case Delay:
		return hold{due: now.Add(time.Duration(r.Delay))}
	case Reorder:
		return hold{due: now.Add(time.Duration(r.Delay)), behind: r.Behind}
	}
	return hold{}
}

// judge parses a datagram that was spoilt, as whoever receives it would. What he would refuse is counted, and lost.
func (p *Port) judge(g *wire.Packet, b []byte, path *wire.Path) bool {
	drop := wire.Parse(g, &wire.Datagram{Bytes: b, Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort,
		TrafficClass: path.TrafficClass, HopLimit: path.HopLimit, IDKnown: true})
	if drop != wire.Accepted {
		p.spoilt.Dropped[drop].Add(1)
	}
	return drop == wire.Accepted
}

func isFrameFault(err error) bool {
	var f *nic.FrameFault
	return errors.As(err, &f)
}
