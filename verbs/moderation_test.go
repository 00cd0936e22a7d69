package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// Vectors are as many as the device says, and all work.
func TestCompVectors(t *testing.T) {
	ctx := openDevice(t, embedded.Options{Limits: nic.Limits{NumCompVectors: 4}})
	if n := must(ctx.QueryDevice()).NumCompVectors; n != 4 {
		t.Fatalf("%d completion vectors", n)
	}
	for v := range 4 {
		ch := must(ctx.CreateCompChannel())
		s := newSide(t, ctx, 64, smallCap)
		check(t, s.qp.Close())
		s.cq = must(ctx.CreateCQ(64, verbs.WithChannel(ch), verbs.WithCompVector(v)))
		s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: s.cq, RecvCQ: s.cq, Cap: smallCap}))
		must(s.cq.ReqNotify(false))
		s.flushInto(1)
		must(ch.GetEvent(within(t, 5*time.Second)))
		s.cq.AckEvents(1)
	}
	for _, v := range []int{4, -1, 1 << 30} {
		_, err := ctx.CreateCQ(64, verbs.WithCompVector(v))
		wantErrno(t, err, syscall.EINVAL)
	}
}

// An event after so many completions or so long a time, whichever is first; 0, 0 turns it off; what is solicited or an
// error waits no longer than the period, and with none not at all.
func TestModeration(t *testing.T) {
	attr := must(openDevice(t, embedded.Options{}).QueryDevice())
	if attr.MaxCQModCount != 65535 || attr.MaxCQModPeriod != 65535 {
		t.Errorf("limits of moderation: %d, %d us", attr.MaxCQModCount, attr.MaxCQModPeriod)
	}
	for _, c := range []struct {
		count, period, messages int
		solicited               bool
		least, most             time.Duration // the event comes within; 0: it does not come
	}{
		{0, 0, 1, false, 0, time.Second},
		{4, 0, 3, false, 0, 0},
		{4, 0, 4, false, 0, time.Second},
		{4, 60000, 4, false, 0, 50 * time.Millisecond},
		{100, 20000, 1, false, 20 * time.Millisecond, 5 * time.Second},
		{0, 20000, 12, false, 20 * time.Millisecond, 5 * time.Second},
		{100, 20000, 1, true, 20 * time.Millisecond, 5 * time.Second},
		{100, 0, 1, true, 0, time.Second},
	} {
		t.Run(fmt.Sprintf("%d/%d/%d/%v", c.count, c.period, c.messages, c.solicited), func(t *testing.T) {
			a, b := newPair(t)
			check(t, b.cq.Modify(c.count, c.period))
			must(b.cq.ReqNotify(false))
			begin := time.Now()
			for i := range uint64(c.messages) {
				check(t, b.qp.PostRecv(b.recv(i, 0, 8)))
				wr := a.send(i, 8)
				if c.solicited {
					wr.Flags |= ib.SendSolicited
				}
				check(t, a.qp.PostSend(wr))
				a.expect(i, ib.WCSuccess)
			}
			wait := c.most
			if wait == 0 {
				wait = 30 * time.Millisecond
			}
			_, err := b.ch.GetEvent(within(t, wait))
			switch took := time.Since(begin); {
			case c.most == 0:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("an event, %v", err)
				}
				// Turning moderation off sends what is held.
				check(t, b.cq.Modify(0, 0))
				must(b.ch.GetEvent(within(t, 5*time.Second)))
				b.cq.AckEvents(1)
			case err != nil:
				t.Fatal(err)
			case took < c.least:
				t.Errorf("the event came after %v", took)
			default:
				b.cq.AckEvents(1)
			}
		})
	}
	s := newSide(t, openDevice(t, embedded.Options{}), 64, smallCap)
	for _, bad := range [][2]int{{65536, 0}, {0, 65536}, {-1, 0}, {0, -1}, {1 << 40, 1}} {
		wantErrno(t, s.cq.Modify(bad[0], bad[1]), syscall.EINVAL)
	}
}

// Everything that completes into a queue that overruns fails, also what was idle; other queues and their queue pairs do
// not notice.
func TestOverrunSpreads(t *testing.T) {
	a, b := newPair(t)
	cap := verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1}
	s := newSide(t, a.ctx, 64, cap)
	other := must(a.ctx.CreateCQ(64))
	attached := map[*verbs.QP]bool{s.qp: true}
	for _, cqs := range [][2]*verbs.CQ{{s.cq, other}, {other, s.cq}, {s.cq, s.cq}} {
		qp := must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cqs[0], RecvCQ: cqs[1], Cap: cap}))
		end := s.end
		end.QPN = qp.QPN()
		check(t, qp.ConnectRC(end, b.end, verbs.RCAttr{}))
		attached[qp] = true
	}
	s.flushInto(64)
	check(t, s.qp.PostRecv(s.recv(64, 0, 8)))
	errs := 0
	for len(attached) > 0 || errs == 0 {
		switch e := must(a.ctx.AsyncEvent(within(t, 5*time.Second))); {
		case e.Type == ib.EventCQErr && e.CQ == s.cq:
			errs++
		case e.Type == ib.EventQPFatal && attached[e.QP]:
			if e.QP.State() != ib.StateErr {
				t.Errorf("QP_FATAL of a queue pair in %v", e.QP.State())
			}
			delete(attached, e.QP)
		default:
			t.Fatalf("event %+v", e)
		}
	}
	s.wantIDs(0, 64)
	for range 2 {
		if _, err := s.cq.Poll(make([]verbs.WC, 1)); !errors.Is(err, verbs.ErrCQOverrun) {
			t.Errorf("poll: %v", err)
		}
	}
	check(t, b.qp.PostRecv(b.recv(1, 0, 64)))
	check(t, a.qp.PostSend(a.send(2, 64)))
	a.expect(2, ib.WCSuccess)
	b.expect(1, ib.WCSuccess)
	if _, err := other.Poll(make([]verbs.WC, 1)); err != nil {
		t.Errorf("another queue: %v", err)
	}
}
