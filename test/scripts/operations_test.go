package scripts

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var operations = []event{
	{"SEND", "man:ibv_poll_cq", "the receive says how much came, and from whom", func(s *script) {
		s.postRecv(4096)
		s.deliver(at(0), sendFirst(500, 1024).at(0), sendMiddle(501, 1024).at(1024), sendLast(502, 7).at(2048))
		s.expect(at(0), ack(502).msn(1))
		s.receives(received(1001, 2055))
		s.holds(buffers, theirs(0, 2055))
		s.untouched(buffers+2055, 64)
	}},
	{"SEND with immediate", "man:ibv_poll_cq", "WITH_IMM and the value", func(s *script) {
		s.postRecv(64)
		s.deliver(at(0), sendOnlyImm(500, 8, 0xcafe))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 8).imm(0xcafe))
	}},
	{"SEND of two packets with immediate", "man:ibv_poll_cq", "the value is that of the last packet", func(s *script) {
		s.postRecv(2048)
		s.deliver(at(0), sendFirst(500, 1024), sendLastImm(501, 8, 0xbeef))
		s.expect(at(0), ack(501))
		s.receives(received(1001, 1032).imm(0xbeef))
	}},
	{"WRITE with immediate received", "man:ibv_poll_cq", "RECV_RDMA_WITH_IMM; the receive's buffer is not touched", func(s *script) {
		s.postRecv(64)
		s.deliver(at(0), writeOnlyImm(500, 8, 7))
		s.expect(at(0), ack(500))
		s.receives(writtenImm(1001, 8, 7))
		s.holds(memory, theirs(0, 8))
		s.untouched(buffers, 64)
	}},
	{"WRITE", "IBA 9.7.4.1.3", "goes on from the recorded address, and takes no receive", func(s *script) {
		s.postRecv(64)
		s.deliver(at(0), writeFirst(500, 1024).to(memory+8).length(1034).at(0), writeLast(501, 10).at(1024))
		s.expect(at(0), ack(501).msn(1))
		s.holds(memory+8, theirs(0, 1034))
		s.untouched(memory, 8)
		s.untouched(memory+1042, 64)
	}},
	{"READ served", "IBA 9.7.3.1", "responses have the PSNs of the request, in order", func(s *script) {
		s.deliver(at(0), readRequest(500, 3000).to(memory+16))
		s.expect(at(0), readFirst(500, 16).msn(1), readMiddle(501, 1040), readLast(502, 2064, 952).msn(1))
	}},
	{"FETCH ADD", "IBA 9.7.4", "returns the original, adds, wraps at 64 bits", func(s *script) {
		s.setWord(memory, 5)
		s.deliver(at(0), fetchAddRequest(500, ^uint64(0)))
		s.expect(at(0), atomicAck(500, 5).msn(1))
		same(s, "word", s.word(memory), 4)
	}},
	{"COMPARE SWAP that matches", "IBA 9.7.4", "swaps and returns the original", func(s *script) {
		s.setWord(memory, 5)
		s.deliver(at(0), compareSwapRequest(500, 5, 9))
		s.expect(at(0), atomicAck(500, 5))
		same(s, "word", s.word(memory), 9)
	}},
	{"COMPARE SWAP that does not match", "IBA 9.7.4", "returns the original and leaves it", func(s *script) {
		s.setWord(memory, 5)
		s.deliver(at(0), compareSwapRequest(500, 6, 9))
		s.expect(at(0), atomicAck(500, 5))
		same(s, "word", s.word(memory), 5)
	}},
	{"unaligned atomic", "IBA 9.7.5.2", "NAK invalid request, not executed", func(s *script) {
		s.deliver(at(0), fetchAddRequest(500, 1).to(memory+4))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 16)
	}},
	{"ATOMIC WRITE", "A19", "eight bytes, acknowledged", func(s *script) {
		s.deliver(at(0), atomicWriteRequest(500, []byte("8 octets")))
		s.expect(at(0), ack(500).msn(1))
		s.holds(memory, []byte("8 octets"))
	}},
	{"ATOMIC WRITE of four bytes", "A19", "NAK invalid request", func(s *script) {
		s.deliver(at(0), atomicWriteRequest(500, []byte("four")))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 8)
	}},
	{"unaligned ATOMIC WRITE", "A19", "NAK invalid request", func(s *script) {
		s.deliver(at(0), atomicWriteRequest(500, []byte("8 octets")).to(memory+4))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 16)
	}},
	{"FLUSH", "A19", "answered by a READ response without data, behind what it flushes", func(s *script) {
		s.deliver(at(0), writeOnly(500, 8), flushRequest(501, 8))
		s.expect(at(0), ack(500).msn(1), readOnly(501, 0, 0).msn(2))
	}},
	{"FLUSH to persistence without the right", "A19", "NAK invalid request", func(s *script) {
		s.deliver(at(0), flushRequest(500, 8).places(ib.FlushPersistent, ib.FlushRange))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"FLUSH of a placement that is none", "A19", "NAK invalid request", func(s *script) {
		s.deliver(at(0), flushRequest(500, 8).places(0, ib.FlushRange))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"READ not enabled", "IBA 9.7.5.2", "without REMOTE_READ in qp_access_flags: NAK invalid request", func(s *script) {
		s.with(without(ib.AccessRemoteRead))
		s.deliver(at(0), readRequest(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"WRITE not enabled", "IBA 9.7.5.2", "without REMOTE_WRITE in qp_access_flags: NAK invalid request", func(s *script) {
		s.with(without(ib.AccessRemoteWrite))
		s.deliver(at(0), writeOnly(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 8)
	}},
	{"atomic not enabled", "IBA 9.7.5.2", "without REMOTE_ATOMIC in qp_access_flags: NAK invalid request", func(s *script) {
		s.with(without(ib.AccessRemoteAtomic))
		s.deliver(at(0), fetchAddRequest(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
		s.untouched(memory, 8)
	}},
	{"SEND needs no access flag", "IBA 9.7.5.2", "qp_access_flags are about memory that the peer names", func(s *script) {
		s.with(access(0))
		s.postRecv(8)
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 8))
	}},
	{"READs as agreed", "IBA 9.7.4", "max_dest_rd_atomic at a time are served", func(s *script) {
		s.with(responderResources(2))
		s.deliver(at(0), readRequest(500, 8), readRequest(501, 8))
		s.expect(at(0), readOnly(500, 0, 8), readOnly(501, 0, 8))
	}},
	{"one READ too many", "IBA 9.7.4", "NAK invalid request, behind the answers that were agreed", func(s *script) {
		s.with(responderResources(2))
		s.deliver(at(0), readRequest(500, 8), readRequest(501, 8), readRequest(502, 8))
		s.expect(at(0), readOnly(500, 0, 8), readOnly(501, 0, 8), nak(502, wire.NakInvalidRequest))
		s.raises(ib.EventQPReqErr)
		s.inState(ib.StateErr)
	}},
	{"max_dest_rd_atomic 0", "IBA 9.7.4", "no READ was agreed on: NAK invalid request", func(s *script) {
		s.with(responderResources(0))
		s.deliver(at(0), readRequest(500, 8))
		s.refuses(nak(500, wire.NakInvalidRequest), ib.EventQPReqErr)
	}},
	{"malformed receive", "IBA 9.7.5.2", "NAK remote operational error, LOC_QP_OP_ERR in the receive", func(s *script) {
		s.qp.malformed = map[uint64]bool{1001: true}
		s.postRecv(64)
		s.deliver(at(0), sendOnly(500, 8))
		s.refuses(nak(500, wire.NakRemoteOperation))
		s.receives(failure(1001, ib.WCLocQPOpErr).because(transport.VendorMalformedWQE))
	}},
	{"receive with a bad key", "IBA 9.7.5.2", "NAK remote operational error, LOC_PROT_ERR in the receive", func(s *script) {
		s.postList(ib.SGE{Addr: buffers, Length: 64, LKey: s.mr.LKey ^ 0x5500})
		s.deliver(at(0), sendOnly(500, 8))
		s.refuses(nak(500, wire.NakRemoteOperation))
		s.receives(failure(1001, ib.WCLocProtErr).because(transport.VendorBadKey))
	}},
	{"receive without LOCAL_WRITE", "IBA 10.6.3", "NAK remote operational error, LOC_PROT_ERR in the receive", func(s *script) {
		s.postList(ib.SGE{Addr: buffers, Length: 64, LKey: s.register(ib.AccessRemoteRead).LKey})
		s.deliver(at(0), sendOnly(500, 8))
		s.refuses(nak(500, wire.NakRemoteOperation))
		s.receives(failure(1001, ib.WCLocProtErr).because(transport.VendorBadAccess))
		s.untouched(buffers, 8)
	}},
	{"receive that is not needed whole", "man:ibv_post_recv", "entries that no data reaches are not looked at", func(s *script) {
		s.postList(ib.SGE{Addr: buffers, Length: 8, LKey: s.mr.LKey}, ib.SGE{Addr: 1, Length: 8, LKey: 1})
		s.deliver(at(0), sendOnly(500, 8))
		s.expect(at(0), ack(500))
		s.receives(received(1001, 8))
	}},
}
