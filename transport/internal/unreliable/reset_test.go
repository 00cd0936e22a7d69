package unreliable_test

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// again takes a queue pair that was reset to RTS: sending from 300 on, expecting 700. What was posted before ends nowhere.
func (s *script) again() {
	s.qp.ended, s.qp.endedRecvs = s.qp.posted, s.qp.postedRecvs
	s.attr.SQPSN, s.attr.RQPSN = 300, 700
	s.modify(ib.StateInit)
	s.e.Modify(s.now, s.as(ib.StateRTR), ib.QPAttrState, path)
	s.modify(ib.StateRTS)
}

// RESET forgets what was posted, sent or not (IBA 10.3.1.1). A new life begins with its own requests and numbers.
func TestResetForgetsRequests(t *testing.T) {
	both(t, func(s *script) {
		s.stuck = true
		s.post(send(10), send(20))
		s.run()
		s.modify(ib.StateReset)
		s.leave() // what the port has it has
		s.sent, s.stuck = nil, false
		s.again()
		s.completes()
		s.post(send(30))
		s.sends(lineOf(s, 300, 30))
		s.completes("send 3 SUCCESS")
	})
}

// A receive that a message had begun to fill is nobody's after RESET.
func TestUCResetForgetsTheMessageInHand(t *testing.T) {
	s := newUC(t)
	s.postRecv(4096)
	s.deliver(packet{op: wire.UCSendFirst, psn: 500, n: 1024, fill: 1})
	s.modify(ib.StateReset)
	s.again()
	s.postRecv(4096)
	s.deliver(packet{op: wire.UCSendLast, psn: 501, n: 10, fill: 2}, packet{op: wire.UCSendOnly, psn: 700, n: 10, fill: 3})
	s.completes("recv 1002 SUCCESS 10")
	s.holds(buffers, 10, 3)
}
