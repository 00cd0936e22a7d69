package main

import (
	"time"

	"github.com/softnic/softnicd/ib"
)

// stream is a bandwidth measurement: as many messages under way as the queue pairs hold, one side or both.
type stream struct {
	*perfPeer
	sending   bool
	receiving bool // with receive requests
	latency   histogram
	tell      *progress

	stopping bool
	told     bool        // the peer knows that we are done
	roomy    []*perfLane // may have room
	full     int         // lanes that have posted all their messages
	total    int64
	counted  int64 // messages completed in the measured time
	began    time.Time
	from, to time.Time // of the measured time
	last     time.Time // completion
	heard    time.Time // the last message came, or the peer was done
	end      time.Time // of posting
	peak     peak
}

// warmUp is the share of a timed measurement that is not counted.
const warmUp = 10

// run measures until both sides are done, and says how fast this side sent.
func (s *stream) run() (perfShare, error) {
	s.began = time.Now()
	s.from = s.began
	if s.plan.Iters == 0 {
		s.from = s.began.Add(s.plan.Duration / warmUp)
		s.end = s.from.Add(s.plan.Duration)
	}
	s.peak.start(s.from)
	for i := range s.lanes {
		s.add(&s.lanes[i])
	}
	for !s.over() {
		if s.sending {
			if err := s.fill(); err != nil {
				return perfShare{}, err
			}
		}
		if !s.sending && !s.receiving {
			// A passive side of WRITE, READ or atomics has nothing to do but wait.
			<-s.sleep.Done()
			if err := s.interrupted(); err != nil {
				return perfShare{}, err
			}
			continue
		}
		if err := s.reap(); err != nil {
			return perfShare{}, err
		}
		if s.sending && s.finished() && !s.told {
			s.told = true
			if err := s.finish(); err != nil {
				return perfShare{}, err
			}
		}
	}
	if !s.told {
		if err := s.finish(); err != nil {
			return perfShare{}, err
		}
	}
	return s.share(), nil
}

// share is what this side measured. A timed measurement counts what completed within the time, another one everything
// from the first post to the last completion.
func (s *stream) share() perfShare {
	share := perfShare{Sent: s.total}
	for i := range s.lanes {
		share.Received += s.lanes[i].received
	}
	end := s.last
	if s.plan.Iters == 0 && s.to.After(s.from) {
		end = s.to
	}
	if took := end.Sub(s.from); took > 0 {
		share.BytesPerS = float64(s.counted) * float64(s.plan.Size) / took.Seconds()
	}
	share.Peak = max(s.peak.best*float64(s.plan.Size), share.BytesPerS)
	return share
}

// finished tells whether this side has sent everything and knows that it arrived.
func (s *stream) finished() bool {
	if !s.sending {
		return true
	}
	if !s.stopping {
		return false
	}
	for i := range s.lanes {
		if s.lanes[i].done < s.lanes[i].sent {
			return false
		}
	}
	return true
}

// over tells whether both sides are done and everything that was sent is received. The peer's acknowledgement of our last
// message says nothing about its own.
func (s *stream) over() bool {
	if !s.link.peerDone.Load() || !s.finished() {
		return false
	}
	if s.receiving && !s.stray() {
		for i, n := range s.link.peerSent {
			if i < len(s.lanes) && s.lanes[i].received < n {
				return false
			}
		}
	}
	return true
}

// fill posts as much as there is room for, on the lanes that may have some.
func (s *stream) fill() error {
	if s.plan.Iters == 0 && !s.stopping && time.Now().After(s.end) {
		s.stopping = true
		for i := range s.lanes {
			s.add(&s.lanes[i])
		}
	}
	if len(s.roomy) == 0 {
		return nil
	}
	now := time.Now()
	for _, l := range s.roomy {
		l.waiting = false
		for n := s.room(l); n > 0; n = s.room(l) {
			if err := s.post(l, n, now); err != nil {
				return err
			}
			if l.sent == int64(s.plan.Iters) {
				s.full++
			}
		}
	}
	s.roomy = s.roomy[:0]
	s.stopping = s.stopping || s.full == len(s.lanes)
	return nil
}

// add puts a lane into the list of those that may have room.
func (s *stream) add(l *perfLane) {
	if !l.waiting {
		l.waiting = true
		s.roomy = append(s.roomy, l)
	}
}

// room returns how many messages to post on a lane: a list of them, or the rest that ends with a signaled one.
func (s *stream) room(l *perfLane) int {
	free := s.plan.TxDepth - int(l.sent-l.done)
	n := len(l.sends)
	if s.stopping && s.plan.Iters == 0 {
		// The last message asks for a completion, or nobody would know that it arrived.
		rest := l.sent % int64(s.plan.CQMod)
		if rest == 0 {
			return 0
		}
		n = min(n, s.plan.CQMod-int(rest))
	}
	if s.plan.Iters > 0 {
		n = int(min(int64(n), int64(s.plan.Iters)-l.sent))
	}
	if free < n {
		return 0
	}
	return n
}

// reap takes what has completed.
func (s *stream) reap() error {
	wcs, err := s.poll()
	if err != nil || len(wcs) == 0 {
		return err
	}
	now := time.Now()
	for i := range wcs {
		wc := &wcs[i]
		l := s.byQPN[wc.QPN]
		if wc.Opcode&ib.WCRecv != 0 {
			if err := s.checkReceived(l, l.received); err != nil {
				return err
			}
			l.received++
			s.heard = now
			if l.owed++; l.owed >= len(l.recvs)/2 || s.plan.Verify {
				if err := l.repost(); err != nil {
					return err
				}
			}
			continue
		}
		m := int64(wc.WRID)
		if err := s.checkSent(l, l.done, m+1); err != nil {
			return err
		}
		n := m + 1 - l.done
		l.done = m + 1
		s.add(l)
		s.total += n
		s.last = now
		if now.Before(s.from) || s.plan.Iters == 0 && now.After(s.end) {
			continue
		}
		s.counted += n
		s.to = now
		s.latency.add(now.Sub(l.posted[m%int64(len(l.posted))]))
		s.peak.add(now, n)
	}
	s.tell.count.Store(s.total)
	return nil
}

// peak finds the fastest stretch of a measurement.
type peak struct {
	from time.Time
	n    int64
	best float64 // messages a second
}

// peakStretch is the least time over which a peak is taken.
const peakStretch = 10 * time.Millisecond

func (p *peak) start(now time.Time) { p.from, p.n = now, 0 }

func (p *peak) add(now time.Time, n int64) {
	p.n += n
	if took := now.Sub(p.from); took >= peakStretch {
		p.best = max(p.best, float64(p.n)/took.Seconds())
		p.start(now)
	}
}
