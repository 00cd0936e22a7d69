package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var lengths = []event{
	{"FIRST shorter than the path MTU", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1020))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"MIDDLE shorter than the path MTU", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(4096), writeMiddle(501, 512))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"LAST without payload", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024), sendLast(501, 0))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"ONLY longer than the path MTU", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendOnly(500, 1028))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"wrong pad count", "IBA 9.2", "a FIRST with pad is malformed: NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(2048).badPad())
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 1024)
	}},
	{"READ request with payload", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), of(wire.RCReadRequest, 500, 8).length(8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"atomic with payload", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), of(wire.RCFetchAdd, 500, 8).operand(1))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 8)
	}},
	{"WRITE shorter than its RETH", "IBA 9.7.4", "ONLY does not reach the announced length: NAK invalid request", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).length(12))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE longer than its RETH", "IBA 9.7.4", "nothing beyond the announced length is stored: NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1028), writeLast(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory+1024, 8)
	}},
	{"WRITE LAST too early", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(4096), writeLast(501, 1024))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE of more than 2^31", "IBA 10.7.2", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(1<<31+1))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 1024)
	}},
	{"READ of more than 2^31", "IBA 10.7.2", "NAK invalid request", func(s *script) {
		s.deliver(at(0), readRequest(500, 1<<31+1))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE of more than max_msg_sz", "IBA 10.7.2", "NAK invalid request", func(s *script) {
		s.with(maxMessage(2000))
		s.deliver(at(0), writeFirst(500, 1024).length(2001))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"SEND longer than the receive", "IBA 9.7.5.2", "NAK invalid request, LOC_LEN_ERR in the receive", func(s *script) {
		s.postRecv(7)
		s.deliver(at(0), sendOnly(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest))
		s.receives(failure(1001, ib.WCLocLenErr).because(transport.VendorTooLong))
		s.untouched(buffers, 8)
	}},
	{"SEND longer than the receive in its second packet", "IBA 9.7.5.2", "NAK invalid request, LOC_LEN_ERR in the receive", func(s *script) {
		s.postRecv(1030)
		s.deliver(at(0), sendFirst(500, 1024), sendLast(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest))
		s.receives(failure(1001, ib.WCLocLenErr))
		s.untouched(buffers+1024, 8)
	}},
	{"SEND shorter than the receive", "man:ibv_poll_cq", "byte_len is what came", func(s *script) {
		s.postRecv(64)
		s.deliver(at(0), sendOnly(500, 3))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 3))
		s.untouched(buffers+3, 61)
	}},
	{"SEND of nothing", "IBA 9.7.4", "takes a receive, even one without entries", func(s *script) {
		s.postList()
		s.deliver(at(0), sendOnly(500, 0))
		s.expect(at(0), ack(500).msn(1))
		s.receives(received(1001, 0))
	}},
	// Two suites elsewhere expect an error of the next two. No memory is named, so there is nothing that a key could
	// protect, and HCAs succeed; atomics and FLUSH are not excepted.
	{"WRITE of nothing", "IBA 9.7.4.1.3", "names no memory, so its key is not looked at", func(s *script) {
		s.deliver(at(0), writeOnly(500, 0).key(0xdeadbeef).to(^uint64(0)))
		s.expect(at(0), ack(500).msn(1))
	}},
	{"READ of nothing", "IBA 9.7.4.1.3", "names no memory, so its key is not looked at", func(s *script) {
		s.deliver(at(0), readRequest(500, 0).key(0xdeadbeef).to(^uint64(0)))
		s.expect(at(0), readOnly(500, 0, 0).msn(1))
	}},
	{"WRITE of nothing with immediate", "IBA 9.7.4.1.3", "takes a receive, names no memory", func(s *script) {
		s.postRecv(0)
		s.deliver(at(0), writeOnlyImm(500, 0, 5).key(0xdeadbeef))
		s.expect(at(0), ack(500))
		s.receives(writtenImm(1001, 0, 5))
	}},
	{"FLUSH of nothing", "A19", "its key is looked at all the same", func(s *script) {
		s.deliver(at(0), flushRequest(500, 0).key(1))
		s.refuses(nak(500, wire.NakRemoteAccess), ib.EventQPAccessErr)
	}},
	{"zero-length WRITE needs the access flag", "IBA 9.7.5.2", "the queue pair's flags are asked before memory is", func(s *script) {
		s.with(without(ib.AccessRemoteWrite))
		s.deliver(at(0), writeOnly(500, 0))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
}
