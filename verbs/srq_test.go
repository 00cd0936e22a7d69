package verbs_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// event waits for an asynchronous event, and wants this.
func (s *side) event(want ib.EventType) verbs.AsyncEvent {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e, err := s.ctx.AsyncEvent(ctx)
	if err != nil || e.Type != want {
		s.t.Fatalf("event %s, %v, want %s", e.Type.Name(), err, want.Name())
	}
	return e
}

// noEvent wants none that is there already.
func (s *side) noEvent() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if e, err := s.ctx.AsyncEvent(ctx); err == nil {
		s.t.Fatalf("event %s, want none", e.Type.Name())
	}
}

// newSharing makes two devices; b's queue pair takes receives from a shared queue.
func newSharing(t testing.TB, maxWR uint32) (a, b *side, srq *verbs.SRQ) {
	t.Helper()
	var net embedded.Network
	a = newSide(t, openDevice(t, embedded.Options{Network: &net}), 4096, smallCap)
	b = newSide(t, openDevice(t, embedded.Options{Network: &net}), 4096, smallCap)
	srq = must(b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: maxWR, MaxSGE: 2}))
	check(t, b.qp.Close())
	b.qp = must(b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq, Cap: smallCap}))
	b.end.QPN = b.qp.QPN()
	connectSides(t, a, b, verbs.RCAttr{})
	b.ctx.AsyncEvent(expired())
	return a, b, srq
}

func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestSRQ(t *testing.T) {
	a, b, srq := newSharing(t, 3)
	if attr := must(srq.Query()); attr != (verbs.SRQAttr{MaxWR: 4, MaxSGE: 2}) {
		t.Errorf("attributes %+v", attr)
	}
	if c := b.qp.Cap(); c.MaxRecvWR != 0 || c.MaxRecvSGE != 0 {
		t.Errorf("capacities %+v", c)
	}
	wantErrno(t, b.qp.PostRecv(b.recv(1, 0, 64)), syscall.EINVAL)
	wantErrno(t, b.qp.PostRecv(), syscall.EINVAL)
	wantErrno(t, srq.Close(), syscall.EBUSY)
	wantErrno(t, b.pd.Dealloc(), syscall.EBUSY)

	// Receives complete under their numbers, and their places are free when they are taken.
	for round := range uint64(3) {
		for i := range uint64(4) {
			check(t, srq.PostRecv(b.recv(10*round+i, int(i)*64, 64)))
		}
		err := srq.PostRecv(b.recv(99, 0, 64))
		wantErrno(t, err, syscall.ENOMEM)
		var refused *verbs.PostError
		if !errors.As(err, &refused) || refused.Index != 0 {
			t.Errorf("%v does not say which", err)
		}
		for i := range uint64(4) {
			check(t, a.qp.PostSend(a.send(i, 32)))
			a.expect(i, ib.WCSuccess)
			if wc := b.expect(10*round+i, ib.WCSuccess); wc.QPN != b.qp.QPN() || wc.Opcode != ib.WCRecv || wc.ByteLen != 32 {
				t.Errorf("receive %+v", wc)
			}
		}
	}
	long := verbs.RecvWR{SGList: make([]verbs.SGE, 3)}
	wantErrno(t, srq.PostRecv(b.recv(1, 0, 64), long), syscall.EINVAL)

	// Empty, a sender waits; one receive later it is served.
	check(t, a.qp.PostSend(a.send(5, 64), a.send(6, 64)))
	b.expect(1, ib.WCSuccess)
	time.Sleep(2 * time.Millisecond)
	check(t, srq.PostRecv(b.recv(2, 0, 64)))
	b.expect(2, ib.WCSuccess)

	check(t, b.qp.Close())
	check(t, srq.Close())
	wantErrno(t, srq.PostRecv(b.recv(1, 0, 64)), syscall.EBADF)
}

