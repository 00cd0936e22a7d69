package rc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// IBA 9.7.6.1: one ACK covers everything before it; the requests complete in order.
func TestCoalescedAck(t *testing.T) {
	s := newScript(t)
	s.post(send(1), unsignaled(write(2)), send(2000), send(3))
	s.expect(at(0), sendOnly(100, 1), writeOnly(101, 2), sendFirst(102, 1024), sendLast(103, 976), sendOnly(104, 3))
	s.deliver(at(us), ack(102)) // in the middle of a message
	s.completes(success(1))
	if s.qp.silent != 1 {
		t.Fatal("the unsignaled WRITE has not ended")
	}
	s.deliver(at(2*us), ack(104))
	s.completes(success(3), success(4))
}

// IBA 9.7.6.1: what is outside what is outstanding is dropped, whatever it says: duplicate, late or forged.
func TestGhosts(t *testing.T) {
	ghosts := map[string]func(ib.PSN) packet{
		"ACK":          ack,
		"NAK sequence": func(p ib.PSN) packet { return nak(p, wire.NakSequence) },
		"NAK request":  func(p ib.PSN) packet { return nak(p, wire.NakInvalidRequest) },
		"NAK access":   func(p ib.PSN) packet { return nak(p, wire.NakRemoteAccess) },
		"NAK op":       func(p ib.PSN) packet { return nak(p, wire.NakRemoteOperation) },
		"RNR NAK":      func(p ib.PSN) packet { return rnrNak(p, 0) },
		"READ":         func(p ib.PSN) packet { return readOnly(p, 0, 8) },
		"READ first":   func(p ib.PSN) packet { return readFirst(p, 0, 1024) },
		"atomic":       func(p ib.PSN) packet { return atomicAck(p, 1) },
	}
	for name, ghost := range ghosts {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.deliver(at(0), ghost(100), ghost(99)) // before anything was sent
			s.post(send(1), read(3000))
			s.expect(at(0), sendOnly(100, 1), readRequest(101, 0, 3000))
			s.deliver(at(us), ack(100))
			s.completes(success(1))
			before := append([]byte(nil), s.memory...)
			for _, p := range []ib.PSN{100, 99, 104, 105, ib.PSN(101).Add(1 << 23), ib.PSN(101).Sub(1 << 23), ib.PSN(101).Sub(1<<23 - 1)} {
				s.deliver(at(2*us), ghost(p))
			}
			s.quiet()
			s.counts("ghosts", s.counters.GhostAcks, 9)
			if !bytes.Equal(before, s.memory) {
				t.Fatal("a ghost wrote memory")
			}
			s.deliver(at(3*us), readFirst(101, 0, 1024), readMiddle(102, 1024, 1024), readLast(103, 2048, 952))
			s.completes(success(2))
		})
	}
}

// IBA 9.7.5.2, every syndrome that there is: what each one does to an outstanding SEND.
func TestEverySyndrome(t *testing.T) {
	for v := range 256 {
		syn := wire.Syndrome(v)
		t.Run(fmt.Sprintf("%#04x", v), func(t *testing.T) {
			s := newScript(t)
			s.post(send(1), send(2), send(3))
			s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
			s.deliver(at(us), nak(101, syn))
			refused := func(status ib.WCStatus, count *uint64) {
				t.Helper()
				s.qp.vendor(1, transport.VendorNAK+transport.VendorErr(v))
				s.completes(success(1), failed(2, status), failed(3, ib.WCWRFlushErr))
				s.inState(ib.StateErr)
				s.counts(syn.String(), *count, 1)
				s.counts("errors", s.counters.ReqCQEError, 1)
				s.counts("flushes", s.counters.ReqCQEFlushError, 1)
			}
			switch {
			case v <= 0x1f:
				s.completes(success(1), success(2))
				s.deliver(at(2*us), ack(102))
				s.completes(success(3))
				return
			case v >= 0x20 && v <= 0x3f:
				s.completes(success(1))
				s.expect(at(us+ib.RNRTimer(uint8(v&31))), sendOnly(101, 2), sendOnly(102, 3))
			case v == 0x60:
				s.completes(success(1))
				s.expect(at(us), sendOnly(101, 2), sendOnly(102, 3))
			case v == 0x61:
				refused(ib.WCRemInvReqErr, &s.counters.ReqRemoteInvalidRequest)
				return
			case v == 0x62:
				refused(ib.WCRemAccessErr, &s.counters.ReqRemoteAccessErrors)
				return
			case v == 0x63:
				refused(ib.WCRemOpErr, &s.counters.ReqRemoteOperationErrors)
				return
			default:
				// Reserved: dropped whole, so it does not even acknowledge what is before it.
				s.completes()
				s.counts("bad responses", s.counters.BadResponses, 1)
			}
			s.deliver(s.now.Add(us), ack(102))
			if v > 0x63 || v >= 0x40 && v < 0x60 {
				s.completes(success(1), success(2), success(3))
			} else {
				s.completes(success(2), success(3))
			}
		})
	}
}

