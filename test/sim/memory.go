package sim

import (
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// faultyRegion is memory of which a part may be gone for a while, as when an application has unmapped it or a page could
// not be brought in.
type faultyRegion struct {
	dma.Region
	owner    *endpoint // nil: its memory is always there
	from, to uint64    // what is gone
	until    clock.Time
}

// gone reports whether some of n bytes at off are not there. Then the connection has a reason to end.
func (r *faultyRegion) gone(off uint64, n int) bool {
	e := r.owner
	if e == nil || !e.app.w.now.Before(r.until) || off >= r.to || off+uint64(n) <= r.from {
		return false
	}
	if !e.faulty {
		e.app.w.census["memory faults that were met"]++
		e.app.w.logf(e.name, "memory that is gone is wanted")
	}
	e.faulty = true
	return true
}

func (r *faultyRegion) fault() error { return &dma.Fault{Mem: r, Err: syscall.EFAULT} }

// Bytes implements [wire.Memory].
func (r *faultyRegion) Bytes(off uint64, n int) []byte {
	if r.gone(off, n) {
		return nil
	}
	return r.Region.Bytes(off, n)
}

// Read implements [wire.Memory].
func (r *faultyRegion) Read(dst []byte, off uint64) error {
	if r.gone(off, len(dst)) {
		return r.fault()
	}
	return r.Region.Read(dst, off)
}

// Write implements [wire.Memory].
func (r *faultyRegion) Write(src []byte, off uint64) error {
	if r.gone(off, len(src)) {
		return r.fault()
	}
	return r.Region.Write(src, off)
}

// Atomic implements [dma.Region].
func (r *faultyRegion) Atomic(off uint64, op dma.AtomicOp, operand, compare uint64) (uint64, error) {
	if r.gone(off, 8) {
		return 0, r.fault()
	}
	return r.Region.Atomic(off, op, operand, compare)
}

// vanish lets the memory of an area be gone for a while.
func (t *trouble) vanish(e *endpoint) {
	if e.app.gone() || e.conn.broken {
		return
	}
	a := oneOf(t.dice, e.arena.areas...)
	r := e.arena.region
	r.owner, r.from, r.until = e, e.arena.offset(a), t.w.now.Add(t.dice.upTo(t.w.plan.roundTrip()))
	r.to = r.from + uint64(len(a.mem))
	t.w.census["memory faults"]++
	t.w.logf(e.name, "%d bytes of its memory are gone until %.3f us", len(a.mem), float64(r.until)/1e3)
}

// isFaulty reports whether a status tells of memory that is gone: the owner hears what is wrong with its own memory, the
// peer that something is wrong with the owner, or nothing any more.
func (e *endpoint) isFaulty(s ib.WCStatus) bool {
	switch s {
	case ib.WCLocProtErr:
		return e.faulty
	case ib.WCRemOpErr, ib.WCRemAccessErr, ib.WCRetryExcErr:
		return e.peer.faulty
	case ib.WCWRFlushErr:
		return (e.faulty || e.peer.faulty) && e.state() == ib.StateErr
	}
	return false
}

// isFaulty reports whether an event tells of it: of a responder's memory. Then the connection is over for its owner, who
// may not have a request that would say so.
func (a *application) isFaulty(t ib.EventType, handle uint32) bool {
	if t != ib.EventQPAccessErr || int64(handle) >= int64(len(a.w.conns)) {
		return false
	}
	for _, e := range a.w.conns[handle].ends {
		if e.faulty && e.app == a {
			e.learns = a.w.now
			a.wake(a.w.now + 1)
			return true
		}
	}
	return false
}
