package verbs

import (
	"context"
	"fmt"
	"syscall"
)

// HandleEvents calls f for each completion event of the queue, as the kernel calls a comp_handler, until ctx ends or the
// queue is closed; then it returns the reason. It runs in the caller's goroutine, and so does f: when it has returned f is
// not called again.
//
// Each ReqNotify makes one event and so one call. It is for f to arm again and to poll afterwards until nothing is left:
//
//	go q.HandleEvents(ctx, func(q *verbs.CQ) {
//		for again := true; again; {
//			... poll until nothing is left ...
//			again, _ = q.ReqNotify(false)
//		}
//	})
//	q.ReqNotify(false)
//
// Meanwhile CompChannel.GetEvent does not return events of the queue, and Wait is not for it. CQ.Close waits until f has
// returned, so f does not close the queue.
func (q *CQ) HandleEvents(ctx context.Context, f func(*CQ)) error {
	ch := q.channel
	if ch == nil {
		return fmt.Errorf("handle events of a cq: the queue was made without a completion channel: %w", syscall.EINVAL)
	}
	ch.mu.Lock()
	q.waiters++
	ch.mu.Unlock()
	defer func() {
		ch.mu.Lock()
		q.waiters--
		ch.broadcast() // an event that came meanwhile is somebody else's
		ch.mu.Unlock()
	}()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := ch.get(ctx, q, true); err != nil {
			return err
		}
		q.handled(f)
	}
}

// handled runs f for an event, which counts as acknowledged afterwards.
func (q *CQ) handled(f func(*CQ)) {
	defer q.AckEvents(1)
	f(q)
}

// HandleAsync calls f for each asynchronous event of the queue, as the kernel calls an event_handler, until ctx ends or the
// queue is closed; then it returns the reason. There is one such event: CQ_ERR. Meanwhile Context.AsyncEvent does not
// return events of the queue.
func (q *CQ) HandleAsync(ctx context.Context, f func(AsyncEvent)) error {
	a := &q.ctx.events
	a.claim(q, +1)
	defer a.claim(q, -1)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := a.get(ctx, q.ctx, q)
		if err != nil {
			return err
		}
		f(e)
	}
}