// IBA 9.7.7.2, every row: credit codes are taken for ACKs and limit nothing. ConnectX acknowledges with code 0, and who
// enforced that would be held to one message at a time.
func TestEveryCreditCode(t *testing.T) {
	for _, row := range rows(t, "aeth_credits.csv") {
		t.Run(row[0], func(t *testing.T) {
			s := newScript(t)
			s.post(send(1))
			s.expect(at(0), sendOnly(100, 1))
			s.deliver(at(us), nak(100, wire.Syndrome(number(t, row[1]))))
			s.completes(success(1))
			s.post(send(1), send(2), send(3))
			s.expect(at(us), sendOnly(101, 1), sendOnly(102, 2), sendOnly(103, 3))
			s.deliver(at(2*us), ack(103))
			s.completes(success(2), success(3), success(4))
		})
	}
}

// The MSN is information; no value of it completes or spoils anything.
func TestMSNIsNotRequired(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2))
	s.deliver(at(us), ack(100).completing(0xffffff))
	s.completes(success(1))
	s.deliver(at(us), ack(101).completing(0))
	s.completes(success(2))
}

// placed is what a READ of n bytes left in the memory of this side.
func (s *script) placed(n int) []byte { return s.memory[1<<16 : 1<<16+n] }

func TestReadPlacesItsData(t *testing.T) {
	s := newScript(t)
	r := read(0)
	r.SGE = []ib.SGE{sge(1<<16, 1500), {LKey: 1}, sge(1<<16+1500, 1500)}
	s.post(r)
	s.expect(at(0), readRequest(100, 0, 3000).asking(true))
	s.deliver(at(us), readFirst(100, 0, 1024), readMiddle(101, 1024, 1024))
	s.completes()
	s.deliver(at(us), readLast(102, 2048, 952))
	if d := s.qp.sendDone[0].detail; d.ByteLen != 3000 || d.Opcode != ib.WCRDMARead {
		t.Fatalf("completion %+v", d)
	}
	s.completes(success(1))
	if !bytes.Equal(s.placed(3000), peerPattern(0, 3000)) || !bytes.Equal(s.memory[1<<16+3000:], pattern(1<<16+3000, 1<<16-3000)) {
		t.Fatal("the data is not where it belongs")
	}
}

// IBA 9.7.5.1.1: a response beyond the awaited one is an implied NAK. The READ goes on from the hole, once, with address
// and length moved; the responses that still come of the first request start nothing and are not used.
func TestReadResumesFromTheHole(t *testing.T) {
	resumed := map[string][]packet{
		// A new request begins with FIRST; Linux rxe replays with MIDDLE and LAST.
		"as specified": {readFirst(102, 2048, 1024), readMiddle(103, 3072, 1024), readLast(104, 4096, 904)},
		"as rxe":       {readMiddle(102, 2048, 1024), readMiddle(103, 3072, 1024), readLast(104, 4096, 904)},
		"mixed":        {readFirst(102, 2048, 1024), readFirst(103, 3072, 1024), readOnly(104, 4096, 904)},
	}
	for name, answer := range resumed {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, retryCnt(1))
			s.post(read(5000), send(1))
			s.expect(at(0), readRequest(100, 0, 5000), sendOnly(105, 1))
			s.deliver(at(us), readFirst(100, 0, 1024), readMiddle(101, 1024, 1024))
			s.deliver(at(us), readMiddle(103, 0, 1024), readLast(104, 0, 904), ack(105))
			s.expect(at(us), readRequest(102, 2048, 5000-2048), sendOnly(105, 1))
			s.counts("implied NAKs", s.counters.ImpliedNakSeqErr, 1)
			s.deliver(at(2*us), answer...)
			s.completes(success(1))
			s.deliver(at(3*us), ack(105))
			s.completes(success(2))
			if !bytes.Equal(s.placed(5000), peerPattern(0, 5000)) {
				t.Fatal("the data differs")
			}
		})
	}
}

