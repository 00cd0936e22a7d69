package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

var segmentation = []event{
	{"path MTU 256", "IBA 10.7.2", "a message is cut at the path MTU", func(s *script) {
		s.with(pathMTU(ib.MTU256))
		s.post(send(600))
		s.expect(at(0), sendFirst(100, 256).at(0), sendMiddle(101, 256).at(256), sendLast(102, 88).at(512))
		s.deliver(at(us), ack(102))
		s.completes(success(1))
	}},
	{"path MTU 512", "IBA 10.7.2", "a message is cut at the path MTU", func(s *script) {
		s.with(pathMTU(ib.MTU512))
		s.post(write(600))
		s.expect(at(0), writeFirst(100, 512).length(600).at(0), writeLast(101, 88).at(512))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"path MTU 1024", "IBA 10.7.2", "a message is cut at the path MTU", func(s *script) {
		s.post(send(1025))
		s.expect(at(0), sendFirst(100, 1024).at(0), sendLast(101, 1).at(1024))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"path MTU 2048", "IBA 10.7.2", "a message is cut at the path MTU", func(s *script) {
		s.with(pathMTU(ib.MTU2048))
		s.post(send(3000))
		s.expect(at(0), sendFirst(100, 2048).at(0), sendLast(101, 952).at(2048))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"path MTU 4096", "IBA 10.7.2", "a message is cut at the path MTU", func(s *script) {
		s.with(pathMTU(ib.MTU4096))
		s.post(send(10000))
		s.expect(at(0), sendFirst(100, 4096).at(0), sendMiddle(101, 4096).at(4096), sendLast(102, 1808).at(8192))
		s.deliver(at(us), ack(102))
		s.completes(success(1))
	}},
	{"READ responses at path MTU 256", "IBA 10.7.2", "responses are cut at the path MTU as well", func(s *script) {
		s.with(pathMTU(ib.MTU256))
		s.deliver(at(0), readRequest(500, 600))
		s.expect(at(0), of(wire.RCReadResponseFirst, 500, 256).at(0), of(wire.RCReadResponseMiddle, 501, 256).at(256), readLast(502, 512, 88))
	}},
	{"READ responses at path MTU 4096", "IBA 10.7.2", "responses are cut at the path MTU as well", func(s *script) {
		s.with(pathMTU(ib.MTU4096))
		s.deliver(at(0), readRequest(500, 4097))
		s.expect(at(0), of(wire.RCReadResponseFirst, 500, 4096).at(0), readLast(501, 4096, 1))
	}},
	{"one path MTU exactly", "IBA 10.7.2", "what fits one packet is an ONLY", func(s *script) {
		s.post(send(1024), write(1024))
		s.expect(at(0), sendOnly(100, 1024), writeOnly(101, 1024))
		s.deliver(at(us), ack(101))
		s.completes(success(1), success(2))
	}},
	{"two path MTUs exactly", "IBA 10.7.2", "the last packet may be full", func(s *script) {
		s.post(send(2048))
		s.expect(at(0), sendFirst(100, 1024).at(0), sendLast(101, 1024).at(1024))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"messages are not interleaved", "IBA 9.2.1", "the next message begins when the last packet of this one is out", func(s *script) {
		s.with(window(1))
		s.post(send(2000), send(1))
		s.expect(at(0), sendFirst(100, 1024))
		s.deliver(at(us), ack(100))
		s.expect(at(us), sendLast(101, 976))
		s.deliver(at(2*us), ack(101))
		s.expect(at(2*us), sendOnly(102, 1))
		s.deliver(at(3*us), ack(102))
		s.completes(success(1), success(2))
	}},
	{"RETH is in the first packet alone", "IBA 9.3-9.5", "it has the address and the length of the whole message", func(s *script) {
		s.post(write(3000))
		s.expect(at(0), writeFirst(100, 1024).to(memory).key(s.mr.RKey).length(3000), writeMiddle(101, 1024), writeLast(102, 952))
		s.deliver(at(us), ack(102))
		s.completes(success(1))
	}},
	{"immediate is in the last packet alone", "IBA 9.3-9.5", "SEND LAST WITH IMMEDIATE carries ImmDt", func(s *script) {
		s.post(sendImm(2000, 0xcafe))
		s.expect(at(0), sendFirst(100, 1024), sendLastImm(101, 976, 0xcafe))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"WRITE with immediate", "IBA 9.3-9.5", "RETH in FIRST, ImmDt in LAST", func(s *script) {
		s.post(writeImm(2000, 0xcafe))
		s.expect(at(0), writeFirst(100, 1024).length(2000), writeLastImm(101, 976, 0xcafe))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"WRITE with immediate in one packet", "IBA 9.3-9.5", "ONLY has RETH and ImmDt", func(s *script) {
		s.post(writeImm(10, 7))
		s.expect(at(0), writeOnlyImm(100, 10, 7).to(memory).length(10))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"SEND WITH INVALIDATE", "IBA 9.3-9.5", "IETH is in the last packet", func(s *script) {
		s.post(sendInv(2000, 0xabc07), sendInv(1, 0xabc08))
		s.expect(at(0), sendFirst(100, 1024), sendLastInv(101, 976, 0xabc07), sendOnlyInv(102, 1, 0xabc08))
		s.deliver(at(us), ack(102))
		s.completes(success(1), success(2))
	}},
	{"gathered", "man:ibv_post_send", "packets run over the ends of list entries", func(s *script) {
		r := request(ib.WRSend, ib.SGE{Addr: memory, Length: 1000}, ib.SGE{Addr: memory + 1000, Length: 1000})
		s.post(r)
		s.expect(at(0), sendFirst(100, 1024).at(0), sendLast(101, 976).at(1024))
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"entry of no bytes", "man:ibv_post_send", "it names nothing, so its key goes unread", func(s *script) {
		s.post(request(ib.WRSend, ib.SGE{LKey: 0xbad00}, gather(10)))
		s.expect(at(0), sendOnly(100, 10).at(0))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"inline", "man:ibv_post_send", "the bytes are those of posting, sent again as well", func(s *script) {
		s.post(inline("as it was"))
		s.expect(at(0), sendOnly(100, 9).carries([]byte("as it was")))
		s.deliver(at(us), nak(100, wire.NakSequence))
		s.expect(at(us), sendOnly(100, 9).carries([]byte("as it was")))
		s.deliver(at(2*us), ack(100))
		s.completes(success(1))
	}},
	{"largest message", "IBA 10.7.2", "max_msg_sz is sent, a byte more is LOC_LEN_ERR", func(s *script) {
		s.with(maxMessage(2000))
		s.post(send(2000), send(2001))
		s.expect(at(0), sendFirst(100, 1024), sendLast(101, 976))
		s.deliver(at(us), ack(101))
		s.completes(success(1), failure(2, ib.WCLocLenErr))
		s.inState(ib.StateErr)
	}},
}
