package nic

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Whatever an engine does, it does to its queue pair: a panic in one takes this queue pair to the error state, a second
// one in the same context ends the context, and so does a fault of the memory that the context shares with the device
// (its rings, its doorbell page). The shard and everybody else go on.

// The engine's calls, each with a net below. A call that fell returns nothing.

func (s *shard) engineReceive(now clock.Time, q *QP, p *wire.Packet) (active bool) {
	defer s.contain(now, q)
	return q.engine.Receive(now, p)
}

func (s *shard) engineReceiveRun(now clock.Time, q *QP, p *wire.Packet) (active, taken bool) {
	defer s.contain(now, q)
	e, ok := q.engine.(transport.RunReceiver)
	if !ok {
		return false, false
	}
	return e.ReceiveRun(now, p)
}

func (s *shard) engineTransmit(now clock.Time, q *QP, budget int) (bytes int, more bool) {
	defer s.contain(now, q)
	return q.engine.Transmit(now, s.burst, budget)
}

func (s *shard) engineExpire(now clock.Time, q *QP) (active bool) {
	defer s.contain(now, q)
	return q.engine.Expire(now)
}

func (s *shard) engineModify(now clock.Time, q *QP, mask ib.QPAttrMask) (active bool) {
	defer s.contain(now, q)
	return q.engine.Modify(now, &q.attr, mask, q.path)
}

func (s *shard) engineFaulted(now clock.Time, q *QP, cookie uint64) (active bool) {
	defer s.contain(now, q)
	return q.engine.Faulted(now, cookie)
}

func (s *shard) engineQuery(now clock.Time, q *QP, attr *ib.QPAttr) {
	defer s.contain(now, q)
	q.engine.Query(attr)
}

func (s *shard) engineAbort(now clock.Time, q *QP, status ib.WCStatus, vendor transport.VendorErr) (active bool) {
	defer s.contain(now, q)
	a, ok := q.engine.(transport.Aborter)
	return ok && q.state != ib.StateReset && a.Abort(now, status, vendor)
}

func (s *shard) engineDeadline(now clock.Time, q *QP) (t clock.Time) {
	t = never
	defer s.contain(now, q)
	return q.engine.Deadline()
}

// contain is deferred around everything that concerns one queue pair.
func (s *shard) contain(now clock.Time, q *QP) {
	if r := recover(); r != nil {
		s.fell(now, q, r)
	}
}

// fell deals with a panic in the handling of q.
func (s *shard) fell(now clock.Time, q *QP, r any) {
	// Frames that were being made are not whole.
	for s.burst.Len() > s.settled {
		s.burst.Undo()
	}
	c := q.ctx
	if addr, ok := faultAddress(r); ok {
		s.kill(c, fmt.Sprintf("the memory it shares is gone at %#x", addr))
		return
	}
	s.dev.log.Error("internal error: panic in the handling of a queue pair", "qpn", q.qpn, "state", q.state,
		"panic", r, "stack", string(debug.Stack()))
	if c.panics.Add(1) > 1 {
		s.abandon(now, c)
		return
	}
	// Who waits for this request learns that neither his peer nor he is to blame.
	if s.engineAbort(now, q, ib.WCGeneralErr, transport.VendorInternalPanic) {
		s.after(q, true)
	}
	s.fail(q, ib.EventQPFatal)
}

// abandon ends a context in whose service the device has failed twice. It is a fatal error of the device as far as this
// context goes: what its queue pairs were doing ends with FATAL_ERR, what waits behind is flushed, and then nothing of it
// is touched again.
func (s *shard) abandon(now clock.Time, c *Context) {
	if c.abandoned.Swap(true) {
		return // it has failed once more on the way
	}
	s.others(func(o *shard, now clock.Time) { o.abort(now, c) })
	s.abort(now, c)
	s.kill(c, "a second internal error")
}

// abort ends what the queue pairs of an abandoned context were doing on this shard.
func (s *shard) abort(now clock.Time, c *Context) {
	for _, q := range c.parts[s.index].slots {
		if q == nil {
			continue
		}
		s.engineAbort(now, q, ib.WCFatalErr, transport.VendorInternalPanic)
		for range flushRounds {
			_, more := s.engineTransmit(now, q, burstBytes)
			s.settled = s.burst.Len()
			if !more {
				break
			}
		}
	}
}

// flushRounds are enough to flush the longest queues.
const flushRounds = 64

// fail takes a queue pair to the error state and raises e. What is posted is flushed by its engine.
func (s *shard) fail(q *QP, e ib.EventType) {
	if q.dead || q.state == ib.StateReset {
		return
	}
	q.fatal = q.fatal || e == ib.EventQPFatal // at once, so that failUsers does not raise it too
	if q.state != ib.StateErr {
		q.attr.State, q.attr.CurState = ib.StateErr, ib.StateErr
		s.setState(q, ib.StateErr)
		active := s.engineModify(s.now, q, ib.QPAttrState)
		s.after(q, active)
	}
	if e != noEvent && !q.dead {
		q.ctx.event(e, q.handle, q.cookie)
	}
}

const noEvent = ^ib.EventType(0)

// kill ends a context: none of its queue pairs is touched again, and its application hears DEVICE_FATAL. The objects stay
// until the application closes them.
func (s *shard) kill(c *Context, why string) {
	if c.dead.Swap(true) {
		return
	}
	s.silence(c)
	s.others(func(o *shard, _ clock.Time) { o.silence(c) })
	s.dev.log.Error("a context has failed: "+why, "tenant", c.cfg.Tenant)
	c.event(ib.EventDeviceFatal, 0, 0)
}

// silence ends the queue pairs of a failed context on this shard.
func (s *shard) silence(c *Context) {
	for _, q := range c.parts[s.index].slots {
		if q != nil {
			s.hide(q)
			q.dead = true
			q.state = ib.StateErr
			_ = guarded(func() { q.block.SetState(ib.StateErr) })
		}
	}
}

// setState publishes a state, which touches the ring.
func (s *shard) setState(q *QP, state ib.QPState) {
	q.state = state
	defer s.contain(s.now, q)
	q.block.SetState(state)
}

// faultAddress returns the address of a memory fault, given what recover returned. A nil dereference is none: the
// runtime gives it no address.
func faultAddress(r any) (uintptr, bool) {
	e, ok := r.(runtime.Error)
	if !ok {
		return 0, false
	}
	a, ok := e.(interface{ Addr() uintptr })
	if !ok {
		return 0, false
	}
	return a.Addr(), true
}

// guarded runs f, which touches memory of an application, and returns an error that wraps EFAULT if it is not there.
func guarded(f func()) error {
	if err := dma.Guarded(f); err != nil {
		return fmt.Errorf("%w: %w", err, syscall.EFAULT)
	}
	return nil
}