// The loss of each response in turn, the last included: only the timer finds that one.
func TestLossOfEachReadResponse(t *testing.T) {
	all := []packet{readFirst(100, 0, 1024), readMiddle(101, 1024, 1024), readMiddle(102, 2048, 1024), readLast(103, 3072, 928)}
	for lost := range all {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			s := newScript(t, ackTimeout(10, 1))
			s.post(read(4000))
			s.expect(at(0), readRequest(100, 0, 4000))
			for i, p := range all {
				if i != lost {
					s.deliver(at(us), p)
				}
			}
			if lost == len(all)-1 {
				s.run(at(us + ib.AckTimeout(10)))
			}
			done := lost * 1024
			s.expect(s.now, readRequest(100+ib.PSN(lost), uint64(done), uint32(4000-done)))
			for i, p := range all[lost:] {
				if last := i == len(all)-1-lost; i == 0 && last {
					p.op = wire.RCReadResponseOnly
				} else if i == 0 {
					p.op = wire.RCReadResponseFirst
				}
				s.deliver(s.now, p)
			}
			s.completes(success(1))
			if !bytes.Equal(s.placed(4000), peerPattern(0, 4000)) {
				t.Fatal("the data differs")
			}
		})
	}
}

// A late response that comes before the repetition goes out shortens it, and the rest is then a resumed READ.
func TestLateResponseShortensTheRepetition(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1))
	s.post(read(3000))
	s.expect(at(0), readRequest(100, 0, 3000))
	s.now = s.e.Deadline()
	s.e.Expire(s.now)
	s.receive(readFirst(100, 0, 1024))
	s.expect(s.now, readRequest(101, 1024, 3000-1024))
	s.deliver(s.now, readFirst(101, 1024, 1024), readLast(102, 2048, 952))
	s.completes(success(1))
	if !bytes.Equal(s.placed(3000), peerPattern(0, 3000)) {
		t.Fatal("the data differs")
	}
}

// While a READ is unanswered, nothing behind it is judged: a response that could not belong there starts the repair.
func TestStrangeResponseBehindAnUnansweredRead(t *testing.T) {
	s := newScript(t)
	s.post(read(10), send(3))
	s.expect(at(0), readRequest(100, 0, 10), sendOnly(101, 3))
	s.deliver(at(us), readOnly(101, 0, 3))
	s.expect(at(us), readRequest(100, 0, 10), sendOnly(101, 3))
	s.deliver(at(2*us), readOnly(100, 0, 10), ack(101))
	s.completes(success(1), success(2))
}

// IBA 9.7.5.1.1: an ACKNOWLEDGE cannot end a READ or an atomic; it says that their response was lost.
func TestAckOfAReadOrAtomicIsAnImpliedNak(t *testing.T) {
	for _, beyond := range []ib.PSN{0, 1} {
		s := newScript(t)
		s.post(send(1), fetchAdd(2), send(3))
		s.expect(at(0), sendOnly(100, 1), of(wire.RCFetchAdd, 101, 0), sendOnly(102, 3))
		s.deliver(at(us), ack(101+beyond))
		s.completes(success(1))
		s.expect(at(us), of(wire.RCFetchAdd, 101, 0).operand(remoteVA, remoteKey, 2, 0), sendOnly(102, 3))
		s.counts("implied NAKs", s.counters.ImpliedNakSeqErr, 1)
		s.deliver(at(2*us), atomicAck(101, 7), ack(102))
		s.completes(success(2), success(3))

		s = newScript(t)
		s.post(read(10), send(3))
		s.expect(at(0), readRequest(100, 0, 10), sendOnly(101, 3))
		s.deliver(at(us), ack(100+beyond))
		s.expect(at(us), readRequest(100, 0, 10), sendOnly(101, 3))
		s.deliver(at(2*us), readOnly(100, 0, 10), ack(101))
		s.completes(success(1), success(2))
	}
}

// A refusal of something behind an unanswered READ does not take the READ's data for delivered: the READ is asked for
// again first (IBA 9.7.5.1.1).
func TestNakBehindAnUnansweredRead(t *testing.T) {
	s := newScript(t)
	s.post(read(10), write(3))
	s.expect(at(0), readRequest(100, 0, 10), writeOnly(101, 3))
	s.deliver(at(us), nak(101, wire.NakRemoteAccess))
	s.completes()
	s.expect(at(us), readRequest(100, 0, 10), writeOnly(101, 3))
	s.deliver(at(2*us), readOnly(100, 0, 10), nak(101, wire.NakRemoteAccess))
	s.completes(success(1), failed(2, ib.WCRemAccessErr))
}