func TestSRQLimits(t *testing.T) {
	a, b, srq := newSharing(t, 8)
	b.ctx.AsyncEvent(expired())
	dev := must(b.ctx.QueryDevice())
	if dev.MaxSRQ == 0 || dev.DeviceCapFlags&ib.CapSRQResize == 0 {
		t.Errorf("the device offers %d shared receive queues, %s", dev.MaxSRQ, dev.DeviceCapFlags)
	}
	for _, attr := range []verbs.SRQAttr{
		{MaxWR: 0, MaxSGE: 1}, {MaxWR: dev.MaxSRQWR + 1, MaxSGE: 1}, {MaxWR: 1, MaxSGE: 0}, {MaxWR: 1, MaxSGE: dev.MaxSRQSGE + 1},
		{MaxWR: 1<<32 - 1, MaxSGE: 1<<32 - 1},
	} {
		if _, err := b.pd.CreateSRQ(attr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", attr, err)
		}
	}
	arm := func(n uint32) error { return srq.Modify(verbs.SRQAttr{SRQLimit: n}, ib.SRQAttrLimit) }
	for i := range uint64(8) {
		check(t, srq.PostRecv(b.recv(i, 0, 64)))
	}
	wantErrno(t, arm(9), syscall.EINVAL)
	check(t, arm(7))
	check(t, a.qp.PostSend(a.send(0, 8)))
	b.expect(0, ib.WCSuccess)
	if attr := must(srq.Query()); attr.SRQLimit != 7 {
		t.Errorf("limit %d, armed with 7", attr.SRQLimit)
	}
	b.noEvent()
	check(t, a.qp.PostSend(a.send(1, 8)))
	b.expect(1, ib.WCSuccess)
	if e := b.event(ib.EventSRQLimitReached); e.SRQ != srq || e.QP != nil {
		t.Errorf("event %+v", e)
	}
	if attr := must(srq.Query()); attr.SRQLimit != 0 {
		t.Errorf("limit %d after its event", attr.SRQLimit)
	}
	check(t, a.qp.PostSend(a.send(2, 8)))
	b.expect(2, ib.WCSuccess)
	b.noEvent()
	check(t, arm(6)) // 5 are left
	b.event(ib.EventSRQLimitReached)

	// 5 are posted: more places, then 5, not fewer.
	resize := func(n uint32) error { return srq.Modify(verbs.SRQAttr{MaxWR: n}, ib.SRQAttrMaxWR) }
	check(t, resize(100))
	if attr := must(srq.Query()); attr.MaxWR != 128 {
		t.Errorf("100 places became %d", attr.MaxWR)
	}
	wantErrno(t, resize(4), syscall.EINVAL)
	wantErrno(t, resize(0), syscall.EINVAL)
	wantErrno(t, resize(dev.MaxSRQWR+1), syscall.EINVAL)
	check(t, resize(5))
	check(t, arm(3))
	wantErrno(t, resize(2), syscall.EINVAL)
	for i := uint64(3); i < 8; i++ {
		check(t, a.qp.PostSend(a.send(i, 8)))
		b.expect(i, ib.WCSuccess)
	}
	b.event(ib.EventSRQLimitReached)
	wantErrno(t, srq.Modify(verbs.SRQAttr{}, 1<<5), syscall.EINVAL)
}

// Resizes under traffic lose, double and reorder nothing.
func TestSRQResizeUnderTraffic(t *testing.T) {
	a, b, srq := newSharing(t, 16)
	const messages = 2000
	errs := make(chan error, 2)
	go func() {
		for i := range uint64(messages) {
			for {
				err := srq.PostRecv(b.recv(i, 0, 64))
				if err == nil {
					break
				}
				if !errors.Is(err, syscall.ENOMEM) {
					errs <- err
					return
				}
				time.Sleep(10 * time.Microsecond)
			}
		}
		errs <- nil
	}()
	go func() {
		for i := range uint64(messages) {
			for {
				err := a.qp.PostSend(a.send(i, 8))
				if err == nil {
					break
				}
				if !errors.Is(err, syscall.ENOMEM) {
					errs <- err
					return
				}
				var wc [16]verbs.WC
				a.cq.Poll(wc[:])
			}
		}
		errs <- nil
	}()
	sizes := []uint32{64, 8, 33, 128, 16}
	for i := range uint64(messages) {
		b.expect(i, ib.WCSuccess)
		if i%40 == 0 {
			if err := srq.Modify(verbs.SRQAttr{MaxWR: sizes[i/40%5]}, ib.SRQAttrMaxWR); err != nil && !errors.Is(err, syscall.EINVAL) {
				t.Fatal(err)
			}
		}
	}
	check(t, <-errs)
	check(t, <-errs)
}

func TestSRQAllocs(t *testing.T) {
	_, b, srq := newSharing(t, 1024)
	wr := []verbs.RecvWR{b.recv(1, 0, 64)}
	if n := testing.AllocsPerRun(500, func() {
		if err := srq.PostRecv(wr...); err != nil {
			panic(err)
		}
	}); n != 0 {
		t.Errorf("PostRecv allocates %v times", n)
	}
}

// The same over a socket, with memory that two processes map: sizes come and go, and the memory with them.
func TestSRQOfADaemon(t *testing.T) {
	_, path := spawnDaemon(t)
	ctx := openSocket(t, path)
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	srq := must(b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 4, MaxSGE: 2}))
	check(t, b.qp.Close())
	b.qp = must(b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq, Cap: smallCap}))
	b.end.QPN = b.qp.QPN()
	connectSides(t, a, b, verbs.RCAttr{})
	arenas := ctx.Arenas()
	for i := range uint64(200) {
		check(t, srq.PostRecv(b.recv(i, 0, 64)))
		check(t, srq.Modify(verbs.SRQAttr{MaxWR: uint32(1 + i*2579%16384)}, ib.SRQAttrMaxWR))
		check(t, a.qp.PostSend(a.send(i, 8)))
		b.expect(i, ib.WCSuccess)
		a.expect(i, ib.WCSuccess)
	}
	check(t, srq.Modify(verbs.SRQAttr{MaxWR: 4}, ib.SRQAttrMaxWR))
	if n := ctx.Arenas(); n > arenas+2 {
		t.Errorf("%d memories after 200 sizes, %d before", n, arenas)
	}
	check(t, srq.Modify(verbs.SRQAttr{SRQLimit: 1}, ib.SRQAttrLimit))
	if e := b.event(ib.EventSRQLimitReached); e.SRQ != srq {
		t.Errorf("event %+v", e)
	}
	check(t, b.qp.Close())
	check(t, srq.Close())
	check(t, b.mr.Dereg())
	check(t, b.pd.Dealloc())
}
