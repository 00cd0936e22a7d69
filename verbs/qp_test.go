package verbs_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func (s *side) query() verbs.QPAttr {
	s.t.Helper()
	attr, _, err := s.qp.Query()
	check(s.t, err)
	return attr
}

func (s *side) to(state ib.QPState) {
	s.t.Helper()
	check(s.t, s.qp.Modify(&verbs.QPAttr{State: state}, ib.QPAttrState))
}

// nothing wants no completion for a while.
func (s *side) nothing() {
	s.t.Helper()
	time.Sleep(5 * time.Millisecond)
	var wc [1]verbs.WC
	if n, err := s.cq.Poll(wc[:]); n != 0 || err != nil {
		s.t.Fatalf("completion %+v, %v", wc[0], err)
	}
}

// awaitRefusal returns when the peer had no receive for what was sent.
func (s *side) awaitRefusal() {
	s.t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, c := range must(s.qp.Counters()) {
			if c.Name == "rnr_nak_retry_err" && c.Value > 0 {
				return
			}
		}
	}
	s.t.Fatal("nothing is refused")
}

// In SQD what was started ends, what was not waits; only a drained queue's attributes change; RTS goes on.
func TestSQD(t *testing.T) {
	a, b := newPair(t)
	a.ctx.AsyncEvent(expired())
	check(t, a.qp.PostSend(a.send(1, 64), a.send(2, 64))) // started: b has no receive, they wait by its RNR timer
	a.awaitRefusal()
	check(t, a.qp.Modify(&verbs.QPAttr{State: ib.StateSQD, EnSQDAsyncNotify: true}, ib.QPAttrState|ib.QPAttrEnSQDAsyncNotify))
	check(t, a.qp.PostSend(a.send(3, 64)))
	if q := a.query(); q.State != ib.StateSQD || !q.SQDraining {
		t.Errorf("state %s, draining %v", q.State, q.SQDraining)
	}
	drained := verbs.QPAttr{Timeout: 19, RetryCnt: 3, RNRRetry: 4, MaxRDAtomic: 5, MaxDestRDAtomic: 6, MinRNRTimer: 7, AccessFlags: ib.AccessRemoteRead}
	mask := ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrMaxRDAtomic | ib.QPAttrMaxDestRDAtomic |
		ib.QPAttrMinRNRTimer | ib.QPAttrAccessFlags
	wantErrno(t, a.qp.Modify(&drained, mask), syscall.EINVAL)
	a.noEvent()
	check(t, b.qp.PostRecv(b.recv(11, 0, 64), b.recv(12, 0, 64), b.recv(13, 0, 64)))
	a.expect(1, ib.WCSuccess)
	a.expect(2, ib.WCSuccess)
	if e := a.event(ib.EventSQDrained); e.QP != a.qp {
		t.Errorf("event %+v", e)
	}
	a.nothing()
	if q := a.query(); q.State != ib.StateSQD || q.SQDraining || q.Timeout == 19 {
		t.Errorf("after draining: %+v", q)
	}
	check(t, a.qp.Modify(&drained, mask))
	q := a.query()
	if q.Timeout != 19 || q.RetryCnt != 3 || q.RNRRetry != 4 || q.MaxRDAtomic != 5 || q.MaxDestRDAtomic != 6 || q.MinRNRTimer != 7 ||
		q.AccessFlags != ib.AccessRemoteRead {
		t.Errorf("set %+v, got %+v", drained, q)
	}
	a.nothing()
	a.to(ib.StateRTS)
	a.expect(3, ib.WCSuccess)

	// The receive side goes on in SQD. Without the flag there is no event; the state tells.
	a.to(ib.StateSQD)
	check(t, a.qp.PostRecv(a.recv(21, 128, 64)))
	check(t, b.qp.PostSend(b.send(22, 64)))
	a.expect(21, ib.WCSuccess)
	if q := a.query(); q.SQDraining {
		t.Error("an idle queue is not drained")
	}
	a.noEvent()
	a.to(ib.StateErr)
	check(t, a.qp.PostSend(a.send(4, 64)))
	a.expect(4, ib.WCWRFlushErr)
}

// A queue pair goes through RESET and serves again, as often as wanted, whatever it was doing.
func TestResetAndReuse(t *testing.T) {
	a, b := newPair(t)
	for round := range uint64(20) {
		check(t, b.qp.PostRecv(b.recv(1, 1<<10, 64), b.recv(2, 1<<10, 64)))
		a.buf.Bytes()[0] = byte(round + 1)
		check(t, a.qp.PostSend(a.send(3, 64)))
		a.expect(3, ib.WCSuccess)
		b.expect(1, ib.WCSuccess)
		if b.buf.Bytes()[1<<10] != byte(round+1) {
			t.Fatalf("round %d: nothing arrived", round)
		}
		switch round % 3 {
		case 1: // with a receive that waits, and completions that nobody took
			check(t, a.qp.PostSend(a.send(4, 64)))
			time.Sleep(time.Millisecond)
		case 2: // from the error state
			a.to(ib.StateErr)
			b.to(ib.StateErr)
		}
		a.to(ib.StateReset)
		b.to(ib.StateReset)
		q := a.query()
		if want := (verbs.QPAttr{Cap: a.qp.Cap()}); q != want {
			t.Fatalf("in RESET %+v, want %+v", q, want)
		}
		wantErrno(t, a.qp.PostSend(a.send(9, 1)), syscall.EINVAL)
		a.end.PSN, b.end.PSN = verbs.RandomPSN(), verbs.RandomPSN()
		connectSides(t, a, b, verbs.RCAttr{})
		a.nothing()
		b.nothing()
	}
}

