package verbs_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// ended is a context that has ended: GetEvent does not wait with it.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestCreateCQ(t *testing.T) {
	ctx := openDevice(t, embedded.Options{})
	if n := must(ctx.CreateCQ(100)).Capacity(); n != 128 {
		t.Errorf("capacity %d, want 128", n)
	}
	attr := must(ctx.QueryDevice())
	for _, n := range []int{0, -1, int(attr.MaxCQE) + 1, 1 << 40} {
		_, err := ctx.CreateCQ(n)
		wantErrno(t, err, syscall.EINVAL)
	}
	_, err := ctx.CreateCQ(10, verbs.WithCompVector(int(attr.NumCompVectors)))
	wantErrno(t, err, syscall.EINVAL)
	_, err = must(ctx.CreateCQ(10)).ReqNotify(false)
	wantErrno(t, err, syscall.EINVAL)
}

// One arming, one event; what was there before the arming makes none, and is reported.
func TestNotify(t *testing.T) {
	a, b := newPair(t)
	for i := range uint64(8) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 64)))
	}
	var wc [8]verbs.WC
	if missed := must(b.cq.ReqNotify(false)); missed {
		t.Fatal("something is there")
	}
	check(t, a.qp.PostSend(a.send(0, 8), a.send(1, 8)))
	if q := must(b.ch.GetEvent(within(t, 5*time.Second))); q != b.cq {
		t.Fatal("event of another queue")
	}
	b.cq.AckEvents(1)
	a.expect(0, ib.WCSuccess)
	a.expect(1, ib.WCSuccess)
	if missed := must(b.cq.ReqNotify(false)); !missed {
		t.Fatal("two completions are there")
	}
	if n := must(b.cq.Poll(wc[:])); n != 2 {
		t.Fatalf("%d completions", n)
	}
	if _, err := b.ch.GetEvent(ended()); !errors.Is(err, context.Canceled) {
		t.Fatalf("an event for what was there: %v", err)
	}
	// Armed for solicited ones: an ordinary one wakes nobody.
	check(t, a.qp.PostSend(a.send(2, 8)))
	a.expect(2, ib.WCSuccess)
	if q := must(b.ch.GetEvent(within(t, 5*time.Second))); q != b.cq { // of the arming before
		t.Fatal("event of another queue")
	}
	b.cq.AckEvents(1)
	b.cq.Poll(wc[:])
	must(b.cq.ReqNotify(true))
	check(t, a.qp.PostSend(a.send(3, 8)))
	a.expect(3, ib.WCSuccess)
	if _, err := b.ch.GetEvent(within(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("an event for an unsolicited completion: %v", err)
	}
	solicited := a.send(4, 8)
	solicited.Flags |= ib.SendSolicited
	check(t, a.qp.PostSend(solicited))
	must(b.ch.GetEvent(within(t, 5*time.Second)))
	b.cq.AckEvents(1)
	// Errors count as solicited.
	b.cq.Poll(wc[:])
	must(b.cq.ReqNotify(true))
	check(t, b.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	must(b.ch.GetEvent(within(t, 5*time.Second)))
	b.cq.AckEvents(1)
}

// Closing waits for events that were got and not acknowledged; those that nobody got are dropped.
func TestCloseWaitsForAcks(t *testing.T) {
	a, b := newPair(t)
	must(b.cq.ReqNotify(false))
	check(t, b.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	check(t, b.qp.PostRecv(b.recv(1, 0, 8)))
	must(b.ch.GetEvent(within(t, 5*time.Second)))
	wantErrno(t, b.ch.Close(), syscall.EBUSY)
	wantErrno(t, b.cq.Close(), syscall.EBUSY)
	wantErrno(t, b.pd.Dealloc(), syscall.EBUSY)
	check(t, b.qp.Close())
	done := make(chan error)
	go func() { done <- b.cq.Close() }()
	select {
	case err := <-done:
		t.Fatalf("closed without the acknowledgement: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	b.cq.AckEvents(1)
	check(t, <-done)
	if _, err := b.cq.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("poll of a closed queue: %v", err)
	}

	// Of two queues on a channel one is closed with an event pending: only the other's comes.
	ch := must(a.ctx.CreateCompChannel())
	var sides [2]*side
	for i := range sides {
		s := &side{t: t, ctx: a.ctx, pd: a.pd, ch: ch, buf: a.buf, mr: a.mr}
		s.cq = must(a.ctx.CreateCQ(8, verbs.WithChannel(ch)))
		s.qp = must(a.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, Cap: smallCap}))
		must(s.cq.ReqNotify(false))
		s.end = verbs.Endpoint{QPN: s.qp.QPN(), GID: a.end.GID}
		check(t, s.qp.ConnectRC(s.end, b.end, verbs.RCAttr{}))
		check(t, s.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
		check(t, s.qp.PostRecv(s.recv(1, 0, 8)))
		sides[i] = s
	}
	for must(sides[0].cq.Peek(1)) == 0 || must(sides[1].cq.Peek(1)) == 0 {
		time.Sleep(time.Millisecond)
	}
	check(t, sides[0].qp.Close())
	check(t, sides[0].cq.Close())
	if q := must(ch.GetEvent(within(t, 5*time.Second))); q != sides[1].cq {
		t.Error("an event of a closed queue")
	}
	sides[1].cq.AckEvents(1)
}

// A queue that overruns: what fits is there, then an error; its queue pairs fail; others do not.
func TestOverrun(t *testing.T) {
	var net embedded.Network
	cap := verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}
	a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, cap)
	b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, cap)
	connectSides(t, a, b, verbs.RCAttr{})
	write := a.send(0, 8)
	write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr(), b.mr.RKey()
	for i := range uint64(65) {
		write.WRID = i
		check(t, a.qp.PostSend(write))
	}
	ctx := within(t, 5*time.Second)
	var fatal, cqErr bool
	for !fatal || !cqErr {
		e := must(a.ctx.AsyncEvent(ctx))
		fatal = fatal || e.Type == ib.EventQPFatal && e.QP == a.qp
		cqErr = cqErr || e.Type == ib.EventCQErr && e.CQ == a.cq
	}
	var wc [100]verbs.WC
	n := must(a.cq.Poll(wc[:]))
	if n != 64 {
		t.Fatalf("%d completions fit, want 64", n)
	}
	for i := range n {
		if wc[i].WRID != uint64(i) {
			t.Fatalf("completion %d is of %d", i, wc[i].WRID)
		}
	}
	if _, err := a.cq.Poll(wc[:]); !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("after the last: %v", err)
	}
	if a.qp.State() != ib.StateErr {
		t.Errorf("the queue pair is in %v", a.qp.State())
	}
	if _, err := b.cq.Poll(wc[:]); err != nil {
		t.Errorf("another queue: %v", err)
	}
}

