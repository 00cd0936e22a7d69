package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
)

// retryState is what the requester knows about losses.
type retryState struct {
	ackDeadline clock.Time // when a missing acknowledgement counts as lost; Never while nothing is missed
	rnrDeadline clock.Time // until when the peer asked us to wait; Never if it did not
	left        uint8      // retries left of retry_cnt
	rnrLeft     uint8      // of rnr_retry
	// recovering says that the packets behind the hole at una are being sent again: what else is heard of this hole
	// was caused by the packets sent before, and starts nothing (IBA 9.7.5.1.1).
	recovering bool
	// heard is how far beyond una responses have come since its packet went out again.
	heard uint32
}

// rnrForEver is the value of rnr_retry that never runs out (IBA 9.7.5.2.8). retry_cnt has no such value: 7 means 7.
const rnrForEver = 7

func (r *requester) reloadRetries() {
	r.retry.left = r.e.attr.RetryCnt
	r.retry.rnrLeft = r.e.attr.RNRRetry
}

func (r *requester) stopTimers() {
	r.e.cfg.Outstanding.Clear()
	r.retry.ackDeadline, r.retry.rnrDeadline = clock.Never, clock.Never
	r.probe.cancel()
}

func (r *requester) deadline() clock.Time {
	return min(r.retry.ackDeadline, r.retry.rnrDeadline, r.probe.deadline)
}

// expire fires the timers that are due.
func (r *requester) expire(now clock.Time) bool {
	if !r.retry.rnrDeadline.After(now) {
		r.retry.rnrDeadline = clock.Never
		return true
	}
	if r.retry.ackDeadline.After(now) {
		if r.probe.deadline.After(now) {
			return false
		}
		r.ask(now)
		return true
	}
	r.e.cfg.Counters.LocalAckTimeoutErr++
	// What was sent since the last hole may be lost as well, so the next word about it counts again.
	r.retry.recovering = false
	r.trace(now, trace.Timeout, r.una)
	r.tryAgain(now, transport.VendorTimeout)
	return true
}

// armAckTimer starts the local ACK timer unless it runs (IBA 9.7.6.1.3). The specification lets it fire anywhere between
// T and 4T; we take T, or the floor of a host that may stall for longer than that.
func (r *requester) armAckTimer(now clock.Time) {
	if r.retry.ackDeadline == clock.Never {
		r.restartAckTimer(now)
	}
}

func (r *requester) restartAckTimer(now clock.Time) {
	r.retry.ackDeadline = clock.Never
	if t := ib.AckTimeout(r.e.attr.Timeout); t != 0 {
		r.retry.ackDeadline = now.Add(max(t, r.e.cfg.Limits.AckFloor))
	}
}

// waitsForReceiver says that an RNR NAK forbids sending.
func (r *requester) waitsForReceiver() bool { return r.retry.rnrDeadline != clock.Never }

// notReady is an RNR NAK for the packet at una. It has a counter of its own, is no sign of loss, and while we wait the
// ACK timer stands still (IBA 9.7.5.2.8).
func (r *requester) notReady(now clock.Time, code uint8) {
	if r.waitsForReceiver() {
		return
	}
	r.e.cfg.Counters.RNRNakRetryErr++
	if r.retry.rnrLeft == 0 {
		r.e.cfg.Counters.RNRRetryExceededErr++
		r.fail(now, ib.WCRNRRetryExcErr, transport.VendorRNR)
		return
	}
	if r.retry.rnrLeft != rnrForEver {
		r.retry.rnrLeft--
	}
	// The packet arrived, so a hole that was there is closed.
	r.retry.recovering = false
	r.goBack()
	r.retry.rnrDeadline = now.Add(ib.RNRTimer(code))
	r.trace(now, trace.RNRWait, r.una)
}

// lost says that the packet at una is missing at the peer, or its response here. One hole is repaired once.
func (r *requester) lost(now clock.Time, cause transport.VendorErr) {
	if r.repairs() {
		return
	}
	r.retry.recovering = true
	r.tryAgain(now, cause)
}

// repairs says that the hole at una is being dealt with: its packets go out again, or will when the cursor gets its turn or
// the receiver is ready.
func (r *requester) repairs() bool { return r.retry.recovering || r.atUna() }

// atUna says that nothing was sent since we went back: the cursor still stands at the oldest packet. It is asked only
// while something is outstanding.
func (r *requester) atUna() bool {
	w := r.q.at(r.q.head)
	return r.cursor.position == r.q.head && w.started && r.cursor.packet == distance(w.first, r.una)
}

// missingResponse is an implied NAK: something behind a READ or atomic was answered, and it was not (IBA 9.7.5.1.1).
func (r *requester) missingResponse(now clock.Time) {
	if !r.repairs() {
		r.e.cfg.Counters.ImpliedNakSeqErr++
	}
	r.lost(now, transport.VendorSequence)
}

// busy says that the response psn came from behind the hole at una. A responder turns to a repeated READ when it is done with
// the one before, which can take longer than any timeout: rxe sends all that is left of it, and all of it again for each
// repetition. So while it gets on with that, it is neither gone nor silent. It gets on as long as the numbers rise, which they do
// not for ever.
func (r *requester) busy(now clock.Time, psn ib.PSN) {
	far := distance(r.una, psn)
	if r.retry.ackDeadline == clock.Never || far <= r.retry.heard {
		return
	}
	r.retry.heard = far
	r.restartAckTimer(now)
	r.armProbe(now)
}

// tryAgain uses up a retry: retry_cnt counts how often we may go back without progress (IBA 9.9.2.4.2).
func (r *requester) tryAgain(now clock.Time, cause transport.VendorErr) {
	if r.retry.left == 0 {
		r.e.cfg.Counters.RetryExceededErr++
		r.fail(now, ib.WCRetryExcErr, cause)
		return
	}
	r.retry.left--
	r.window.shrink()
	r.goBack()
}

// goBack moves the cursor to una. The oldest request owns it: what is acknowledged has completed. The timer is started
// again with the first packet that goes out.
func (r *requester) goBack() {
	r.e.cfg.Outstanding.Clear()
	r.probe.cancel()
	r.retry.ackDeadline, r.retry.heard = clock.Never, 0
	r.cursor = cursor{position: r.q.head}
	if r.q.empty() {
		return
	}
	w := r.q.at(r.q.head)
	if w.started {
		r.cursor.packet = distance(w.first, r.una)
		w.resumed = w.resumed || w.answered() && r.cursor.packet > 0
	}
}
