package verbs_test

import (
	"errors"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func TestPollEach(t *testing.T) {
	a, b := newPair(t)
	none := func(verbs.Entry) bool { t.Error("something is there"); return true }
	if n, err := a.cq.PollEach(10, none); n != 0 || err != nil {
		t.Fatalf("empty: %d, %v", n, err)
	}
	check(t, b.qp.PostRecv(b.recv(1, 0, 64), b.recv(2, 64, 64), b.recv(3, 128, 64)))
	imm := a.send(12, 8)
	imm.Opcode, imm.ImmData = ib.WRSendWithImm, 77
	check(t, a.qp.PostSend(a.send(11, 64), imm, a.send(13, 65)))
	for must(b.cq.Peek(3)) < 3 {
	}
	if n, err := b.cq.PollEach(0, none); n != 0 || err != nil {
		t.Errorf("none wanted: %d, %v", n, err)
	}
	// Until it says no, the one it says no to included; and not more than asked for.
	var ids []uint64
	stop := func(e verbs.Entry) bool { ids = append(ids, e.WRID()); return false }
	if n := must(b.cq.PollEach(3, stop)); n != 1 || len(ids) != 1 || ids[0] != 1 {
		t.Fatalf("%d taken, ids %v", n, ids)
	}
	n := must(b.cq.PollEach(1, func(e verbs.Entry) bool {
		if e.WRID() != 2 || e.Status() != ib.WCSuccess || e.Opcode() != ib.WCRecv || e.ByteLen() != 8 || e.Flags() != ib.WCWithImm ||
			e.ImmData() != 77 || e.QPN() != b.qp.QPN() || e.SrcQP() != a.qp.QPN() || e.Timestamp() == 0 || e.SL() != 0 ||
			e.PKeyIndex() != 0 || e.SLID() != 0 || e.DLIDPathBits() != 0 {
			t.Errorf("entry of %d", e.WRID())
		}
		// Posting inside is allowed.
		if err := b.qp.PostRecv(b.recv(4, 0, 64)); err != nil {
			t.Error(err)
		}
		return true
	}))
	if n != 1 {
		t.Fatalf("%d taken", n)
	}
	n = must(b.cq.PollEach(10, func(e verbs.Entry) bool {
		if e.WRID() == 3 && (e.Status() != ib.WCLocLenErr || e.VendorErr() == 0 || e.ByteLen() != 0) {
			t.Errorf("entry of %d: %v", e.WRID(), e.Status())
		}
		return true
	}))
	if n == 0 {
		t.Fatal("nothing taken")
	}
	// A panic leaves the queue usable.
	a.expect(11, ib.WCSuccess)
	func() {
		defer func() { _ = recover() }()
		for {
			a.cq.PollEach(1, func(verbs.Entry) bool { panic("mine") })
		}
	}()
	wantError(a, 13, ib.WCRemInvReqErr)
	check(t, a.qp.Close())
	check(t, a.cq.Close())
	if _, err := a.cq.PollEach(1, none); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("a closed queue: %v", err)
	}
}

func TestPollEachOverrun(t *testing.T) {
	s := newSide(t, openDevice(t, embedded.Options{}), 64, verbs.QPCap{MaxRecvWR: 128, MaxRecvSGE: 1})
	s.flushInto(64)
	check(t, s.qp.PostRecv(s.recv(64, 0, 8)))
	s.ctx.AsyncEvent(t.Context())
	next := uint64(0)
	if n := must(s.cq.PollEach(100, func(e verbs.Entry) bool { next++; return e.WRID() == next-1 })); n != 64 {
		t.Errorf("%d of 64 that fit", n)
	}
	if _, err := s.cq.PollEach(1, nil); !errors.Is(err, verbs.ErrCQOverrun) {
		t.Errorf("after that: %v", err)
	}
}

func TestPollEachAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := newPair(t)
	recv, send := []verbs.RecvWR{b.recv(1, 0, 64)}, []verbs.SendWR{a.send(2, 64)}
	var sum uint64
	each := func(q *verbs.CQ) {
		for {
			n, err := q.PollEach(4, func(e verbs.Entry) bool { sum += e.WRID() + uint64(e.Status()); return true })
			if n > 0 || err != nil {
				return
			}
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		b.qp.PostRecv(recv...)
		a.qp.PostSend(send...)
		each(a.cq)
		each(b.cq)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if sum == 0 {
		t.Error("nothing was read")
	}
}
