package unreliable_test

import (
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// A request ends when the port has its packets, not before: until then the port may read the memory (IBA 9.8.2.1, 9.8.3.1).
func TestCompletesWhenTheFramesHaveLeft(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(100), send(200))
		s.run()
		s.completes()
		if d := s.e.Deadline().Sub(s.now); d <= 0 || d > time.Millisecond {
			t.Errorf("the next look is in %v", d)
		}
		s.leave()
		s.now = s.e.Deadline()
		s.e.Expire(s.now)
		s.completes("send 1 SUCCESS", "send 2 SUCCESS")
		s.sent = nil
	})
}

// Inline data of one request is not overwritten by the next while its frame waits.
func TestInlineDataWaitsWithItsFrame(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		for _, c := range []byte{1, 2, 3} {
			r := send(0)
			r.SGE, r.IsInline, r.Length, r.Inline = nil, true, 4, wire.Buffer{B: []byte{c, c, c, c}}
			s.post(r)
		}
		s.run()
		for i := range s.burst.Frames() {
			var b [4]byte
			if err := dma.ReadPieces(b[:], s.burst.Frames()[i].Payload()); err != nil || b[0] != byte(i+1) {
				t.Errorf("frame %d holds %v, error %v", i, b, err)
			}
		}
		s.leave()
		s.sent, s.stuck = nil, false
		s.now = s.e.Deadline()
		s.completes("send 1 SUCCESS", "send 2 SUCCESS", "send 3 SUCCESS")
	})
}

// Local errors of UC and UD: the send queue is in SQE, everything behind is flushed, receives go on (reference 3.11, 5.1).
func TestLocalErrors(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(s *script, r *transport.Request)
		status string
	}{
		"key":       {func(s *script, r *transport.Request) { r.SGE[0].LKey = s.mr.LKey ^ 0x100 }, "LOC_PROT_ERR"},
		"range":     {func(s *script, r *transport.Request) { r.SGE[0].Addr = base + 1<<16 - 5 }, "LOC_PROT_ERR"},
		"READ":      {func(s *script, r *transport.Request) { r.Opcode = ib.WRRDMARead }, "LOC_QP_OP_ERR"},
		"atomic":    {func(s *script, r *transport.Request) { r.Opcode = ib.WRAtomicFetchAdd }, "LOC_QP_OP_ERR"},
		"SEND_INV":  {func(s *script, r *transport.Request) { r.Opcode = ib.WRSendWithInv }, "LOC_QP_OP_ERR"},
		"malformed": {func(s *script, r *transport.Request) { s.qp.malformed = true }, "LOC_QP_OP_ERR"},
		"too long":  {func(s *script, r *transport.Request) { r.Length = 1<<20 + 1 }, "LOC_LEN_ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(s *script) {
				bad := send(10)
				s.post(send(10))
				s.sends(lineOf(s, 100, 10))
				s.completes("send 1 SUCCESS")
				c.spoil(s, &bad)
				s.post(bad, send(10))
				s.sends()
				s.completes("send 2 "+c.status, "send 3 WR_FLUSH_ERR")
				s.inState(ib.StateSQE)
				if !slices.Equal(s.qp.states, []ib.QPState{ib.StateSQE}) {
					s.t.Errorf("the device heard of %v", s.qp.states)
				}
				s.post(send(10))
				s.completes("send 4 WR_FLUSH_ERR")
				// What was posted in SQE is flushed, though RTS comes before anybody looked (IBA 10.3.1).
				s.post(send(10))
				s.modify(ib.StateRTS)
				s.post(send(10))
				s.sends(lineOf(s, 101, 10))
				s.completes("send 5 WR_FLUSH_ERR", "send 6 SUCCESS")
			})
		})
	}
}

// lineOf is a packet of a short SEND of the script's service.
func lineOf(s *script, psn ib.PSN, n int) string {
	op := wire.UCSendOnly
	if s.service() == wire.ServiceUD {
		op = wire.UDSendOnly
	}
	return line(op, psn, n)
}

// A request that fails at once has to wait for its turn to say so, and meanwhile nothing behind it is sent.
func TestNothingIsSentBehindAFailure(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		bad := send(10)
		bad.Opcode = ib.WRRDMARead
		s.post(send(10), bad, send(10))
		s.run()
		s.completes()
		s.inState(ib.StateRTS)
		s.stuck = false
		s.leave()
		s.now = s.e.Deadline()
		s.sends(lineOf(s, 100, 10))
		s.completes("send 1 SUCCESS", "send 2 LOC_QP_OP_ERR", "send 3 WR_FLUSH_ERR")
	})
}

