package cq

import (
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
)

// moderator decides when an arming fires. Without moderation it fires at the first entry it waits for. With it the event
// is held from that entry on until count entries were posted or the period is over, whichever is first.
type moderator struct {
	fired  uint32 // sequence of the arming that fired last; the word in the block is only for the application
	count  uint32
	period time.Duration
	events uint64

	held     uint32 // entries since the one that made an event due, that one included
	sequence uint32 // of the arming that waits while held > 0
}

// SetModeration holds events back until count entries were posted or period microseconds have passed, whichever is first.
// With count 0 only the period counts, with period 0 only the count, and 0, 0 turns moderation off. With period 0 a
// solicited entry or an error is not held at all, since nothing would end its wait; otherwise it waits no longer than the
// period. An event that is held when moderation is turned off is sent. It touches the block.
func (q *Queue) SetModeration(count, period uint32) {
	if q.moderate(count, period) {
		q.notifier.Notify(q.cookie, q.handle)
	}
}

func (q *Queue) moderate(count, period uint32) (event bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &q.moderator
	m.count, m.period = count, time.Duration(period)*time.Microsecond
	// An event that waits by the old rule might wait for ever by the new one.
	if m.held > 0 {
		q.fire(m.sequence)
		return true
	}
	return false
}

// Moderation returns what SetModeration set.
func (q *Queue) Moderation() (count, period uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.moderator.count, uint32(q.moderator.period / time.Microsecond)
}

// Deadline returns when Expire has something to do: clock.Never, unless an event is held back.
func (q *Queue) Deadline() clock.Time { return clock.Time(q.deadline.Load()) }

// Expire sends the event whose period is over at now. It touches the block then.
func (q *Queue) Expire(now clock.Time) {
	if q.Deadline().After(now) {
		return
	}
	if q.expire(now) {
		q.notifier.Notify(q.cookie, q.handle)
	}
}

func (q *Queue) expire(now clock.Time) (event bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.moderator.held == 0 || q.Deadline().After(now) {
		return false // another goroutine was first
	}
	q.fire(q.moderator.sequence)
	return true
}

// Events returns how many events the queue has sent.
func (q *Queue) Events() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.moderator.events
}

// Armed returns what the application waits for, as it says. It touches the block.
func (q *Queue) Armed() abi.ArmKind {
	q.mu.Lock()
	defer q.mu.Unlock()
	seq, kind := abi.SplitArm(q.block.Arm())
	if seq == q.moderator.fired || kind > abi.ArmSolicited {
		return abi.ArmNone
	}
	return kind
}

// eventDue looks at the arm word, after an entry was published, and reports whether an event is to be sent now.
func (q *Queue) eventDue(now clock.Time, solicited bool) bool {
	q.touch(wordArm)
	seq, kind := abi.SplitArm(q.block.Arm())
	m := &q.moderator
	if seq == m.fired {
		return false // one event for one arming, whatever the application writes in the word that says so
	}
	switch kind {
	case abi.ArmNext:
	case abi.ArmSolicited:
		if !solicited && m.held == 0 {
			return false
		}
	default:
		return false
	}
	m.held++
	m.sequence = seq
	if m.count != 0 || m.period != 0 {
		due := m.count != 0 && m.held >= m.count ||
			m.period == 0 && solicited ||
			!q.Deadline().After(now)
		if !due {
			if m.held == 1 && m.period != 0 {
				q.deadline.Store(int64(now.Add(m.period)))
			}
			return false
		}
	}
	q.fire(seq)
	return true
}

// fire records that an arming has had its event. The application reads the word before it arms again, so it is written
// before the event is sent.
func (q *Queue) fire(sequence uint32) {
	m := &q.moderator
	m.fired = sequence
	m.held = 0
	m.events++
	if q.Deadline() != clock.Never {
		q.deadline.Store(int64(clock.Never))
	}
	q.touch(wordFired)
	q.block.SetFired(sequence)
}
