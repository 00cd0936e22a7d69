package nic

// Queue pairs that the bound on what is in flight keeps from sending wait in a line. When room comes back those at its
// head get their turn, before the queue pair whose acknowledgement made the room: it has had its turn, and will stand in
// line behind them.

// waiter is a queue pair in that line.
type waiter struct {
	links links[*waiter]
	qp    *QP
}

func (w *waiter) list() *links[*waiter] { return &w.links }

// await puts q in the line if the bound kept it from sending.
func (s *shard) await(q *QP) {
	if s.inFlight.Refused && !q.waiter.links.in && !q.dead {
		s.waiting.push(&q.waiter)
	}
}

// admit schedules as many of those who wait as the room may serve.
func (s *shard) admit() {
	if s.waiting.empty() {
		return
	}
	for room := s.inFlight.Room(); room > 0 && !s.waiting.empty(); room -= flowQuantum {
		w := s.waiting.head
		s.waiting.remove(w)
		s.sched.add(&w.qp.flow)
	}
}

// ground forgets what q has in flight.
func (s *shard) ground(q *QP) {
	if q.waiter.links.in {
		s.waiting.remove(&q.waiter)
	}
	q.outstanding.Clear()
	s.admit()
}
