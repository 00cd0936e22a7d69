package scripts

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var states = []event{
	{"nothing is sent in RTR", "IBA 10.3.1", "posted requests wait for RTS", func(s *script) {
		s.with(only(ib.StateRTR))
		s.post(send(1))
		s.expect(at(0))
		s.modify(ib.StateRTS)
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"requests are served in RTR", "IBA 10.3.1", "the passive side answers before it is told that it is connected", func(s *script) {
		s.with(only(ib.StateRTR))
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0), ack(500))
		s.raises(ib.EventCommEst)
	}},
	{"requests in INIT", "IBA 10.3.1", "dropped", func(s *script) {
		s.with(only(ib.StateInit))
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0))
		s.untouched(memory, 8)
	}},
	{"COMM_EST", "man:ibv_get_async_event", "with the first packet in RTR, once", func(s *script) {
		s.with(only(ib.StateRTR))
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0), ack(500))
		s.raises(ib.EventCommEst)
		s.deliver(at(0), writeOnly(501, 8))
		s.expect(at(0), ack(501))
	}},
	{"no COMM_EST in RTS", "man:ibv_get_async_event", "who is in RTS knows", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8))
		s.expect(at(0), ack(500))
		s.raises()
	}},
	{"QP_REQ_ERR", "man:ibv_get_async_event", "an invalid request that no receive reports", func(s *script) {
		s.deliver(at(0), sendMiddle(500, 1024))
		s.raises(ib.EventQPReqErr)
		s.expect(at(0), nak(500, wire.NakInvalidRequest))
	}},
	{"QP_ACCESS_ERR", "man:ibv_get_async_event", "a remote access error that no receive reports", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).key(1))
		s.raises(ib.EventQPAccessErr)
		s.expect(at(0), nak(500, wire.NakRemoteAccess))
	}},
	{"ERR from ERR", "IBA 10.3.1.7", "the NAK that ended the connection still leaves, whoever says so, too, meanwhile", func(s *script) {
		s.e.Receive(s.now, s.build(writeOnly(500, 8).key(1)))
		s.modify(ib.StateErr)
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
		s.modify(ib.StateErr)
		s.expect(at(0))
	}},
	{"ERR before the ACK", "IBA 10.3.1.7", "what was not answered when the application ended the connection is not", func(s *script) {
		s.e.Receive(s.now, s.build(writeOnly(500, 8)))
		s.modify(ib.StateErr)
		s.expect(at(0))
	}},
	{"SQD finishes what was started", "IBA 10.3.1.6", "the message under way goes on, the next does not begin", func(s *script) {
		s.with(window(1))
		s.post(send(2000), send(1))
		s.expect(at(0), sendFirst(100, 1024))
		s.modify(ib.StateSQD)
		s.deliver(at(us), ack(100))
		s.expect(at(us), sendLast(101, 976))
		s.deliver(at(2*us), ack(101))
		s.completes(success(1))
		s.expect(at(3 * us))
		s.modify(ib.StateRTS)
		s.expect(at(3*us), sendOnly(102, 1))
		s.deliver(at(4*us), ack(102))
		s.completes(success(2))
	}},
	{"SQ_DRAINED", "IBA 10.3.1.6", "when everything started was acknowledged, if asked for", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.choice.attr.EnSQDAsyncNotify = true
		s.modify(ib.StateSQD)
		s.raises()
		same(s, "sq_draining", s.query().SQDraining, true)
		s.deliver(at(us), ack(100))
		s.completes(success(1))
		s.raises(ib.EventSQDrained)
		same(s, "sq_draining", s.query().SQDraining, false)
	}},
	{"SQ_DRAINED not asked for", "IBA 10.3.1.6", "no event", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.modify(ib.StateSQD)
		s.deliver(at(us), ack(100))
		s.completes(success(1))
		s.raises()
		same(s, "sq_draining", s.query().SQDraining, false)
	}},
	{"idle SQD", "IBA 10.3.1.6", "with nothing started it has drained at once", func(s *script) {
		s.choice.attr.EnSQDAsyncNotify = true
		s.modify(ib.StateSQD)
		s.raises(ib.EventSQDrained)
	}},
	{"SQD serves the peer", "IBA 10.3.1.6", "the receive side is not affected", func(s *script) {
		s.modify(ib.StateSQD)
		s.postRecv(64)
		s.deliver(at(0), sendOnly(500, 8), readRequest(501, 8))
		s.expect(at(0), ack(500), readOnly(501, 0, 8))
		s.receives(received(1001, 8))
	}},
	{"SQD retries", "IBA 10.3.1.6", "what was started is still repeated", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.modify(ib.StateSQD)
		s.expect(at(tick), sendOnly(100, 1))
		s.deliver(s.now, ack(100))
		s.completes(success(1))
	}},
	{"ERR flushes", "IBA 10.3.1.7", "sends and receives, each in the order of posting", func(s *script) {
		s.post(send(1), unsignaled(send(2)))
		s.postRecv(64, 64)
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.modify(ib.StateErr)
		s.completes(flushed(1, 2)...)
		s.receives(flushed(1001, 1002)...)
	}},
	{"posting in ERR", "IBA 10.8.3", "the drain idiom: a marker is flushed behind everything", func(s *script) {
		s.post(send(1))
		s.modify(ib.StateErr)
		s.completes(flushed(1)...)
		s.post(send(2))
		s.postRecv(8)
		s.completes(flushed(2)...)
		s.receives(flushed(1001)...)
	}},
	{"half a message in ERR", "IBA 10.3.1.7", "the receive that was begun is flushed as well", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024))
		s.modify(ib.StateErr)
		s.expect(at(0))
		s.receives(flushed(1001)...)
	}},
	{"answers in ERR", "IBA 10.3.1.7", "stop, even a READ's in the middle", func(s *script) {
		s.deliver(at(0), readRequest(500, 3000))
		s.modify(ib.StateErr)
		s.expect(at(0))
	}},
	{"answers after a failed send", "IBA 10.3.1.7", "both halves of a connection end together", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), readRequest(500, 3000))
		s.e.Receive(s.now, s.build(nak(100, wire.NakRemoteAccess)))
		s.expect(at(us))
		s.completes(failure(1, ib.WCRemAccessErr))
	}},
	{"timers in ERR", "IBA 10.3.1.7", "there are none", func(s *script) {
		s.with(timeout(10, 7))
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.modify(ib.StateErr)
		s.completes(flushed(1)...)
		same(s, "deadline", s.e.Deadline(), clock.Never)
	}},
	{"RESET and again", "IBA 10.3.1", "the next life begins with its own PSNs and remembers nothing", func(s *script) {
		s.deliver(at(0), fetchAddRequest(500, 1))
		s.expect(at(0), atomicAck(500, s.word(memory)-1))
		s.modify(ib.StateReset)
		s.change(ib.QPAttrState, func(a *ib.QPAttr) { a.State = ib.StateReset })
		s.with(sqPSN(7), rqPSN(900))
		s.deliver(at(us), fetchAddRequest(500, 1))
		s.expect(at(us))
		s.post(send(1))
		s.expect(at(us), sendOnly(7, 1))
		s.deliver(at(2*us), ack(7), writeOnly(900, 8))
		s.completes(success(1))
		s.expect(at(2*us), ack(900).msn(1))
	}},
	{"shared receives", "IBA 10.2.9", "are taken in their order", func(s *script) {
		s.qp.shared = true
		s.postRecv(64, 64)
		s.deliver(at(0), sendOnly(500, 8), sendOnly(501, 9))
		s.expect(at(0), ack(501))
		s.receives(received(1001, 8), received(1002, 9))
	}},
	{"empty shared queue", "IBA 10.2.9", "RNR NAK", func(s *script) {
		s.qp.shared = true
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), rnrNak(500, 12))
	}},
	{"ERR beside a shared queue", "IBA 10.2.9", "receives that were not taken stay for others", func(s *script) {
		s.qp.shared = true
		s.postRecv(4096, 64)
		s.deliver(at(0), sendFirst(500, 1024), sendFirst(501, 1024))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
		same(s, "receives left", len(s.qp.recvs), 1)
	}},
	{"shared queue in error", "IBA 10.2.9", "who needs a receive of it goes to ERR: QP_FATAL", func(s *script) {
		s.qp.broken = true
		s.deliver(at(0), sendOnly(500, 8))
		s.refuses(nak(500, wire.NakRemoteOperation), ib.EventQPFatal)
	}},
	{"CQ overrun by a receive", "IBA 10.3.1.7", "nothing is acknowledged that was not delivered", func(s *script) {
		s.postRecv(64, 64)
		s.qp.overrun = func() { s.modify(ib.StateErr) }
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0))
		s.receives(received(1001, 8), failure(1002, ib.WCWRFlushErr))
	}},
	{"CQ overrun by a send", "IBA 10.3.1.7", "what an ACK still covered is flushed", func(s *script) {
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.qp.overrun = func() { s.modify(ib.StateErr) }
		s.deliver(at(us), ack(101))
		s.completes(success(1), failure(2, ib.WCWRFlushErr))
	}},
	{"vendor_err of a flush", "IBA 10.8.3", "says that it was one", func(s *script) {
		s.post(send(1))
		s.modify(ib.StateErr)
		s.transmit()
		same(s, "vendor_err", s.qp.sendDone[0].VendorErr, transport.VendorFlushed)
		s.completes(flushed(1)...)
	}},
}
