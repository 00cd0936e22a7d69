package nic

import (
	"time"

	"github.com/softnic/softnicd/clock"
)

// eager is what a shard has learned about the application that is told of a queue pair's messages: whether it has another
// processor, so that answers come while the shard looks, or waits for that of the shard, which has to be yielded first. To yield in
// vain costs two changes of the process, to look in vain the whole time of looking. The two ends of a connection inside the device
// may differ in that.
type eager struct {
	misses uint8 // in a row
	rest   uint8 // how many messages more it is not tried for
}

const (
	// eagerMisses in a row are enough to rest.
	eagerMisses = 3
	eagerRest   = 64
)

// tries reports whether looking is worth it.
func (e *eager) tries() bool {
	if e.rest > 0 {
		e.rest--
		return false
	}
	return true
}

// learn is told whether an answer came.
func (e *eager) learn(came bool) {
	if came {
		e.misses = 0
		return
	}
	if e.misses = min(e.misses+1, eagerMisses); e.misses == eagerMisses {
		e.rest = eagerRest // and one more miss is enough for another rest
	}
}

// replyTime is how long a shard looks for a reply before it yields. It comes after four changes of the process where they take
// long, two of them on the peer's side, and two datagrams.
const replyTime = 32 * time.Microsecond

// hope is a shard's for the reply to what an application has just answered. The application waits for that reply too and needs no
// processor until it comes, so that to yield would be two changes of the process in vain, and the reply might come between them.
// It is others who may need the processor, the peer's shard or its application, and then no reply comes: that is learned.
type hope struct {
	until clock.Time // 0 for no hope
	eager eager
}

// begin is called when the answer was sent.
func (h *hope) begin(now clock.Time) {
	if h.eager.tries() {
		h.until = now.Add(replyTime)
	}
}

// lasts reports whether another look is worth it.
func (h *hope) lasts(now clock.Time) bool {
	if h.until.After(now) {
		return true
	}
	h.end(false)
	return false
}

// end is told whether the reply came. An acknowledgement is none.
func (h *hope) end(came bool) {
	if h.until != 0 {
		h.until = 0
		h.eager.learn(came)
	}
}
