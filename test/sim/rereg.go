package sim

import (
	"errors"
	"syscall"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// A region that nobody uses just now is registered again under the keys that it has: at another address, with other rights,
// in another protection domain. With less than it is there for it is away for a while, and nobody who is honest uses it:
// what comes nevertheless, a packet that was sent twice or forged, changes nothing in it, and is no reason for a queue pair
// to fail.

// rights are what regions of connections are registered with.
const (
	ownRights    = ib.AccessLocalWrite
	remoteRights = ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessFlushGlobal | ib.AccessMWBind
)

func (e *endpoint) rights(a *area) ib.AccessFlags {
	if a == e.target {
		return ownRights | remoteRights
	}
	return ownRights
}

// absence is a region that is away.
type absence struct {
	area *area
	back clock.Time
}

// reregister changes the registration of an area that nobody uses, if there is one.
func (e *endpoint) reregister(d *dice) bool {
	a := oneOf(d, e.arena.areas...)
	if !e.conn.isLively() || e.away != nil || !e.isIdle(a) {
		return false
	}
	w := e.app.w
	flags := ib.ReregFlags(d.between(1, 7))
	base := a.base
	if flags&ib.ReregTranslation != 0 {
		base = a.newBase(d)
	}
	cfg := nic.MRConfig{Region: e.arena.region, Offset: e.arena.offset(a), Base: base, Length: uint64(len(a.mem)), Access: ownRights}
	if d.chance(300) {
		cfg.Access = 0
	}
	err := e.app.ctx.ReregMR(a.mr, flags, e.app.otherPD(), cfg)
	e.app.node.wake(w.now + 1)
	if a == e.target && e.hasBound() {
		if !errors.Is(err, syscall.EBUSY) {
			w.failf("%s: a region with windows could be registered again: %v", e.name, err)
		}
		w.census["regions that windows are bound to"]++
		return true
	}
	if err != nil {
		w.failf("%s: %v", e.name, err)
	}
	a.base = base
	w.census["regions registered again"]++
	w.logf(e.name, "registers %d bytes again, %v", len(a.mem), flags)
	if flags != ib.ReregTranslation {
		e.away = &absence{a, w.now.Add(1 + d.upTo(oneOf(d, 5*time.Microsecond, 500*time.Microsecond)))}
		e.app.wake(e.away.back)
	}
	return true
}

// comeBack makes a region what it is to be, when its time has come.
func (e *endpoint) comeBack() {
	w := e.app.w
	if e.away == nil || w.now.Before(e.away.back) {
		return
	}
	a := e.away.area
	e.away = nil
	if err := e.app.ctx.ReregMR(a.mr, ib.ReregAccess|ib.ReregPD, e.app.pd, nic.MRConfig{Access: e.rights(a)}); err != nil {
		w.failf("%s: %v", e.name, err)
	}
	if at := a.differs(0, len(a.mem)); at >= 0 {
		w.failf("%s: byte %d of a region was changed while it was away", e.name, at)
	}
	e.app.node.wake(w.now + 1)
	for _, x := range e.conn.ends {
		x.app.wake(w.now + 1)
	}
	w.logf(e.name, "registers %d bytes as they were", len(a.mem))
}

// isIdle reports whether nothing that is posted uses an area.
func (e *endpoint) isIdle(a *area) bool {
	if e.conn.isAway() {
		return false
	}
	for _, v := range e.windows {
		if v.state == leaving {
			return false
		}
	}
	switch a {
	case e.source:
		return e.posted == e.ended
	case e.sink:
		return e.ready == e.taken
	}
	return e.peer.posted == e.peer.ended
}

func (e *endpoint) hasBound() bool {
	for _, v := range e.windows {
		if v.state == bound {
			return true
		}
	}
	return false
}

// isAway reports whether an area of one of the ends is.
func (c *connection) isAway() bool { return c.ends[0].away != nil || c.ends[1].away != nil }

// otherPD is a protection domain in which there is nothing else.
func (a *application) otherPD() *nic.PD {
	if a.pd2 == nil {
		a.pd2 = must(a.w, a.ctx.AllocPD)
	}
	return a.pd2
}
