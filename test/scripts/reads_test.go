package scripts

import (
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

var reads = []event{
	{"READ", "IBA 9.7.6.1", "the data is placed, and the READ ends with its last response", func(s *script) {
		s.post(read(2000))
		s.expect(at(0), readRequest(100, 2000).to(memory).key(s.mr.RKey))
		s.deliver(at(us), readFirst(100, 0))
		s.completes()
		s.deliver(at(2*us), readLast(101, 1024, 976))
		s.completes(success(1).as(ib.WCRDMARead, 2000))
		s.holds(results, theirs(0, 2000))
	}},
	{"READ is scattered", "IBA 9.7.6.1", "responses run over the ends of list entries", func(s *script) {
		s.post(request(ib.WRRDMARead, ib.SGE{Addr: results, Length: 1000}, ib.SGE{Addr: results + 2000, Length: 1000}))
		s.expect(at(0), readRequest(100, 2000))
		s.deliver(at(us), readFirst(100, 0), readLast(101, 1024, 976))
		s.completes(success(1))
		s.holds(results, theirs(0, 1000))
		s.untouched(results+1000, 1000)
		s.holds(results+2000, theirs(1000, 1000))
	}},
	{"implied NAK", "IBA 9.7.5.1.1", "a response beyond the awaited one: the READ goes on from the hole, address and length moved", func(s *script) {
		s.post(read(3000))
		s.expect(at(0), readRequest(100, 3000))
		s.deliver(at(us), readFirst(100, 0), readLast(102, 2048, 952))
		s.expect(at(us), readRequest(101, 3000-1024).to(memory+1024))
		s.deliver(at(2*us), readFirst(101, 1024), readLast(102, 2048, 952))
		s.completes(success(1))
		s.holds(results, theirs(0, 3000))
	}},
	{"implied NAK counts once", "IBA 9.7.5.1.1", "the responses behind the hole start nothing more", func(s *script) {
		s.with(retryCnt(1))
		s.post(read(5000))
		s.expect(at(0), readRequest(100, 5000))
		s.deliver(at(us), readMiddle(101, 1024), readMiddle(102, 2048), readMiddle(103, 3072), readLast(104, 4096, 904))
		s.expect(at(us), readRequest(100, 5000))
		same(s, "implied_nak_seq_err", s.counters.ImpliedNakSeqErr, 1)
		s.deliver(at(2*us), readFirst(100, 0), readMiddle(101, 1024), readMiddle(102, 2048), readMiddle(103, 3072), readLast(104, 4096, 904))
		s.completes(success(1))
	}},
	{"responder is busy", "IBA 9.7.6.1.3", "responses from behind the hole, each farther than the last, keep ACK timer and probe from going off", func(s *script) {
		s.with(timeout(8, 1), probing(100*us)) // 1.05 ms, and the one retry is for the hole
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.deliver(at(10*us), ack(100)) // a round trip is 10 us
		s.completes(success(1))
		s.post(read(16 * 1024))
		s.expect(at(10*us), readRequest(101, 16*1024))
		s.deliver(at(20*us), readMiddle(102, 1024))
		s.expect(at(20*us), readRequest(101, 16*1024))
		// The rest of the first answer takes 1.26 ms.
		for i := range 14 {
			s.deliver(at(20*us+time.Duration(i+1)*90*us), readMiddle(103+ib.PSN(i), 2048+1024*i))
		}
		s.expect(at(1300 * us))
		s.deliver(at(1310*us), readFirst(101, 0))
		for i := range 14 {
			s.deliver(at(1310*us), readMiddle(102+ib.PSN(i), 1024+1024*i))
		}
		s.deliver(at(1310*us), readLast(116, 15*1024, 1024))
		s.completes(success(2))
	}},
	{"responder repeats itself", "IBA 9.7.6.1.3", "responses that come no farther are no sign of life: the ACK timer goes off", func(s *script) {
		s.with(timeout(10, 1))
		s.post(read(4 * 1024))
		s.expect(at(0), readRequest(100, 4*1024))
		s.deliver(at(us), readMiddle(101, 1024))
		s.expect(at(us), readRequest(100, 4*1024))
		for i := range 8 {
			s.deliver(at(us+time.Duration(i+1)*ms), readMiddle(102, 2048))
		}
		s.completes(failure(1, ib.WCRetryExcErr))
		s.inState(ib.StateErr)
	}},
	{"resumed READ answered as rxe does", "IBA 9.7.6.1", "MIDDLE for the first response of a resumed READ is taken", func(s *script) {
		s.post(read(4000))
		s.expect(at(0), readRequest(100, 4000))
		s.deliver(at(us), readFirst(100, 0), readMiddle(102, 2048))
		s.expect(at(us), readRequest(101, 4000-1024))
		s.deliver(at(2*us), readMiddle(101, 1024), readMiddle(102, 2048), readLast(103, 3072, 928))
		s.completes(success(1))
		s.holds(results, theirs(0, 4000))
	}},
	{"last packet of a READ resumed", "IBA 9.7.5.1.1", "one response is left: ONLY", func(s *script) {
		s.with(timeout(10, 7))
		s.post(read(2000))
		s.expect(at(0), readRequest(100, 2000))
		s.deliver(at(us), readFirst(100, 0))
		s.expect(at(us+ib.AckTimeout(10)), readRequest(101, 976).to(memory+1024))
		s.deliver(s.now, readOnly(101, 1024, 976))
		s.completes(success(1))
		s.holds(results, theirs(0, 2000))
	}},
	{"duplicate response", "IBA 9.7.6.1", "a response that was taken is dropped, whatever it carries", func(s *script) {
		s.post(read(2000))
		s.expect(at(0), readRequest(100, 2000))
		s.deliver(at(us), readFirst(100, 0), readFirst(100, 5000), readLast(101, 1024, 976))
		s.completes(success(1))
		s.holds(results, theirs(0, 2000))
	}},
	{"response nobody asked for", "IBA 9.7.6.1", "dropped, and nothing is written", func(s *script) {
		s.deliver(at(0), readOnly(100, 0, 8), atomicAck(100, 1))
		s.untouched(results, 8)
	}},
	{"ACK of a READ", "IBA 9.7.5.1.1", "an ACKNOWLEDGE cannot end a READ: its response was lost", func(s *script) {
		s.post(read(10), send(1))
		s.expect(at(0), readRequest(100, 10), sendOnly(101, 1))
		s.deliver(at(us), ack(101))
		s.completes()
		s.expect(at(us), readRequest(100, 10), sendOnly(101, 1))
		s.deliver(at(2*us), readOnly(100, 0, 10), ack(101))
		s.completes(success(1), success(2))
	}},
	{"ACK of an atomic", "IBA 9.7.5.1.1", "an ACKNOWLEDGE cannot end an atomic: the same packet goes out again", func(s *script) {
		s.post(fetchAdd(2))
		s.expect(at(0), fetchAddRequest(100, 2))
		s.deliver(at(us), ack(100))
		s.expect(at(us), fetchAddRequest(100, 2))
		s.deliver(at(2*us), atomicAck(100, 7))
		s.completes(success(1))
	}},
	{"FIRST too short", "IBA 9.7.6.1", "BAD_RESP_ERR, nothing is written", func(s *script) {
		s.post(read(3000))
		s.expect(at(0), readRequest(100, 3000))
		s.deliver(at(us), of(wire.RCReadResponseFirst, 100, 1020))
		s.completes(failure(1, ib.WCBadRespErr))
		s.untouched(results, 1024)
		s.inState(ib.StateErr)
	}},
	{"ONLY too long", "IBA 9.7.6.1", "BAD_RESP_ERR, nothing is written", func(s *script) {
		s.post(read(10))
		s.expect(at(0), readRequest(100, 10))
		s.deliver(at(us), readOnly(100, 0, 11))
		s.completes(failure(1, ib.WCBadRespErr))
		s.untouched(results, 16)
	}},
	{"LAST too early", "IBA 9.7.6.1", "BAD_RESP_ERR", func(s *script) {
		s.post(read(3000))
		s.expect(at(0), readRequest(100, 3000))
		s.deliver(at(us), readFirst(100, 0), readLast(101, 1024, 1024))
		s.completes(failure(1, ib.WCBadRespErr))
	}},
	{"MIDDLE where the end is due", "IBA 9.7.6.1", "more than the READ has is not written: BAD_RESP_ERR", func(s *script) {
		s.post(read(2000))
		s.expect(at(0), readRequest(100, 2000))
		s.deliver(at(us), readFirst(100, 0), readMiddle(101, 1024))
		s.completes(failure(1, ib.WCBadRespErr))
		s.untouched(results+1024, 1024)
	}},
	{"FIRST again", "IBA 9.7.6.1", "of a READ that was not resumed: BAD_RESP_ERR", func(s *script) {
		s.post(read(3000))
		s.expect(at(0), readRequest(100, 3000))
		s.deliver(at(us), readFirst(100, 0), readFirst(101, 1024))
		s.completes(failure(1, ib.WCBadRespErr))
	}},
	{"data for a READ of nothing", "IBA 9.7.6.1", "BAD_RESP_ERR", func(s *script) {
		s.post(read(0))
		s.expect(at(0), readRequest(100, 0))
		s.deliver(at(us), readOnly(100, 0, 4))
		s.completes(failure(1, ib.WCBadRespErr))
	}},
	{"atomic result for a READ", "IBA 9.7.6.1", "BAD_RESP_ERR", func(s *script) {
		s.post(read(8))
		s.expect(at(0), readRequest(100, 8))
		s.deliver(at(us), atomicAck(100, 1))
		s.completes(failure(1, ib.WCBadRespErr))
		s.untouched(results, 8)
	}},
	{"READ response for a SEND", "IBA 9.7.6.1", "BAD_RESP_ERR", func(s *script) {
		s.post(send(8))
		s.expect(at(0), sendOnly(100, 8))
		s.deliver(at(us), readOnly(100, 0, 8))
		s.completes(failure(1, ib.WCBadRespErr))
	}},
	{"refusal in a READ response", "IBA 9.7.6.1", "its syndrome is an ACK's or it is dropped", func(s *script) {
		s.post(read(8))
		s.expect(at(0), readRequest(100, 8))
		s.deliver(at(us), readOnly(100, 0, 8).says(wire.NakRemoteAccess))
		s.completes()
		s.deliver(at(2*us), readOnly(100, 0, 8))
		s.completes(success(1))
	}},
	{"key gone before the response", "IBA 10.6.3", "LOC_PROT_ERR, nothing is written", func(s *script) {
		s.post(read(8))
		s.expect(at(0), readRequest(100, 8))
		s.table.Remove(s.mr)
		s.deliver(at(us), readOnly(100, 0, 8))
		s.completes(failure(1, ib.WCLocProtErr).because(transport.VendorBadKey).as(ib.WCRDMARead, 8))
		s.untouched(results, 8)
	}},
	{"atomic result", "IBA 9.7.6.1", "the original value is placed in host order", func(s *script) {
		s.post(compareSwap(1, 2))
		s.expect(at(0), compareSwapRequest(100, 1, 2))
		s.deliver(at(us), atomicAck(100, 0x0102030405060708))
		s.completes(success(1).as(ib.WCCompSwap, 8))
		same(s, "result", s.word(results), 0x0102030405060708)
	}},
	{"atomic result twice", "IBA 9.7.6.1", "the second is a ghost", func(s *script) {
		s.post(fetchAdd(1))
		s.expect(at(0), fetchAddRequest(100, 1))
		s.deliver(at(us), atomicAck(100, 7), atomicAck(100, 8))
		s.completes(success(1))
		same(s, "result", s.word(results), 7)
	}},
	{"answer to a FLUSH", "A19", "a READ response without data", func(s *script) {
		s.post(flush(64))
		s.expect(at(0), flushRequest(100, 64))
		s.deliver(at(us), readOnly(100, 0, 0))
		s.completes(success(1).as(ib.WCFlush, 0))
	}},
	{"answer to an ATOMIC WRITE", "A19", "an ACKNOWLEDGE", func(s *script) {
		s.post(atomicWrite(5))
		s.expect(at(0), of(wire.RCAtomicWrite, 100, 8).length(8))
		s.deliver(at(us), ack(100))
		s.completes(success(1).as(ib.WCAtomicWrite, 8))
	}},
}