func TestQueryReturnsWhatWasSet(t *testing.T) {
	var net embedded.Network
	a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap)
	b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap)
	attr := verbs.RCAttr{PathMTU: ib.MTU512, Access: ib.AccessRemoteRead, RDAtomic: 9, MinRNRTimer: 21, Timeout: 17, RetryCnt: 5,
		RNRRetry: 6, FlowLabel: 0xabcde, HopLimit: 33}
	a.end.PSN, b.end.PSN = 0xfffffe, 0x123456
	connectSides(t, a, b, attr)
	q, init, err := a.qp.Query()
	check(t, err)
	want := verbs.QPAttr{
		State: ib.StateRTS, CurState: ib.StateRTS, PathMTU: ib.MTU512, RQPSN: 0x123456, SQPSN: 0xfffffe, DestQPN: b.qp.QPN(),
		AccessFlags: ib.AccessRemoteRead, Cap: a.qp.Cap(), MaxRDAtomic: 9, MaxDestRDAtomic: 9, MinRNRTimer: 21, PortNum: 1,
		Timeout: 17, RetryCnt: 5, RNRRetry: 6,
		AH: ib.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: b.end.GID, FlowLabel: 0xabcde, HopLimit: 33}},
	}
	if q != want || init.Type != ib.QPTypeRC || init.SendCQ != a.cq || init.Cap != a.qp.Cap() {
		t.Errorf("query\n%+v, want\n%+v\ninit %+v", q, want, init)
	}
	// PSNs move on.
	check(t, b.qp.PostRecv(b.recv(1, 0, 4096)))
	check(t, a.qp.PostSend(a.send(2, 2048)))
	a.expect(2, ib.WCSuccess)
	if q, p := a.query(), b.query(); q.SQPSN != 2 || p.RQPSN != 2 {
		t.Errorf("after 4 packets sq_psn %v, rq_psn %v", q.SQPSN, p.RQPSN)
	}
	// What Ethernet and the state table do not have: a refusal, and nothing changes.
	before := a.query()
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{}, ib.QPAttrAltPath), syscall.EOPNOTSUPP)
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{PathMigState: 1}, ib.QPAttrPathMigState), syscall.EINVAL)
	// RATE_LIMIT is for raw packet queue pairs (IBA has none, ibv_modify_qp's table only there); connections are paced by
	// the static rate of their address vector.
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{RateLimit: 1000}, ib.QPAttrRateLimit), syscall.EINVAL)
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{State: ib.StateRTS, MinRNRTimer: 32}, ib.QPAttrState|ib.QPAttrMinRNRTimer), syscall.EINVAL)
	if got := a.query(); got != before {
		t.Errorf("refused changes changed %+v to %+v", before, got)
	}
}

// No more READs are outstanding than was agreed, and none at all if that is 0 (IBA 9.7.4.1.4).
func TestRDAtomicLimits(t *testing.T) {
	for _, c := range []struct {
		depth, resources uint8
		want             ib.WCStatus
		event            bool
	}{{1, 1, ib.WCSuccess, false}, {3, 3, ib.WCSuccess, false}, {0, 3, ib.WCLocQPOpErr, false}, {3, 0, ib.WCRemInvReqErr, true}} {
		t.Run(fmt.Sprint(c.depth, c.resources), func(t *testing.T) {
			var net embedded.Network
			a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap)
			b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap)
			connect(t, a, b.end, func(q *verbs.QPAttr) { q.MaxRDAtomic = c.depth })
			connect(t, b, a.end, func(q *verbs.QPAttr) { q.MaxDestRDAtomic = c.resources })
			for i := range uint64(10) {
				check(t, a.qp.PostSend(verbs.SendWR{WRID: i, Opcode: ib.WRRDMARead, Flags: ib.SendSignaled, RemoteAddr: b.mr.Addr(),
					RKey: b.mr.RKey(), SGList: []verbs.SGE{a.mr.SGE(int(i)*5000, 5000)}}))
			}
			for i := range uint64(10) {
				want := c.want
				if i > 0 && want != ib.WCSuccess {
					want = ib.WCWRFlushErr
				}
				a.expect(i, want)
			}
			if c.event {
				for b.next0(t) != ib.EventQPReqErr {
				}
			}
		})
	}
	a, _ := newPair(t)
	dev := must(a.ctx.QueryDevice())
	a.to(ib.StateSQD)
	for a.query().SQDraining {
	}
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{MaxRDAtomic: uint8(dev.MaxQPInitRDAtom + 1)}, ib.QPAttrMaxRDAtomic), syscall.EINVAL)
	wantErrno(t, a.qp.Modify(&verbs.QPAttr{MaxDestRDAtomic: uint8(dev.MaxQPRDAtom + 1)}, ib.QPAttrMaxDestRDAtomic), syscall.EINVAL)
}

