package nic

import (
	"math/bits"

	"github.com/softnic/softnicd/clock"
)

// timers is a hierarchical timing wheel (Varghese and Lauck, scheme 7) of queue pairs by deadline: entering one, moving it
// and taking it out cost the same however many there are. Each queue pair is in it at most once and knows where, so a
// destroyed one is taken out: a timer can never fire for what is gone, or for a successor (CVE-2026-45910 was that).
//
// A slot of level 0 is one tick, of each level above the 64 of the level below. A queue pair is where its tick differs from
// the wheel's hand, in the highest digit of base 64 that does, and goes down level by level as the hand comes near. It never
// fires early, and less than a tick late.
//
// Deadlines mostly move later, with every acknowledgement. Those moves are not followed: the entry fires early, the
// engine finds nothing due, and is entered anew.
type timers struct {
	hand   uint64 // the tick up to which all slots are empty
	levels uint   // a bit for each level that has anybody
	used   [wheelLevels]uint64
	slots  [wheelLevels][1 << wheelDigit]*QP // first of a list
	n      int
}

const (
	wheelDigit  = 6
	wheelTick   = 10                                             // 1 << wheelTick ns: 1.024 us, a tenth of the shortest RNR timer
	wheelLevels = (63 - wheelTick + wheelDigit - 1) / wheelDigit // all times have a place
)

// timer is a queue pair's place in the wheel.
type timer struct {
	at         clock.Time
	slot       int16 // level and slot, -1 when not in it
	next, prev *QP   // the first of a list has no prev
}

// ticksUp returns the first tick that begins no sooner than t.
func ticksUp(t clock.Time) uint64 { return (uint64(max(t, 0)) + 1<<wheelTick - 1) >> wheelTick }

// set makes t the deadline of q. For [clock.Never] nothing is entered.
func (w *timers) set(q *QP, t clock.Time) {
	switch e := &q.timer; {
	case e.slot >= 0 && t >= e.at:
		// Later, or never: what is entered serves.
		return
	case e.slot >= 0:
		w.remove(q)
	case t == clock.Never:
		return
	}
	q.timer.at = t
	w.enter(q)
}

// enter puts q into the slot of its deadline, or of the hand if that is over.
func (w *timers) enter(q *QP) {
	tick := max(ticksUp(q.timer.at), w.hand)
	level := max(bits.Len64(tick^w.hand)-1, 0) / wheelDigit
	slot := int(tick >> (level * wheelDigit) & (1<<wheelDigit - 1))
	head := &w.slots[level][slot]
	e := &q.timer
	if e.slot, e.prev, e.next = int16(level<<wheelDigit|slot), nil, *head; e.next != nil {
		e.next.timer.prev = q
	}
	*head = q
	w.used[level] |= 1 << slot
	w.levels |= 1 << level
	w.n++
}

// remove takes q out if it is in.
func (w *timers) remove(q *QP) {
	e := &q.timer
	if e.slot < 0 {
		return
	}
	if e.next != nil {
		e.next.timer.prev = e.prev
	}
	if e.prev != nil {
		e.prev.timer.next = e.next
	} else if level, slot := e.slot>>wheelDigit, e.slot&(1<<wheelDigit-1); e.next != nil {
		w.slots[level][slot] = e.next
	} else {
		w.slots[level][slot] = nil
		if w.used[level] &^= 1 << slot; w.used[level] == 0 {
			w.levels &^= 1 << level
		}
	}
	e.slot, e.next, e.prev = -1, nil, nil
	w.n--
}

// first returns the first slot that has anybody, and the tick at which it begins.
func (w *timers) first() (level, slot int, tick uint64) {
	level = bits.TrailingZeros(w.levels) // all of a level comes before all of the next
	slot = bits.TrailingZeros64(w.used[level])
	shift := level * wheelDigit
	return level, slot, (w.hand>>shift&^(1<<wheelDigit-1) | uint64(slot)) << shift
}

// next returns a time before which nothing fires: the earliest deadline, or when the wheel has to be turned to tell.
func (w *timers) next() clock.Time {
	if w.levels == 0 {
		return clock.Never
	}
	_, _, tick := w.first()
	return clock.Time(tick << wheelTick)
}

// due takes out and returns a queue pair whose entry is due at now, nil if there is none.
func (w *timers) due(now clock.Time) *QP {
	for w.levels != 0 {
		level, slot, tick := w.first()
		if clock.Time(tick << wheelTick).After(now) {
			break
		}
		w.hand = tick
		q := w.slots[level][slot]
		if level == 0 {
			w.remove(q)
			return q
		}
		for q != nil { // down, nearer to the hand
			next := q.timer.next
			w.remove(q)
			w.enter(q)
			q = next
		}
	}
	w.hand = max(w.hand, uint64(now)>>wheelTick)
	return nil
}
