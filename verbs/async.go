package verbs

import (
	"context"
	"encoding/binary"

	"github.com/softnic/softnicd/ib"
)

// AsyncEvent is something that happened without being asked for. Of QP, CQ and Port the one is set that Type concerns.
type AsyncEvent struct {
	Type ib.EventType
	QP   *QP
	CQ   *CQ
	Port uint8
}

// AsyncEvent waits for the next asynchronous event. Events of objects that were destroyed meanwhile are skipped, so there
// is nothing to acknowledge. After the daemon has gone, and what it had said before was taken, it returns ErrDeviceFatal.
func (c *Context) AsyncEvent(ctx context.Context) (AsyncEvent, error) {
	for {
		var m [16]byte
		if err := c.async.read(ctx, m[:]); err != nil {
			return AsyncEvent{}, err
		}
		kind := ib.EventType(binary.LittleEndian.Uint32(m[0:]))
		handle := binary.LittleEndian.Uint32(m[4:])
		if e, ok := c.resolve(kind, handle, binary.LittleEndian.Uint64(m[8:])); ok {
			return e, nil
		}
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
// too. Only AsyncEvent reads it.
func (c *Context) AsyncFD() int { return c.async.fd }