// IBA 9.7.5.2: memory that goes away while a READ is answered is refused at the response it spoils.
func TestNakInTheMiddleOfARead(t *testing.T) {
	for _, p := range []ib.PSN{100, 101, 102} {
		s := newScript(t)
		s.post(send(1), read(3000), send(2))
		s.skip(at(0))
		s.deliver(at(us), ack(100), readFirst(101, 0, 1024))
		s.deliver(at(us), nak(p.Next(), wire.NakRemoteOperation))
		if p == 100 {
			s.completes(success(1)) // taken before: a ghost
			s.modify(ib.StateReset, 0)
			continue
		}
		s.completes(success(1), failed(2, ib.WCRemOpErr), failed(3, ib.WCWRFlushErr))
	}
}

// A responder may be short of resources for READs and atomics as well: an RNR NAK (IBA 9.7.5.2.8) is obeyed whatever it answers.
func TestReadAndAtomicNotReady(t *testing.T) {
	s := newScript(t)
	s.post(read(10), compareSwap(3, 4))
	s.expect(at(0), readRequest(100, 0, 10), of(wire.RCCompareSwap, 101, 0))
	s.deliver(at(us), rnrNak(100, 1))
	s.expect(at(11*us), readRequest(100, 0, 10), of(wire.RCCompareSwap, 101, 0))
	s.deliver(at(11*us), readOnly(100, 0, 10), rnrNak(101, 1))
	s.completes(success(1))
	s.expect(at(21*us), of(wire.RCCompareSwap, 101, 0).operand(remoteVA, remoteKey, 4, 3))
	s.deliver(at(21*us), atomicAck(101, 0))
	s.completes(success(2))
}

// Field bug B1: an atomic whose response is lost is asked for again with the identical packet, and the value that comes is
// placed in host order.
func TestAtomicResultAndItsLoss(t *testing.T) {
	s := newScript(t, ackTimeout(10, 1))
	cas := of(wire.RCCompareSwap, 100, 0).operand(remoteVA, remoteKey, 0x1111, 0x2222)
	s.post(compareSwap(0x2222, 0x1111))
	s.expect(at(0), cas)
	s.expect(at(ib.AckTimeout(10)), cas)
	s.deliver(s.now, atomicAck(100, 0x0102030405060708), atomicAck(100, 9))
	if d := s.qp.sendDone[0].detail; d.ByteLen != 8 || d.Opcode != ib.WCCompSwap {
		t.Fatalf("completion %+v", d)
	}
	s.completes(success(1))
	if v := binary.NativeEndian.Uint64(s.placed(8)); v != 0x0102030405060708 {
		t.Fatalf("result %#x", v)
	}
	s.post(fetchAdd(3))
	s.expect(s.now, of(wire.RCFetchAdd, 101, 0))
	s.deliver(s.now, atomicAck(101, 11))
	if d := s.qp.sendDone[0].detail; d.Opcode != ib.WCFetchAdd {
		t.Fatalf("completion %+v", d)
	}
	s.completes(success(2))
}

