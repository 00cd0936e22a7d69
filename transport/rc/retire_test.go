package rc

import (
	"reflect"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Requests complete in the order of posting. What is behind an unfinished READ waits for it.
func TestCompletionOrder(t *testing.T) {
	s := newScript(t)
	s.post(read(2000), send(1), read(5), send(2))
	s.skip(at(0))
	s.deliver(at(us), readFirst(100, 0, 1024))
	s.completes()
	s.deliver(at(us), readLast(101, 1024, 976))
	s.completes(success(1))
	s.deliver(at(us), readOnly(103, 0, 5))
	s.completes(success(2), success(3))
	s.deliver(at(us), ack(104))
	s.completes(success(4))
}

// byte_len is the length of the message, whatever the operation.
func TestCompletionByteLen(t *testing.T) {
	s := newScript(t)
	s.post(send(2000), read(5), write(0))
	s.skip(at(0))
	s.deliver(at(us), ack(101), readOnly(102, 0, 5), ack(103))
	for i, want := range []uint32{2000, 5, 0} {
		if got := s.qp.sendDone[i].detail.ByteLen; got != want {
			t.Errorf("byte_len of request %d is %d, want %d", i+1, got, want)
		}
	}
	s.completes(success(1), success(2), success(3))
}

// IBA 10.8.3: unsignaled requests are silent when they succeed, never when they fail or are flushed.
func TestUnsignaled(t *testing.T) {
	s := newScript(t)
	s.post(unsignaled(send(1)), unsignaled(read(1)), unsignaled(write(1)), unsignaled(send(2)))
	s.skip(at(0))
	s.deliver(at(us), ack(100), readOnly(101, 0, 1))
	s.completes()
	if s.qp.silent != 2 {
		t.Fatalf("%d ended in silence, want 2", s.qp.silent)
	}
	s.deliver(at(2*us), nak(102, wire.NakRemoteAccess))
	s.completes(failed(3, ib.WCRemAccessErr), failed(4, ib.WCWRFlushErr))
}

// IBA 10.3.1.7: the error first, with its own status; then what was sent, what was only posted, and what is posted later
// (the marker of ib_drain_qp), in order, each once.
func TestErrorThenFlush(t *testing.T) {
	s := newScript(t, windowOf(2), maxRDAtomic(1))
	s.post(send(1), send(2), send(3), read(4), read(5))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), nak(100, wire.NakInvalidRequest))
	s.completes(failed(1, ib.WCRemInvReqErr), failed(2, ib.WCWRFlushErr), failed(3, ib.WCWRFlushErr),
		failed(4, ib.WCWRFlushErr), failed(5, ib.WCWRFlushErr))
	if !reflect.DeepEqual(s.qp.states, []ib.QPState{ib.StateErr}) {
		t.Fatalf("states told: %v", s.qp.states)
	}
	s.post(send(6))
	s.completes(failed(6, ib.WCWRFlushErr))
	s.counts("flushes", s.counters.ReqCQEFlushError, 5)
}

// The flush keeps to its budget, 64 bytes a completion.
func TestFlushKeepsToItsBudget(t *testing.T) {
	s := newScript(t, windowOf(1))
	s.post(send(1), send(2), send(3), send(4))
	s.skip(at(0))
	s.modify(ib.StateErr, 0)
	n, more := s.e.Transmit(s.now, s.burst, 2*64)
	if n != 2*64 || !more || len(s.qp.sendDone) != 2 {
		t.Fatalf("%d bytes, more %v, %d completions", n, more, len(s.qp.sendDone))
	}
	s.completes(flushed(1, 2, 3, 4)...)
}

// Work posted to a queue pair that went to ERR before it was ever connected is flushed too.
func TestFlushWithoutConnection(t *testing.T) {
	s := newScript(t)
	s.modify(ib.StateReset, 0)
	s.modify(ib.StateInit, 0)
	s.modify(ib.StateErr, 0)
	s.qp.malformed = map[uint32]bool{1: true}
	s.post(send(1), send(2))
	s.completes(flushed(1, 2)...)
}

// Field bug B14: every request ends exactly once, however often the ring and its positions wrap, and through any number
// of errors. The fake queue pair checks each index.
func TestEveryRequestEndsOnce(t *testing.T) {
	s := newScript(t, sendQueue(5), startPSN(0xfffff0))
	for round := range 200 {
		if round%4 == 1 {
			// The positions wrap in this round, while the cursor is behind what is acknowledged.
			s.e.req.q.head, s.e.req.q.tail, s.e.req.cursor.position = ^uint32(2), ^uint32(2), ^uint32(2)
		}
		first := s.e.req.nxt
		id := uint64(s.qp.posted) + 1
		s.post(send(1), unsignaled(send(2)), write(1), send(4), send(5))
		s.skip(s.now)
		switch round % 4 {
		case 0:
			s.deliver(s.now.Add(us), ack(first.Add(4)))
			s.completes(success(id), success(id+2), success(id+3), success(id+4))
		case 1:
			s.deliver(s.now.Add(us), ack(first), nak(first.Add(2), wire.NakSequence), ack(first.Add(4)))
			s.skip(s.now)
			s.completes(success(id), success(id+2), success(id+3), success(id+4))
		default:
			s.deliver(s.now.Add(us), nak(first.Add(1), wire.NakRemoteOperation))
			s.completes(success(id), failed(id+1, ib.WCRemOpErr), failed(id+2, ib.WCWRFlushErr), failed(id+3, ib.WCWRFlushErr),
				failed(id+4, ib.WCWRFlushErr))
			s.modify(ib.StateReset, 0)
			s.modify(ib.StateInit, 0)
			s.modify(ib.StateRTR, 0)
			s.modify(ib.StateRTS, ib.QPAttrSQPSN)
		}
	}
	if s.qp.ended != s.qp.posted {
		t.Fatalf("%d posted, %d ended", s.qp.posted, s.qp.ended)
	}
}
