package rc

import (
	"reflect"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A CQ that overruns takes the queue pair to the error state in the middle of an acknowledgement: the rest is flushed.
func TestOverrunInTheMiddleOfAnAck(t *testing.T) {
	s := newScript(t, ackTimeout(10, 0))
	s.post(send(1), send(2), send(3))
	s.skip(at(0))
	s.qp.overrun = true
	s.deliver(at(us), ack(102))
	s.inState(ib.StateErr)
	s.completes(success(1), failed(2, ib.WCWRFlushErr), failed(3, ib.WCWRFlushErr))
	if s.e.Deadline() != clock.Never {
		t.Fatal("a timer runs in the error state")
	}
}

func TestOverrunAtAReadResponse(t *testing.T) {
	s := newScript(t)
	s.post(read(1), send(2))
	s.skip(at(0))
	s.qp.overrun = true
	s.deliver(at(us), readOnly(100, 0, 1))
	s.completes(success(1), failed(2, ib.WCWRFlushErr))
}

// IBA 10.3.1.6: SQD finishes what was started, starts nothing, tells when it has drained, and RTS resumes.
func TestSQD(t *testing.T) {
	for _, notify := range []bool{false, true} {
		s := newScript(t, windowOf(2), ackTimeout(10, 3))
		s.post(send(3*1024), send(1), fetchAdd(1))
		s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024))
		s.attr.EnSQDAsyncNotify = notify
		s.modify(ib.StateSQD, ib.QPAttrEnSQDAsyncNotify)
		draining := func(want bool) {
			t.Helper()
			var a ib.QPAttr
			if s.e.Query(&a); a.SQDraining != want || a.State != ib.StateSQD {
				t.Fatalf("draining %v in state %v, want %v", a.SQDraining, a.State, want)
			}
		}
		s.transmit()
		draining(true)
		s.deliver(at(us), ack(101))
		s.expect(at(us), sendLast(102, 1024)) // the message goes on to its end
		s.expect(at(us+ib.AckTimeout(10)), sendLast(102, 1024))
		draining(true)
		s.deliver(s.now, ack(102))
		s.completes(success(1))
		draining(false)
		if !reflect.DeepEqual(s.qp.states, []ib.QPState{ib.StateSQD}) || notify != (len(s.qp.events) == 1) {
			t.Fatalf("told states %v, events %v", s.qp.states, s.qp.events)
		}
		if notify && s.qp.events[0] != ib.EventSQDrained {
			t.Fatalf("event %v", s.qp.events[0])
		}
		s.post(send(2))
		s.expect(at(ms * 10))
		s.modify(ib.StateRTS, 0)
		s.expect(at(10*ms), sendOnly(103, 1), of(wire.RCFetchAdd, 104, 0))
		s.deliver(s.now, ack(103), atomicAck(104, 0))
		s.expect(s.now, sendOnly(105, 2))
		s.deliver(s.now, ack(105))
		s.completes(success(2), success(3), success(4))
		s.modify(ib.StateSQD, ib.QPAttrEnSQDAsyncNotify) // and again
		s.quiet()
		if len(s.qp.states) != 2 {
			t.Fatalf("drained twice, told states %v", s.qp.states)
		}
	}
}

// An idle queue pair has drained at once, even with a fenced request that was fetched and waits.
func TestSQDWithNothingStarted(t *testing.T) {
	s := newScript(t)
	s.attr.EnSQDAsyncNotify = true
	s.modify(ib.StateSQD, ib.QPAttrEnSQDAsyncNotify)
	s.quiet()
	if len(s.qp.events) != 1 || len(s.qp.states) != 1 {
		t.Fatalf("events %v, states %v", s.qp.events, s.qp.states)
	}

	s = newScript(t)
	s.post(read(1), with(send(2), ib.SendFence))
	s.expect(at(0), readRequest(100, 0, 1))
	s.modify(ib.StateSQD, ib.QPAttrEnSQDAsyncNotify)
	s.deliver(at(us), readOnly(100, 0, 1))
	s.completes(success(1))
	s.quiet()
	if len(s.qp.states) != 1 {
		t.Fatal("not drained")
	}
	s.modify(ib.StateRTS, 0)
	s.expect(at(us), sendOnly(101, 2))
	s.deliver(at(2*us), ack(101))
	s.completes(success(2))
}

// RESET forgets everything, without a completion.
func TestReset(t *testing.T) {
	s := newScript(t, ackTimeout(10, 7))
	s.post(send(3000), read(1), fetchAdd(1))
	s.skip(at(0))
	s.qp.ended, s.qp.sends = s.qp.posted, nil // the device forgets as well
	s.modify(ib.StateReset, 0)
	if s.e.Deadline() != clock.Never {
		t.Fatal("a timer runs in RESET")
	}
	s.deliver(at(us), ack(102))
	s.completes()
	s.modify(ib.StateInit, 0)
	s.modify(ib.StateRTR, 0)
	s.attr.SQPSN = 7
	s.modify(ib.StateRTS, ib.QPAttrSQPSN)
	s.post(send(1))
	s.expect(at(us), sendOnly(7, 1))
	s.deliver(at(2*us), ack(7))
	s.completes(success(4))
}

// Nothing is sent before RTS.
func TestNothingIsSentBeforeRTS(t *testing.T) {
	s := newScript(t)
	s.modify(ib.StateReset, 0)
	s.post(send(1))
	for _, st := range []ib.QPState{ib.StateInit, ib.StateRTR} {
		s.modify(st, 0)
		s.quiet()
	}
	s.modify(ib.StateRTS, ib.QPAttrSQPSN)
	s.expect(at(0), sendOnly(100, 1))
	s.deliver(at(us), ack(100))
	s.completes(success(1))
}

func TestQueryTellsTheNextNumber(t *testing.T) {
	s := newScript(t)
	s.post(read(3000))
	s.skip(at(0))
	var a ib.QPAttr
	if s.e.Query(&a); a.SQPSN != 103 || a.State != ib.StateRTS {
		t.Fatalf("sq_psn %v in state %v", a.SQPSN, a.State)
	}
	s.modify(ib.StateReset, 0)
}