// The memory of a frame that waits can go away. Its request fails, those behind it are flushed once their frames are gone.
func TestFaultedFrame(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(10), send(20), send(30))
		s.run()
		cookie := s.burst.Frames()[1].Cookie
		s.leave()
		s.sent, s.stuck = nil, false
		if !s.e.Faulted(s.now, cookie) || s.e.Faulted(s.now, cookie+100) {
			t.Error("the wrong frame was found")
		}
		s.completes("send 1 SUCCESS", "send 2 LOC_PROT_ERR", "send 3 WR_FLUSH_ERR")
		s.inState(ib.StateSQE)
	})
}

func TestErrorFlushesEverything(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(10))
		s.run()
		s.post(send(10))
		s.postRecv(100, 100)
		s.modify(ib.StateErr)
		s.run()
		s.leave()
		s.sent, s.stuck = nil, false
		s.now = max(s.now, s.e.Deadline())
		s.run()
		slices.Sort(s.qp.done)
		s.completes("recv 1001 WR_FLUSH_ERR 0", "recv 1002 WR_FLUSH_ERR 0", "send 1 WR_FLUSH_ERR", "send 2 WR_FLUSH_ERR")
		s.modify(ib.StateReset)
		s.inState(ib.StateReset)
	})
}

func TestAbort(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(10), send(10))
		s.run()
		s.e.(transport.Aborter).Abort(s.now, ib.WCGeneralErr, transport.VendorInternalPanic)
		s.leave()
		s.sent, s.stuck = nil, false
		s.now = max(s.now, s.e.Deadline())
		s.completes("send 1 GENERAL_ERR", "send 2 WR_FLUSH_ERR")
		s.inState(ib.StateErr)
	})
}

// SQD finishes what was begun, starts nothing, and tells when it is done (IBA 10.3.1.6).
func TestDrain(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(10))
		s.run()
		s.post(send(20))
		s.attr.EnSQDAsyncNotify = true
		s.modify(ib.StateSQD)
		s.run()
		if len(s.qp.events) != 0 {
			t.Error("drained while a frame waits")
		}
		s.leave()
		s.sent, s.stuck = nil, false
		s.now = max(s.now, s.e.Deadline())
		s.completes("send 1 SUCCESS")
		s.sends()
		if !slices.Equal(s.qp.events, []ib.EventType{ib.EventSQDrained}) || !slices.Equal(s.qp.states, []ib.QPState{ib.StateSQD}) {
			t.Errorf("events %v, states %v", s.qp.events, s.qp.states)
		}
		s.modify(ib.StateRTS)
		s.completes("send 2 SUCCESS")
		s.sent = nil
		for n := 2; n < 4; n++ {
			s.modify(ib.StateSQD)
			s.run()
			if len(s.qp.events) != n {
				t.Errorf("drained again: events %v", s.qp.events)
			}
			s.modify(ib.StateRTS)
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	both(t, func(s *script) {
		s.qp.silent = true
		request, recv := send(100), transport.Receive{SGE: []ib.SGE{{Addr: buffers, Length: 500, LKey: s.mr.LKey}}, Length: 500}
		request.SGE[0].LKey = s.mr.LKey
		op := wire.UCSendOnly
		if s.service() == wire.ServiceUD {
			op = wire.UDSendOnlyImm
		}
		in := s.packet(packet{op: op, n: 100})
		sends, recvs := make([]transport.Request, 0, 1), make([]transport.Receive, 0, 1)
		if n := testing.AllocsPerRun(200, func() {
			request.Index, recv.Index = s.qp.ended, s.qp.endedRecvs
			s.qp.sends, s.qp.recvs = append(sends, request), append(recvs, recv)
			s.e.Transmit(s.now, s.burst, 1<<20)
			s.burst.Consume(s.burst.Len())
			s.e.Expire(s.now)
			s.e.Transmit(s.now, s.burst, 1<<20)
			s.e.Receive(s.now, in)
		}); n != 0 {
			t.Errorf("%v allocations a message", n)
		}
		if s.qp.ended == 0 || s.qp.ended != s.qp.endedRecvs {
			t.Errorf("%d sends, %d receives", s.qp.ended, s.qp.endedRecvs)
		}
	})
}
