package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/softnic/softnicd/ib"
)

// AsyncEvent is something that happened without being asked for. Of QP, CQ, SRQ and Port the one is set that Type concerns.
type AsyncEvent struct {
	Type ib.EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port uint8
}

// AsyncEvent waits for the next asynchronous event. Events of objects that were destroyed meanwhile are skipped, so there
// is nothing to acknowledge. After the daemon has gone, and what it had said before was taken, it returns ErrDeviceFatal.
func (c *Context) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	return c.events.get(ctx, c, nil)
}

// asyncQueue hands out events to whom they concern: those of a completion queue with a handler to the handler. One of
// those who wait reads the socket for all.
type asyncQueue struct {
	mu      sync.Mutex
	ready   []AsyncEvent  // read and not taken, oldest first
	claimed map[*CQ]int   // by how many handlers
	reading bool          // somebody reads the socket
	wake    chan struct{} // closed when others should look again; nil if nobody waits
}

// claim says that there is a handler for the events of a queue, or one less.
func (a *asyncQueue) claim(q *CQ, change int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claimed == nil {
		a.claimed = map[*CQ]int{}
	}
	if a.claimed[q] += change; a.claimed[q] == 0 {
		delete(a.claimed, q)
	}
	a.broadcast()
}

// get waits for an event: of want, or, if that is nil, one for which there is no handler.
func (a *asyncQueue) get(ctx context.Context, c *Context, want *CQ) (AsyncEvent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if e, ok := a.take(want); ok {
			return e, nil
		}
		if want != nil && want.closed.Load() {
			return AsyncEvent{}, ErrClosed
		}
		var err error
		if !a.reading {
			err = a.read(ctx, c)
		} else {
			err = a.wait(ctx)
		}
		if err != nil && !errors.Is(err, errKicked) {
			if e, ok := a.take(want); ok {
				return e, nil
			}
			return AsyncEvent{}, err
		}
	}
}

func (a *asyncQueue) take(want *CQ) (AsyncEvent, bool) {
	for i := 0; i < len(a.ready); i++ {
		e := a.ready[i]
		gone := e.CQ != nil && e.CQ.closed.Load() || e.QP != nil && e.QP.closed.Load() ||
			e.SRQ != nil && e.SRQ.closed.Load()
		if !gone && e.CQ != want && (want != nil || a.claimed[e.CQ] > 0) {
			continue
		}
		a.ready = append(a.ready[:i], a.ready[i+1:]...)
		if !gone {
			return e, true
		}
		i--
	}
	return AsyncEvent{}, false
}

// read reads one event for everybody. a.mu is given up meanwhile.
func (a *asyncQueue) read(ctx context.Context, c *Context) error {
	a.reading = true
	a.mu.Unlock()
	var m [16]byte
	err := c.async.read(ctx, m[:])
	var e AsyncEvent
	found := false
	if err == nil {
		kind := ib.EventType(binary.LittleEndian.Uint32(m[0:]))
		handle := binary.LittleEndian.Uint32(m[4:])
		e, found = c.resolve(kind, handle, binary.LittleEndian.Uint64(m[8:]))
	}
	a.mu.Lock()
	a.reading = false
	if found {
		a.ready = append(a.ready, e)
	}
	a.broadcast() // somebody else reads now, or has an event
	return err
}

// wait waits until the one who reads has something for somebody. a.mu is given up meanwhile.
func (a *asyncQueue) wait(ctx context.Context) error {
	if a.wake == nil {
		a.wake = make(chan struct{})
	}
	wake := a.wake
	a.mu.Unlock()
	defer a.mu.Lock()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget wakes who waits for events of a queue that is closed.
func (a *asyncQueue) forget(q *CQ, c *Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claimed[q] == 0 {
		return
	}
	a.broadcast()
	if a.reading {
		c.async.kick()
	}
}

func (a *asyncQueue) broadcast() {
	if a.wake != nil {
		close(a.wake)
		a.wake = nil
	}
}

// resolve finds the object of an event.
func (c *Context) resolve(kind ib.EventType, handle uint32, cookie uint64) (AsyncEvent, bool) {
	e := AsyncEvent{Type: kind}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case ib.EventCQErr:
		e.CQ = c.cqs[cookie]
		return e, e.CQ != nil
	case ib.EventSRQErr, ib.EventSRQLimitReached:
		e.SRQ = c.srqs[cookie]
		return e, e.SRQ != nil
	case ib.EventDeviceFatal:
	case ib.EventPortActive, ib.EventPortErr, ib.EventLIDChange, ib.EventPKeyChange, ib.EventSMChange,
		ib.EventClientReregister, ib.EventGIDChange:
		e.Port = uint8(handle)
	default:
		e.QP = c.qps[cookie]
		return e, e.QP != nil
	}
	return e, true
}

// AsyncFD returns the descriptor that is readable when an asynchronous event waits, for a loop that waits for other things
// too. Only AsyncEvent and CQ.HandleAsync read it.
func (c *Context) AsyncFD() int { return c.async.fd }
