package verbs

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// spinTime is how long Wait polls before it sleeps: about what falling asleep and being woken costs.
const spinTime = 50 * time.Microsecond

// Wait takes up to len(wc) completions, as Poll does, and waits for the first one: it polls for some 50 microseconds, then
// asks for an event, polls once more, and sleeps until the event comes. No wake-up is lost and no processor is burnt. The
// queue needs a completion channel. Several goroutines may wait for one queue, and queues that share a channel may each
// be waited for.
//
// Events that Wait uses are its own: they need no acknowledgement, and while a goroutine waits GetEvent does not return
// events of the queue.
func (q *CQ) Wait(ctx context.Context, wc []WC) (int, error) {
	if q.channel == nil {
		return 0, fmt.Errorf("wait for cq: the queue was made without a completion channel: %w", syscall.EINVAL)
	}
	if len(wc) == 0 {
		return 0, nil
	}
	for {
		n, err := q.spin(ctx, wc)
		if n == 0 && err == nil {
			var missed bool
			if missed, err = q.ReqNotify(false); err == nil && !missed {
				if _, err = q.channel.get(ctx, q, false); err == nil {
					continue
				}
			}
		}
		if n > 0 || err != nil {
			// Others may wait for what is left, and who was woken is to arm again for them.
			q.channel.nudge(q)
		}
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return q.last(wc, err)
		}
	}
}

// spin polls for a while.
func (q *CQ) spin(ctx context.Context, wc []WC) (int, error) {
	var end time.Time
	for i := 0; ; i++ {
		n, err := q.Poll(wc)
		if n > 0 || err != nil {
			return n, err
		}
		if i == freePolls {
			end = time.Now().Add(spinTime)
		}
		if i > freePolls && !time.Now().Before(end) {
			return 0, ctx.Err()
		}
	}
}

// last looks for completions once more: what came before the daemon died, or just when the context ended, is not held
// back.
func (q *CQ) last(wc []WC, err error) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return 0, err
	}
	if n := q.take(wc); n > 0 {
		return n, nil
	}
	return 0, err
}