// IBA 9.7.6.1, error class B: a response that does not fit its request ends it with BAD_RESP_ERR. Lengths are judged
// against what is left of the request, so that none writes past it (CVE-2026-64268).
func TestResponsesThatDoNotFit(t *testing.T) {
	middle := []packet{readFirst(100, 0, 1024)}
	cases := []struct {
		name    string
		request transport.Request
		before  []packet
		bad     packet
	}{
		{"FIRST too short", read(3000), nil, readFirst(100, 0, 1023)},
		{"FIRST too long", read(3000), nil, readFirst(100, 0, 1025)},
		{"FIRST empty", read(3000), nil, readFirst(100, 0, 0)},
		{"ONLY for a long READ", read(3000), nil, readOnly(100, 0, 1024)},
		{"LAST at once", read(3000), nil, readLast(100, 0, 1024)},
		{"MIDDLE at once", read(3000), nil, readMiddle(100, 0, 1024)},
		{"FIRST again", read(3000), middle, readFirst(101, 1024, 1024)},
		{"ONLY in the middle", read(3000), middle, readOnly(101, 1024, 1024)},
		{"LAST too early", read(3000), middle, readLast(101, 1024, 1024)},
		{"MIDDLE too short", read(3000), middle, readMiddle(101, 1024, 1)},
		{"LAST too long", read(2000), middle, readLast(101, 1024, 1024)},
		{"LAST too short", read(2000), middle, readLast(101, 1024, 975)},
		{"MIDDLE for the end", read(2048), middle, readMiddle(101, 1024, 1024)},
		{"FIRST for a short READ", read(1024), nil, readFirst(100, 0, 1024)},
		{"LAST for a short READ", read(10), nil, readLast(100, 0, 10)},
		{"ONLY too long", read(10), nil, readOnly(100, 0, 11)},
		{"ONLY too short", read(10), nil, readOnly(100, 0, 9)},
		{"data for a READ of nothing", read(0), nil, readOnly(100, 0, 1)},
		{"atomic result for a READ", read(8), nil, atomicAck(100, 1)},
		{"READ response for a CAS", compareSwap(1, 2), nil, readOnly(100, 0, 8)},
		{"READ response for a SEND", send(8), nil, readOnly(100, 0, 8)},
		{"atomic result for a SEND", send(8), nil, atomicAck(100, 1)},
		{"atomic result for a WRITE", write(8), nil, atomicAck(100, 1)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.post(c.request, send(1))
			s.skip(at(0))
			s.deliver(at(us), c.before...)
			done := 1024 * len(c.before)
			after := append([]byte(nil), s.placed(5000)[done:]...)
			s.deliver(at(us), c.bad)
			s.qp.vendor(0, transport.VendorBadResponse)
			s.completes(failed(1, ib.WCBadRespErr), failed(2, ib.WCWRFlushErr))
			s.inState(ib.StateErr)
			s.counts("bad responses", s.counters.BadResponses, 1)
			if !bytes.Equal(after, s.placed(5000)[done:]) {
				t.Fatal("the bad response wrote memory")
			}
		})
	}
}

// A bad response to a later request still ends the requests in order: those before it are acknowledged by it.
func TestBadResponseBehindGoodRequests(t *testing.T) {
	s := newScript(t)
	s.post(send(1), send(2), send(3))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2), sendOnly(102, 3))
	s.deliver(at(us), readOnly(101, 0, 2))
	s.completes(success(1), failed(2, ib.WCBadRespErr), failed(3, ib.WCWRFlushErr))
}

// IBA 9.7.6.1: the syndrome of a READ or atomic response is an ACK; others are dropped, and the retry finds out.
func TestRefusalInAReadResponseIsDropped(t *testing.T) {
	for _, syn := range []wire.Syndrome{0x20, 0x3f, 0x40, 0x60, 0x61, 0x62, 0x63, 0x64, 0x80, 0xff} {
		s := newScript(t)
		s.post(read(10), fetchAdd(1))
		s.skip(at(0))
		s.deliver(at(us), readOnly(100, 0, 10).says(syn))
		s.quiet()
		s.counts("bad responses", s.counters.BadResponses, 1)
		s.deliver(at(2*us), readOnly(100, 0, 10))
		s.completes(success(1))
		s.deliver(at(2*us), atomicAck(101, 1).says(syn))
		s.quiet()
		s.deliver(at(3*us), atomicAck(101, 1))
		s.completes(success(2))
	}
}

// A READ response acknowledges what was sent before the READ (IBA 9.7.6.1).
func TestReadResponseAcknowledgesWhatIsBeforeIt(t *testing.T) {
	s := newScript(t)
	s.post(send(1), write(2000), read(10), send(2), compareSwap(1, 2))
	s.skip(at(0))
	s.deliver(at(us), readOnly(103, 0, 10))
	s.completes(success(1), success(2), success(3))
	s.deliver(at(us), atomicAck(105, 0))
	s.completes(success(4), success(5))
}

// IBA 10.3.1: responses are dropped in every state but RTS and SQD; the state can have changed within a burst.
func TestResponsesInOtherStates(t *testing.T) {
	for _, st := range []ib.QPState{ib.StateErr, ib.StateReset, ib.StateInit} {
		s := newScript(t)
		s.post(send(1))
		s.expect(at(0), sendOnly(100, 1))
		s.modify(st, 0)
		if s.receive(ack(100)) {
			t.Fatalf("state %v: an ACK was taken", st)
		}
		if st == ib.StateErr {
			s.completes(failed(1, ib.WCWRFlushErr))
		} else {
			s.completes()
		}
	}
}
