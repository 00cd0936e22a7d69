package nic

import (
	"time"

	"github.com/softnic/softnicd/clock"
)

const (
	// answerLooks is how often hearAnswer looks, half a microsecond apart, but for no longer than answerTime.
	answerLooks = 4
	answerTime  = 10 * time.Microsecond
	// eagerLooks is how often eagerly looks, for no longer than eagerTime: about as long as two changes of the process take where
	// they take long. An application that shares its processor with another that polls takes up to that long to notice.
	eagerLooks = 256
	eagerTime  = 9 * time.Microsecond
	// hush is how long the port is left alone when the answer came then: nothing else can come meanwhile, and who shares the
	// processor, the peer's shard perhaps, has it so much earlier.
	hush = 4 * time.Microsecond
	// replyTime is how long a shard looks for a reply before it yields. It comes after four changes of the process where they take
	// long, two of them on the peer's side, and two datagrams.
	replyTime = 32 * time.Microsecond
)

// hearAnswer gives an application that has just been told of a message a moment to answer it. The acknowledgement then leaves
// by the same system call as the answer, and in the same group if they have one length; it would be in the way otherwise, since
// a datagram costs the kernel 3 us. Nobody waits longer than that for an application that has nothing to say; and where others
// compute, who yields has lost the processor for milliseconds, and does it once at most. It reports whether the answer came, and
// whether without yielding.
func (s *shard) hearAnswer() (heard, swift bool) {
	begun := s.time()
	if s.eagerly() {
		return true, true
	}
	for range answerLooks {
		if s.doorbells(false) {
			return true, false
		}
		if s.time().Sub(begun) >= answerTime {
			break
		}
		s.moment()
	}
	return false, false
}

// eagerly looks for the answer of the application that was told of a message last, if it is one whose answers come so, and
// reports whether it came.
func (s *shard) eagerly() (came bool) {
	q := s.told
	if s.told = nil; q == nil || !q.eager.tries() {
		return false
	}
	begun := s.time()
	for i := 0; i < eagerLooks && !came && s.time().Sub(begun) < eagerTime; i++ {
		came = s.doorbells(false)
	}
	q.eager.learn(came)
	return came
}

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

// replyWait is a shard's wait, without yielding, for the reply to what an application has just answered. The application waits for
// it too and needs no processor until it comes, so that to yield would be two changes of the process in vain, and the reply might
// come between them. It is others who may need the processor, the peer's shard or its application, and then no reply comes: that is
// learned.
type replyWait struct {
	until clock.Time // 0: it does not wait
	eager eager
}

// begin is called when the answer was sent.
func (w *replyWait) begin(now clock.Time) {
	if w.eager.tries() {
		w.until = now.Add(replyTime)
	}
}

// lasts reports whether another look is worth it.
func (w *replyWait) lasts(now clock.Time) bool {
	if w.until.After(now) {
		return true
	}
	w.end(false)
	return false
}

// end is told whether the reply came. An acknowledgement is none.
func (w *replyWait) end(came bool) {
	if w.until != 0 {
		w.until = 0
		w.eager.learn(came)
	}
}
