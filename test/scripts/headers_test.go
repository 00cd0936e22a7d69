package scripts

import (
	"github.com/softnic/softnicd/ib"
)

var headers = []event{
	{"pad", "IBA 9.2", "PadCnt fills the payload to four bytes", func(s *script) {
		s.post(send(1), send(2), send(3), send(4))
		s.expect(at(0), sendOnly(100, 1).has(&fieldPad, 3), sendOnly(101, 2).has(&fieldPad, 2), sendOnly(102, 3).has(&fieldPad, 1),
			sendOnly(103, 4).has(&fieldPad, 0))
		s.deliver(at(us), ack(103))
		s.completes(success(1), success(2), success(3), success(4))
	}},
	{"no payload, no pad", "IBA 9.2", "PadCnt of an empty packet is 0", func(s *script) {
		s.post(send(0))
		s.expect(at(0), sendOnly(100, 0).has(&fieldPad, 0))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"pad of READ responses", "IBA 9.2", "responses are padded like requests", func(s *script) {
		s.deliver(at(0), readRequest(500, 1025))
		s.expect(at(0), readFirst(500, 0).has(&fieldPad, 0), readLast(501, 1024, 1).has(&fieldPad, 3))
	}},
	{"DestQP", "IBA 9.2", "requests go to the queue pair of dest_qp_num", func(s *script) {
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1).has(&fieldQP, uint64(there)))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"DestQP of an ACK", "IBA 9.7.5", "so do responses", func(s *script) {
		s.deliver(at(0), writeOnly(500, 4))
		s.expect(at(0), ack(500).has(&fieldQP, uint64(there)))
	}},
	{"P_Key", "IBA 10.9", "packets carry the default partition, full member", func(s *script) {
		s.post(send(1))
		s.deliver(at(0), writeOnly(500, 4))
		s.expect(at(0), sendOnly(100, 1).has(&fieldKey, 0xffff), ack(500).has(&fieldKey, 0xffff))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"MigReq", "IBA 9.2", "the path is Migrated: M is set, in responses too", func(s *script) {
		s.post(send(1))
		s.deliver(at(0), writeOnly(500, 4))
		s.expect(at(0), sendOnly(100, 1).has(&fieldM, 1), ack(500).has(&fieldM, 1))
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"MigReq of the peer is ignored", "IBA 9.2", "without alternate paths M means nothing", func(s *script) {
		s.deliver(at(0), writeOnly(500, 4).has(&fieldM, 0), writeOnly(501, 4).has(&fieldM, 1))
		s.expect(at(0), ack(501).msn(2))
	}},
	{"reserved bits are ignored", "IBA 9.2", "a request with every reserved bit set is executed", func(s *script) {
		s.deliver(at(0), writeOnly(500, 4).has(&fieldReserved, 0xff))
		s.expect(at(0), ack(500).msn(1))
		s.holds(memory, theirs(0, 4))
	}},
	{"BECN outside a CNP is ignored", "A17.9.3", "a request with BECN is executed like any other", func(s *script) {
		s.deliver(at(0), writeOnly(500, 4).has(&fieldCN, 1))
		s.expect(at(0), ack(500).msn(1))
	}},
	{"SE of a SEND", "IBA 9.2", "SE is in the last packet of what asked for it", func(s *script) {
		s.post(flagged(send(2000), ib.SendSolicited))
		s.expect(at(0), sendFirst(100, 1024).notSE(), sendLast(101, 976).se())
		s.deliver(at(us), ack(101))
		s.completes(success(1))
	}},
	{"SE of a WRITE with immediate", "IBA 9.2", "it takes a receive, so SE may be set", func(s *script) {
		s.post(flagged(writeImm(1, 2), ib.SendSolicited))
		s.expect(at(0), writeOnlyImm(100, 1, 2).se())
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"SE of a WRITE", "IBA 9.2", "it takes no receive, so SE is not set", func(s *script) {
		s.post(flagged(write(1), ib.SendSolicited))
		s.expect(at(0), writeOnly(100, 1).notSE())
		s.deliver(at(us), ack(100))
		s.completes(success(1))
	}},
	{"SE of a READ", "IBA 9.2", "it takes no receive, so SE is not set", func(s *script) {
		s.post(flagged(read(1), ib.SendSolicited))
		s.expect(at(0), readRequest(100, 1).notSE())
		s.deliver(at(us), readOnly(100, 0, 1))
		s.completes(success(1))
	}},
	{"SE arrives", "IBA 9.2", "the receive's completion is a solicited one", func(s *script) {
		s.postRecv(64, 64)
		s.deliver(at(0), sendOnly(500, 8).se(), sendOnly(501, 8).notSE())
		s.expect(at(0), ack(501).msn(2))
		s.receives(received(1001, 8).solicited(), received(1002, 8))
	}},
	{"SE of a first packet is ignored", "IBA 9.2", "only the last packet counts", func(s *script) {
		s.postRecv(2048)
		s.deliver(at(0), sendFirst(500, 1024).se(), sendLast(501, 8).notSE())
		s.expect(at(0), ack(501).msn(1))
		s.receives(received(1001, 1032))
	}},
	{"A of the last packet", "IBA 9.7.5", "no message ends without asking", func(s *script) {
		s.post(send(2000), write(1))
		s.expect(at(0), sendFirst(100, 1024).silent(), sendLast(101, 976).asks(), writeOnly(102, 1).asks())
		s.deliver(at(us), ack(102))
		s.completes(success(1), success(2))
	}},
	{"A within a long message", "IBA 9.7.5", "every so many packets ask", func(s *script) {
		s.with(ackEvery(2))
		s.post(send(5 * 1024))
		s.expect(at(0), sendFirst(100, 1024).silent(), sendMiddle(101, 1024).asks(), sendMiddle(102, 1024).silent(),
			sendMiddle(103, 1024).asks(), sendLast(104, 1024).asks())
		s.deliver(at(us), ack(104))
		s.completes(success(1))
	}},
	{"A of responses", "IBA 9.7.5", "responses ask for nothing", func(s *script) {
		s.deliver(at(0), readRequest(500, 8), fetchAddRequest(501, 0), writeOnly(502, 4).to(results))
		s.expect(at(0), readOnly(500, 0, 8).silent(), atomicAck(501, s.word(memory)).silent(), ack(502).silent())
	}},
	{"no credits", "IBA 9.7.7.2", "ACKs carry code 31: none given", func(s *script) {
		s.deliver(at(0), writeOnly(500, 4))
		s.expect(at(0), nak(500, 0x1f))
	}},
	{"atomic operands", "IBA 9.3-9.5", "compare and swap are where AtomicETH has them", func(s *script) {
		s.post(compareSwap(0x1122, 0x3344))
		s.expect(at(0), compareSwapRequest(100, 0x1122, 0x3344).to(memory).key(s.mr.RKey))
		s.deliver(at(us), atomicAck(100, 5))
		s.completes(success(1))
	}},
	{"FETCH ADD has no compare", "IBA 9.3-9.5", "the field is 0", func(s *script) {
		s.post(fetchAdd(9))
		s.expect(at(0), fetchAddRequest(100, 9).comparing(0))
		s.deliver(at(us), atomicAck(100, 5))
		s.completes(success(1))
	}},
	{"FETH of a FLUSH", "A19", "placement type and selectivity", func(s *script) {
		s.post(flush(64))
		s.expect(at(0), flushRequest(100, 64).to(memory))
		s.deliver(at(us), readOnly(100, 0, 0))
		s.completes(success(1))
	}},
}