// Several goroutines wait for one queue, others for another on the same channel: everybody gets everything.
func TestWaitTogether(t *testing.T) {
	a, b := newPair(t)
	const messages = 600
	var got atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var wc [2]verbs.WC
			for {
				n, err := b.cq.Wait(ctx, wc[:])
				if err != nil {
					return
				}
				for range n {
					check(t, b.qp.PostRecv(b.recv(0, 0, 64)))
				}
				if got.Add(int64(n)) == messages {
					cancel()
				}
			}
		})
	}
	for range b.qp.Cap().MaxRecvWR {
		check(t, b.qp.PostRecv(b.recv(0, 0, 64)))
	}
	for i := range uint64(messages) {
		check(t, a.qp.PostSend(a.send(i, 8)))
		if i%50 == 0 {
			time.Sleep(200 * time.Microsecond) // so that they fall asleep now and then
		}
		a.expect(i, ib.WCSuccess)
	}
	wg.Wait()
	if got.Load() != messages {
		t.Errorf("%d of %d messages were received", got.Load(), messages)
	}
}

// Completions of a queue pair that was destroyed are gone, those of others stay.
func TestDestroyedCompletions(t *testing.T) {
	a, b := newPair(t)
	other := must(b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: smallCap}))
	check(t, other.ConnectRC(b.end, a.end, verbs.RCAttr{}))
	check(t, other.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	check(t, other.PostRecv(b.recv(7, 0, 8)))
	check(t, b.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
	check(t, b.qp.PostRecv(b.recv(8, 0, 8)))
	for must(b.cq.Peek(2)) < 2 {
		time.Sleep(time.Millisecond)
	}
	check(t, other.Close())
	b.expect(8, ib.WCWRFlushErr)
	if n := must(b.cq.Poll(make([]verbs.WC, 2))); n != 0 {
		t.Error("something is left")
	}
}

// When the device is gone everybody learns it, and what was completed before can still be polled.
func TestDeviceGone(t *testing.T) {
	d := must(embedded.New(embedded.Options{}))
	ctx := must(d.Open())
	s := newSide(t, ctx, 64, smallCap)
	check(t, s.qp.ConnectRC(s.end, s.end, verbs.RCAttr{}))
	check(t, s.qp.PostRecv(s.recv(1, 0, 8)))
	blocked, polled := make(chan error), make(chan error)
	idle := must(ctx.CreateCQ(8, verbs.WithChannel(s.ch)))
	go func() {
		_, err := idle.Wait(context.Background(), make([]verbs.WC, 1))
		blocked <- err
	}()
	go func() {
		for {
			if _, err := idle.Poll(make([]verbs.WC, 1)); err != nil {
				polled <- err
				return
			}
		}
	}()
	time.Sleep(10 * time.Millisecond)
	check(t, d.Close())
	for _, c := range []chan error{blocked, polled} {
		select {
		case err := <-c:
			if !errors.Is(err, verbs.ErrDeviceFatal) {
				t.Errorf("error %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("somebody hangs")
		}
	}
	s.expect(1, ib.WCWRFlushErr)
	if e, err := ctx.AsyncEvent(t.Context()); err != nil || e.Type != ib.EventDeviceFatal {
		t.Errorf("event %v, %v", e, err)
	}
	if _, err := ctx.AsyncEvent(t.Context()); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("after the last event: %v", err)
	}
	if err := s.qp.PostSend(s.send(2, 8)); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("post: %v", err)
	}
	if _, err := ctx.AllocPD(); !errors.Is(err, verbs.ErrDeviceFatal) {
		t.Errorf("alloc pd: %v", err)
	}
	check(t, ctx.Close())
	if _, err := idle.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("poll after Close: %v", err)
	}
}
