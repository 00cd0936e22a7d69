package nic

import "github.com/softnic/softnicd/clock"

// timers is a heap of queue pairs by deadline. Each queue pair is in it at most once and knows its place, so a destroyed
// one is taken out: a timer can never fire for what is gone, or for a successor (CVE-2026-45910 was that).
//
// Deadlines mostly move later, with every acknowledgement. Those moves are not followed: the entry fires early, the
// engine finds nothing due, and is entered anew.
type timers struct{ heap []*QP }

// set makes t the deadline of q, which [clock.Never] takes out.
func (h *timers) set(q *QP, t clock.Time) {
	switch {
	case q.timerAt >= 0 && t >= q.timer:
		// Later, or never: what is entered serves.
	case q.timerAt >= 0:
		q.timer = t
		h.up(q.timerAt)
	case t != clock.Never:
		q.timer = t
		q.timerAt = len(h.heap)
		h.heap = append(h.heap, q)
		h.up(q.timerAt)
	}
}

// next returns the earliest deadline entered.
func (h *timers) next() clock.Time {
	if len(h.heap) == 0 {
		return clock.Never
	}
	return h.heap[0].timer
}

// due takes out and returns a queue pair whose entry is due at now, nil if there is none.
func (h *timers) due(now clock.Time) *QP {
	if len(h.heap) == 0 || h.heap[0].timer.After(now) {
		return nil
	}
	q := h.heap[0]
	h.remove(q)
	return q
}

// remove takes q out if it is in.
func (h *timers) remove(q *QP) {
	i := q.timerAt
	if i < 0 {
		return
	}
	last := len(h.heap) - 1
	h.move(h.heap[last], i)
	h.heap[last] = nil
	h.heap = h.heap[:last]
	q.timerAt = -1
	if i < last {
		h.up(i)
		h.down(h.heap[i].timerAt)
	}
}

func (h *timers) move(q *QP, i int) {
	h.heap[i] = q
	q.timerAt = i
}

func (h *timers) up(i int) {
	q := h.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if h.heap[parent].timer <= q.timer {
			break
		}
		h.move(h.heap[parent], i)
		i = parent
	}
	h.move(q, i)
}

func (h *timers) down(i int) {
	q := h.heap[i]
	for {
		child := 2*i + 1
		if child >= len(h.heap) {
			break
		}
		if r := child + 1; r < len(h.heap) && h.heap[r].timer < h.heap[child].timer {
			child = r
		}
		if h.heap[child].timer >= q.timer {
			break
		}
		h.move(h.heap[child], i)
		i = child
	}
	h.move(q, i)
}
