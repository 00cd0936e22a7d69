package verbs_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// One arming, one call; stopping ends it; nothing is left running.
func TestHandleEvents(t *testing.T) {
	a, b := newPair(t)
	leaks := goleak.IgnoreCurrent()
	ctx, stop := context.WithCancel(t.Context())
	calls := make(chan struct{}, 100)
	ended := make(chan error)
	go func() {
		ended <- b.cq.HandleEvents(ctx, func(q *verbs.CQ) {
			if q != b.cq {
				t.Error("called for another queue")
			}
			calls <- struct{}{}
		})
	}()
	called := func(want int) {
		t.Helper()
		for range want {
			select {
			case <-calls:
			case <-time.After(5 * time.Second):
				t.Fatal("the handler was not called")
			}
		}
		select {
		case <-calls:
			t.Fatal("the handler was called once more")
		case <-time.After(5 * time.Millisecond):
		}
	}
	for i := range uint64(8) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 64)))
	}
	send := func(id uint64) {
		t.Helper()
		check(t, a.qp.PostSend(a.send(id, 8)))
		a.expect(id, ib.WCSuccess)
	}
	send(1) // not armed
	called(0)
	must(b.cq.ReqNotify(false))
	send(2)
	send(3)
	called(1)
	must(b.cq.ReqNotify(true)) // what is there, and what is not solicited, calls nobody
	send(4)
	called(0)
	check(t, b.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	called(1)
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	// From now on events are everybody's again.
	must(b.cq.ReqNotify(false))
	check(t, b.qp.PostRecv(b.recv(9, 0, 8)))
	if q := must(b.ch.GetEvent(within(t, 5*time.Second))); q != b.cq {
		t.Error("event of another queue")
	}
	b.cq.AckEvents(1)
	goleak.VerifyNone(t, leaks)
}

// The loop of its documentation takes everything and sleeps in between; a queue that is closed ends it, after the call
// that was under way.
func TestHandleEventsDrains(t *testing.T) {
	a, b := newPair(t)
	const messages = 500
	var got atomic.Int64
	all := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- b.cq.HandleEvents(t.Context(), func(q *verbs.CQ) {
			var wc [4]verbs.WC
			for again := true; again; {
				for {
					n, err := q.Poll(wc[:])
					if err != nil || n == 0 {
						break
					}
					for range n {
						check(t, b.qp.PostRecv(b.recv(0, 0, 64)))
					}
					if got.Add(int64(n)) == messages {
						close(all)
					}
				}
				again, _ = q.ReqNotify(false)
			}
		})
	}()
	for range 16 {
		check(t, b.qp.PostRecv(b.recv(0, 0, 64)))
	}
	if must(b.cq.ReqNotify(false)) {
		t.Error("something is there already")
	}
	for i := range uint64(messages) {
		check(t, a.qp.PostSend(a.send(i, 8)))
		a.expect(i, ib.WCSuccess)
	}
	select {
	case <-all:
	case <-time.After(5 * time.Second):
		t.Fatalf("%d of %d messages", got.Load(), messages)
	}
	check(t, b.qp.Close())
	check(t, b.cq.Close())
	if err := <-ended; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
}

// Close waits for the handler that runs.
func TestCloseWaitsForHandler(t *testing.T) {
	s := newSide(t, openDevice(t, embedded.Options{}), 64, smallCap)
	inside, leave := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	go s.cq.HandleEvents(t.Context(), func(*verbs.CQ) {
		close(inside)
		<-leave
		left.Store(true)
	})
	must(s.cq.ReqNotify(false))
	s.flushInto(1)
	<-inside
	check(t, s.qp.Close())
	closed := make(chan error)
	go func() { closed <- s.cq.Close() }()
	select {
	case <-closed:
		t.Fatal("closed in the middle of the handler")
	case <-time.After(10 * time.Millisecond):
	}
	close(leave)
	if check(t, <-closed); !left.Load() {
		t.Error("closed before the handler was over")
	}
	none := must(s.ctx.CreateCQ(1))
	wantErrno(t, none.HandleEvents(t.Context(), nil), syscall.EINVAL)
}

// CQ_ERR goes to the queue's handler, everything else to AsyncEvent, whoever waits first.
func TestHandleAsync(t *testing.T) {
	s := newSide(t, openDevice(t, embedded.Options{}), 64, verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1})
	leaks := goleak.IgnoreCurrent()
	others, mine := make(chan verbs.AsyncEvent, 10), make(chan verbs.AsyncEvent, 10)
	stopped, ended := make(chan error), make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		for {
			e, err := s.ctx.AsyncEvent(ctx)
			if err != nil {
				stopped <- err
				return
			}
			others <- e
		}
	}()
	go func() { ended <- s.cq.HandleAsync(t.Context(), func(e verbs.AsyncEvent) { mine <- e }) }()
	time.Sleep(5 * time.Millisecond)
	s.flushInto(64)
	check(t, s.qp.PostRecv(s.recv(64, 0, 8)))
	if e := <-mine; e.Type != ib.EventCQErr || e.CQ != s.cq {
		t.Errorf("the handler got %+v", e)
	}
	if e := <-others; e.Type != ib.EventQPFatal || e.QP != s.qp {
		t.Errorf("AsyncEvent got %+v", e)
	}
	check(t, s.qp.Close())
	check(t, s.cq.Close())
	if err := <-ended; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("the handler ended with %v", err)
	}
	stop()
	if err := <-stopped; !errors.Is(err, context.Canceled) {
		t.Errorf("AsyncEvent ended with %v", err)
	}
	goleak.VerifyNone(t, leaks)
}

// Closing a queue ends the waits for it, and only those, whichever goroutine reads the channel for all.
func TestCloseEndsWaits(t *testing.T) {
	ctx := openDevice(t, embedded.Options{})
	ch := must(ctx.CreateCompChannel())
	var queues [2]*verbs.CQ
	ended := make([]chan error, 2)
	for i := range queues {
		queues[i] = must(ctx.CreateCQ(64, verbs.WithChannel(ch)))
		ended[i] = make(chan error, 1)
		go func() {
			_, err := queues[i].Wait(t.Context(), make([]verbs.WC, 1))
			ended[i] <- err
		}()
		time.Sleep(5 * time.Millisecond) // the first one reads
	}
	for i := range queues {
		check(t, queues[i].Close())
		select {
		case err := <-ended[i]:
			if !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("queue %d: the wait ended with %v", i, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("queue %d is closed, and somebody waits for it", i)
		}
		if i == 0 && len(ended[1]) > 0 {
			t.Error("the wait for the other queue ended, too")
		}
	}
}
