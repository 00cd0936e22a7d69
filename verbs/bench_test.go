package verbs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func pollOne(q *verbs.CQ, wc []verbs.WC) {
	for {
		if n, err := q.Poll(wc); n > 0 || err != nil {
			return
		}
	}
}

// A message from one device of the process to another, one at a time: posting, both engines, completion.
func BenchmarkSend64(b *testing.B) {
	x, y := newPair(b)
	wc := make([]verbs.WC, 1)
	recv, send := []verbs.RecvWR{y.recv(1, 0, 64)}, []verbs.SendWR{x.send(2, 64)}
	for b.Loop() {
		y.qp.PostRecv(recv...)
		x.qp.PostSend(send...)
		pollOne(x.cq, wc)
		pollOne(y.cq, wc)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	x, _ := newPair(b)
	wc := make([]verbs.WC, 1)
	for b.Loop() {
		x.cq.Poll(wc)
	}
}

// flushed makes a queue for many completions of receives that are flushed, which cost the device nothing else.
func flushed(b *testing.B) *side {
	b.Helper()
	const depth = 1 << 14
	s := newSide(b, openDevice(b, embedded.Options{}), depth, verbs.QPCap{MaxRecvWR: depth, MaxRecvSGE: 1})
	s.flushInto(0)
	return s
}

// refill posts receives until the queue pair is full, and waits for their completions.
func (s *side) refill(list []verbs.RecvWR) int {
	n := int(s.qp.Cap().MaxRecvWR)
	for range n / len(list) {
		s.qp.PostRecv(list...)
	}
	for must(s.cq.Peek(n)) < n {
		time.Sleep(10 * time.Microsecond)
	}
	return n
}

// Polling n completions at a time, per completion; posting them is off the clock.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{1, 32} {
		s := flushed(b)
		list := make([]verbs.RecvWR, 256)
		wc := make([]verbs.WC, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for left := b.N; left > 0; {
				b.StopTimer()
				there := s.refill(list)
				b.StartTimer()
				for taken := 0; taken < there; {
					k, _ := s.cq.Poll(wc)
					taken += k
				}
				left -= there
			}
		})
	}
}

// The same, of which only wr_id and status are read, in place.
func BenchmarkPollEach(b *testing.B) {
	s := flushed(b)
	list := make([]verbs.RecvWR, 256)
	sum := uint64(0)
	b.ResetTimer()
	for left := b.N; left > 0; {
		b.StopTimer()
		there := s.refill(list)
		b.StartTimer()
		for taken := 0; taken < there; {
			k, _ := s.cq.PollEach(32, func(e verbs.Entry) bool { sum += e.WRID() + uint64(e.Status()); return true })
			taken += k
		}
		left -= there
	}
}

// From the posting of a send to the return of a GetEvent that sleeps: both engines, the event, the scheduler.
func BenchmarkEventLatency(b *testing.B) {
	x, y := newPair(b)
	recv, send := []verbs.RecvWR{y.recv(1, 0, 64)}, []verbs.SendWR{x.send(2, 64)}
	wc := make([]verbs.WC, 4)
	asleep, woken := make(chan struct{}), make(chan error)
	stop := make(chan struct{})
	go func() {
		defer close(woken)
		for {
			select {
			case asleep <- struct{}{}:
			case <-stop:
				return
			}
			_, err := y.ch.GetEvent(b.Context())
			y.cq.AckEvents(1)
			woken <- err
		}
	}()
	var total time.Duration
	n := 0
	for b.Loop() {
		y.qp.PostRecv(recv...)
		must(y.cq.ReqNotify(false))
		<-asleep
		time.Sleep(100 * time.Microsecond)
		begin := time.Now()
		x.qp.PostSend(send...)
		check(b, <-woken)
		total += time.Since(begin)
		n++
		pollOne(x.cq, wc)
		pollOne(y.cq, wc)
	}
	close(stop)
	for range woken {
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(n), "ns/event")
}