// next0 returns the type of the next event.
func (s *side) next0(t *testing.T) ib.EventType {
	t.Helper()
	ctx, cancel := timeout()
	defer cancel()
	e, err := s.ctx.AsyncEvent(ctx)
	check(t, err)
	return e.Type
}

// connect takes a side through INIT and RTR to RTS with attributes that edit has changed.
func connect(t testing.TB, s *side, peer verbs.Endpoint, edit func(*verbs.QPAttr)) {
	t.Helper()
	for _, step := range []struct {
		state ib.QPState
		mask  ib.QPAttrMask
	}{
		{ib.StateInit, ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags},
		{ib.StateRTR, ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN | ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer},
		{ib.StateRTS, ib.QPAttrSQPSN | ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrMaxRDAtomic},
	} {
		q := verbs.QPAttr{
			State: step.state, PortNum: 1, AccessFlags: ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic,
			PathMTU: ib.MTU1024, DestQPN: peer.QPN, RQPSN: peer.PSN, MaxDestRDAtomic: 4, MinRNRTimer: 5,
			AH:    ib.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: peer.GID}},
			SQPSN: s.end.PSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 4,
		}
		if edit != nil {
			edit(&q)
		}
		check(t, s.qp.Modify(&q, ib.QPAttrState|step.mask))
	}
}

// The responder's table changes its size while READs are being answered, and nothing is lost (field bug B27).
func TestB27MaxDestRDAtomicUnderTraffic(t *testing.T) {
	a, b := newPair(t)
	for i := range 1 << 15 {
		b.buf.Bytes()[i] = byte(i * 7)
	}
	b.to(ib.StateSQD)
	for b.query().SQDraining {
	}
	done := make(chan error, 1)
	go func() {
		for i := range 300 {
			// Never below what a uses.
			if err := b.qp.Modify(&verbs.QPAttr{MaxDestRDAtomic: uint8(16 + i*37%112)}, ib.QPAttrMaxDestRDAtomic); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	posted, completed := uint64(0), uint64(0)
	for running := true; running || completed < posted; {
		for running && posted-completed < 16 {
			check(t, a.qp.PostSend(verbs.SendWR{WRID: posted, Opcode: ib.WRRDMARead, Flags: ib.SendSignaled, RemoteAddr: b.mr.Addr() + posted%512,
				RKey: b.mr.RKey(), SGList: []verbs.SGE{a.mr.SGE(int(posted%16)*2000, 1500)}}))
			posted++
		}
		a.expect(completed, ib.WCSuccess)
		for i, v := range a.buf.Bytes()[completed%16*2000:][:1500] {
			if want := byte((int(completed%512) + i) * 7); v != want {
				t.Fatalf("READ %d: byte %d is %d, want %d", completed, i, v, want)
			}
		}
		completed++
		select {
		case err := <-done:
			check(t, err)
			running = false
		default:
		}
	}
	if q := b.query(); q.State != ib.StateSQD {
		t.Errorf("state %s", q.State)
	}
}

// Each queue pair counts for itself; the device counts the sum, also of those that are gone.
func TestCountersOfQueuePairs(t *testing.T) {
	apart(t)
	a, b := newPair(t)
	count := func(list []verbs.Counter, err error) map[string]uint64 {
		check(t, err)
		m := map[string]uint64{}
		for _, c := range list {
			m[c.Name] = c.Value
		}
		return m
	}
	check(t, a.qp.PostSend(a.send(1, 64)))
	a.awaitRefusal()
	check(t, b.qp.PostRecv(b.recv(2, 0, 64)))
	a.expect(1, ib.WCSuccess)
	own, peer := count(a.qp.Counters()), count(b.qp.Counters())
	if own["rnr_nak_retry_err"] == 0 || own["retransmissions"] == 0 || peer["out_of_buffer"] == 0 || own["out_of_buffer"] != 0 {
		t.Errorf("counters %v and %v", own, peer)
	}
	other := must(a.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: smallCap}))
	for name, v := range count(other.Counters()) {
		if v != 0 {
			t.Errorf("a new queue pair counts %d %s", v, name)
		}
	}
	all := count(a.ctx.QueryCounters())
	for name, v := range own {
		if all[name] != v {
			t.Errorf("the device counts %d %s, its only busy queue pair %d", all[name], name, v)
		}
	}
	check(t, a.qp.Close())
	gone := count(a.ctx.QueryCounters())
	for name, v := range own {
		if gone[name] != v {
			t.Errorf("%d %s went with their queue pair, %d are left", v, name, gone[name])
		}
	}
	if _, err := a.qp.Counters(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("counters of what is closed: %v", err)
	}
}
