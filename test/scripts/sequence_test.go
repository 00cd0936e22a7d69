package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var sequence = []event{
	{"MIDDLE without FIRST", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), sendMiddle(500, 1024))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"LAST without FIRST", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeLast(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"SEND FIRST, then ONLY", "IBA 9.7.4", "NAK invalid request, the receive is flushed", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024), sendOnly(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"SEND FIRST, then FIRST", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024), sendFirst(501, 1024))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"SEND FIRST, then WRITE LAST", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024), writeLast(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"SEND FIRST, then WRITE MIDDLE", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024), writeMiddle(501, 1024))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.receives(flushed(1001)...)
	}},
	{"WRITE FIRST, then SEND MIDDLE", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(4096), sendMiddle(501, 1024))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE FIRST, then READ", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(2048), readRequest(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE FIRST, then atomic", "IBA 9.7.4", "NAK invalid request, not executed", func(s *script) {
		old := s.word(results)
		s.deliver(at(0), writeFirst(500, 1024).length(2048), fetchAddRequest(501, 1).to(results))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
		same(s, "word", s.word(results), old)
	}},
	{"WRITE FIRST, then FLUSH", "IBA 9.7.4", "NAK invalid request", func(s *script) {
		s.deliver(at(0), writeFirst(500, 1024).length(2048), flushRequest(501, 8))
		s.refuses(nak(501, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"PSN before sequence", "IBA 9.7.4", "a MIDDLE out of place and out of order is a gap", func(s *script) {
		s.deliver(at(0), sendMiddle(501, 1024))
		s.expect(at(0), nak(500, wire.NakSequence))
		s.inState(ib.StateRTS)
	}},
	{"sequence before resources", "IBA 9.7.4", "a LAST out of place needs no receive to be refused", func(s *script) {
		s.deliver(at(0), sendLast(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"resources before keys", "IBA 9.7.4", "a WRITE with immediate with a bad key and no receive is not ready", func(s *script) {
		s.deliver(at(0), writeOnlyImm(500, 8, 1).key(1))
		s.expect(at(0), rnrNak(500, 12))
		s.inState(ib.StateRTS)
	}},
	{"length before keys", "IBA 9.7.4", "a WRITE too long for its packet and with a bad key is an invalid request", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8).length(2048).key(1))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"reserved opcode", "IBA 9.2.1", "NAK invalid request", func(s *script) {
		s.deliver(at(0), of(0x15, 500, 0))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"opcode of another service", "IBA 9.6", "dropped without a word", func(s *script) {
		s.deliver(at(0), of(wire.UCSendOnly, 500, 8))
		s.expect(at(0))
		same(s, "rq_psn", s.query().RQPSN, 500)
	}},
}
