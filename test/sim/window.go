package sim

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// window is a memory window of an end: a key of its own to the memory that the peer may use. The peer learns of it when
// its bind has completed, and uses it beside the key of the region, until one of both ends it.
type window struct {
	mw      *nic.MW
	typ     ib.MWType
	handle  uint32
	state   windowState
	key     ib.RKey
	base    uint64 // by which the peer names its first byte
	users   int    // requests of the peer that use it and have not ended
	readers int    // of these, READs
}

type windowState uint8

const (
	free    windowState = iota
	bound               // the peer may use it
	leaving             // a request that binds or invalidates it is under way
)

// createWindows makes the windows of an end.
func (e *endpoint) createWindows() {
	for range e.side.Windows {
		v := &window{typ: oneOf(e.app.dice, ib.MWType1, ib.MWType2, ib.MWType2), handle: e.app.handle()}
		v.mw = must(e.app.w, func() (*nic.MW, error) { return e.app.ctx.AllocMW(e.app.pd, v.typ, v.handle) })
		e.windows = append(e.windows, v)
		e.app.windows = append(e.app.windows, v)
	}
}

// handle is a name that no window had.
func (a *application) handle() uint32 {
	a.handles++
	return a.handles
}

// pickWindow returns one of the windows of an end for which a condition holds, nil if there is none.
func (e *endpoint) pickWindow(fits func(*window) bool) *window {
	if len(e.windows) == 0 {
		return nil
	}
	at := e.app.dice.below(len(e.windows))
	for i := range e.windows {
		if v := e.windows[(at+i)%len(e.windows)]; fits(v) {
			return v
		}
	}
	return nil
}

// key returns how a request names a place in the memory of the peer: by its region, or by a window.
func (e *endpoint) key(r *request, off int) (addr uint64, key ib.RKey) {
	t := e.peer.target
	v := e.peer.pickWindow(func(v *window) bool { return v.state == bound })
	if v == nil || e.app.dice.chance(300) {
		return t.base + uint64(off), t.mr.RKey()
	}
	r.window = v
	e.app.w.census["uses of a window"]++
	v.users++
	if r.op == ib.WRRDMARead {
		v.readers++
	}
	return v.base + uint64(off), v.key
}

// settle is what the good end of a request does to windows. That of a SEND WITH INVALIDATE is the peer's to tell, by the
// completion of the receive.
func (r *request) settle() {
	if v := r.window; v != nil {
		v.users--
		if r.op == ib.WRRDMARead {
			v.readers--
		}
	}
	if r.begun != nil {
		r.begun.state = bound
	}
	if r.ended != nil && r.isLocal() {
		r.ended.state = free
	}
}
