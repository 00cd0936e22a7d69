package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var numbers = []event{
	{"first PSN", "IBA 9.7.3.1", "the first request has the sq_psn of RTR to RTS", func(s *script) {
		s.with(sqPSN(0x123456))
		s.post(send(1))
		s.expect(at(0), sendOnly(0x123456, 1))
		s.deliver(at(us), ack(0x123456))
		s.completes(success(1))
	}},
	{"first PSN is 24 bits", "IBA 9.7.3.1", "sq_psn is taken modulo 2^24", func(s *script) {
		s.with(sqPSN(0x7000005))
		s.post(send(1))
		s.expect(at(0), sendOnly(5, 1))
		s.deliver(at(us), ack(5))
		s.completes(success(1))
	}},
	{"expected PSN is 24 bits", "IBA 9.7.3.1", "rq_psn is taken modulo 2^24", func(s *script) {
		s.with(rqPSN(0x1000005))
		s.deliver(at(0), writeOnly(5, 8))
		s.expect(at(0), ack(5).msn(1))
	}},
	{"one PSN a packet", "IBA 9.7.3.1", "each packet of a message has the next PSN, and the next message goes on", func(s *script) {
		s.post(send(3000), write(1))
		s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952), writeOnly(103, 1))
		s.deliver(at(us), ack(103))
		s.completes(success(1), success(2))
	}},
	{"READ takes a PSN for each response", "IBA 9.7.3.1", "after a READ of three packets the next request has the PSN after three", func(s *script) {
		s.post(read(3000), send(1))
		s.expect(at(0), readRequest(100, 3000), sendOnly(103, 1))
		s.deliver(at(us), readFirst(100, 0), readMiddle(101, 1024), readLast(102, 2048, 952), ack(103))
		s.completes(success(1), success(2))
	}},
	{"READ of whole packets", "IBA 9.7.3.1", "a READ of exactly two path MTUs takes two PSNs", func(s *script) {
		s.post(read(2048), send(1))
		s.expect(at(0), readRequest(100, 2048), sendOnly(102, 1))
		s.deliver(at(us), readFirst(100, 0), readLast(101, 1024, 1024), ack(102))
		s.completes(success(1), success(2))
	}},
	{"atomics take one PSN", "IBA 9.7.3.1", "so do FLUSH and ATOMIC WRITE", func(s *script) {
		s.post(fetchAdd(1), compareSwap(1, 2), flush(3000), atomicWrite(1))
		s.expect(at(0), fetchAddRequest(100, 1), compareSwapRequest(101, 1, 2), flushRequest(102, 3000), of(wire.RCAtomicWrite, 103, 8))
		s.deliver(at(us), atomicAck(100, 0), atomicAck(101, 0), readOnly(102, 0, 0), ack(103))
		s.completes(success(1), success(2), success(3), success(4))
	}},
	{"zero length takes one PSN", "IBA 9.7.3.1", "SEND, WRITE and READ of nothing are one packet each", func(s *script) {
		s.post(send(0), write(0), read(0), send(1))
		s.expect(at(0), sendOnly(100, 0), writeOnly(101, 0), readRequest(102, 0), sendOnly(103, 1))
		s.deliver(at(us), readOnly(102, 0, 0), ack(103))
		s.completes(success(1), success(2), success(3), success(4))
	}},
	{"requests wrap", "IBA 9.7.3.1", "PSN 0 follows 0xffffff within a message", func(s *script) {
		s.with(sqPSN(0xffffff))
		s.post(send(3000))
		s.expect(at(0), sendFirst(0xffffff, 1024), sendMiddle(0, 1024), sendLast(1, 952))
		s.deliver(at(us), ack(1))
		s.completes(success(1))
	}},
	{"NAK across the wrap", "IBA 9.7.5.1.1", "a NAK of PSN 0 repeats from there and acknowledges 0xffffff", func(s *script) {
		s.with(sqPSN(0xffffff))
		s.post(send(1), send(2))
		s.expect(at(0), sendOnly(0xffffff, 1), sendOnly(0, 2))
		s.deliver(at(us), nak(0, wire.NakSequence))
		s.completes(success(1))
		s.expect(at(us), sendOnly(0, 2))
		s.deliver(at(2*us), ack(0))
		s.completes(success(2))
	}},
	{"READ across the wrap", "IBA 9.7.3.1", "responses are counted through the wrap", func(s *script) {
		s.with(rqPSN(0xfffffe))
		s.deliver(at(0), readRequest(0xfffffe, 2500))
		s.expect(at(0), readFirst(0xfffffe, 0), readMiddle(0xffffff, 1024), readLast(0, 2048, 452))
		s.deliver(at(us), writeOnly(1, 8))
		s.expect(at(us), ack(1).msn(2))
	}},
	{"duplicate across the wrap", "IBA 9.7.5.1.5", "0xffffff is behind an expected PSN of 1", func(s *script) {
		s.with(rqPSN(0xffffff))
		s.deliver(at(0), writeOnly(0xffffff, 8), writeOnly(0, 8))
		s.expect(at(0), ack(0).msn(2))
		s.deliver(at(us), writeOnly(0xffffff, 8))
		s.expect(at(us), ack(0).msn(2))
	}},
	{"farthest gap", "IBA 9.7.3.1", "2^23 - 1 ahead is a gap", func(s *script) {
		s.deliver(at(0), writeOnly(ib.PSN(500).Add(1<<23-1), 8))
		s.expect(at(0), nak(500, wire.NakSequence))
		s.untouched(memory, 8)
	}},
	{"half the numbers ahead", "IBA 9.7.3.1", "2^23 ahead is behind: a duplicate, not executed", func(s *script) {
		s.deliver(at(0), writeOnly(ib.PSN(500).Add(1<<23), 8))
		s.expect(at(0), ack(499).msn(0))
		s.untouched(memory, 8)
	}},
	{"local operations take no PSN", "IBA 9.7.3.1", "BIND_MW and LOCAL_INV make no packet", func(s *script) {
		w := s.window(ib.MWType2)
		s.post(s.bind(w, w.RKey(), 64, ib.AccessRemoteRead), send(1), localInv(w.RKey()), send(2))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(us), ack(100))
		s.expect(at(us), sendOnly(101, 2))
		s.deliver(at(2*us), ack(101))
		s.completes(success(1), success(2), success(3), success(4))
	}},
	{"query tells the next PSN", "IBA 9.7.3.1", "sq_psn moves on with what was sent", func(s *script) {
		s.post(read(3000))
		s.expect(at(0), readRequest(100, 3000))
		same(s, "sq_psn", s.query().SQPSN, 103)
		s.deliver(at(us), readFirst(100, 0), readMiddle(101, 1024), readLast(102, 2048, 952))
		s.completes(success(1))
	}},
	{"outstanding numbers are bounded", "IBA 9.7.3.1", "no more is outstanding than the window", func(s *script) {
		s.with(window(2))
		s.post(send(1), send(2), send(3))
		s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
		s.deliver(at(us), ack(100))
		s.expect(at(us), sendOnly(102, 3))
		s.deliver(at(2*us), ack(102))
		s.completes(success(1), success(2), success(3))
	}},
}
