package rc

import (
	"encoding/binary"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

func nativeWord(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func flushPacket(p ib.PSN, n uint32) packet {
	return of(wire.RCFlush, p, 0).to(remoteVA, remoteKey, n).flushes(ib.FlushGlobal, ib.FlushRange).asking(true)
}

// An ATOMIC WRITE is one packet with eight bytes, from the request itself, a list or inline (IBA A19).
func TestAtomicWrite(t *testing.T) {
	s := newScript(t)
	listed, inlined := atomicWrite(0), atomicWrite(0)
	listed.SGE = []ib.SGE{sge(3, 5), sge(100, 3)}
	inlined.IsInline, inlined.Inline, inlined.Length = true, wire.Buffer{B: []byte("8 octets")}, 8
	s.post(atomicWrite(0x1122334455667788), listed, with(inlined, ib.SendSolicited))
	one := func(p ib.PSN, b []byte) packet {
		return of(wire.RCAtomicWrite, p, 8).to(remoteVA, remoteKey, 8).asking(true).se(false).holds(b)
	}
	s.expect(at(0), one(100, nativeWord(0x1122334455667788)), one(101, append(pattern(3, 5), pattern(100, 3)...)), one(102, []byte("8 octets")))
	// Sent again it is the packet that was sent before, as often as it takes.
	s.deliver(at(us), nak(100, wire.NakSequence))
	s.expect(at(us), one(100, nativeWord(0x1122334455667788)), one(101, append(pattern(3, 5), pattern(100, 3)...)), one(102, []byte("8 octets")))
	s.deliver(at(2*us), ack(102)) // one ACK for all
	for _, c := range s.qp.sendDone {
		if c.detail.Opcode != ib.WCAtomicWrite || c.detail.ByteLen != 8 {
			t.Errorf("%+v", c.detail)
		}
	}
	s.completes(success(1), success(2), success(3))
}

// ATOMIC WRITE and FLUSH count against max_rd_atomic, and a fence waits for them.
func TestPlacementCountsAsReads(t *testing.T) {
	s := newScript(t, maxRDAtomic(2))
	s.post(atomicWrite(1), flush(64), atomicWrite(2), with(send(1), ib.SendFence))
	s.expect(at(0), of(wire.RCAtomicWrite, 100, 8), flushPacket(101, 64))
	s.deliver(at(us), ack(100))
	s.expect(at(us), of(wire.RCAtomicWrite, 102, 8))
	s.deliver(at(2*us), readOnly(101, 0, 0))
	s.expect(at(2 * us))
	s.deliver(at(3*us), ack(102))
	s.expect(at(3*us), sendOnly(103, 1))
	s.deliver(at(4*us), ack(103))
	s.completes(success(1), success(2), success(3), success(4))
}

// A FLUSH carries what it asks for, takes one number, and ends with a READ response without data (IBA A19).
func TestFlush(t *testing.T) {
	s := newScript(t)
	whole := flush(0)
	whole.Flush = transport.Flush{Placement: ib.FlushGlobal | ib.FlushPersistent, Level: ib.FlushRegion}
	s.post(write(10), flush(1<<20), whole, send(1))
	s.expect(at(0), writeOnly(100, 10), flushPacket(101, 1<<20),
		of(wire.RCFlush, 102, 0).to(remoteVA, remoteKey, 0).flushes(ib.FlushGlobal|ib.FlushPersistent, ib.FlushRegion), sendOnly(103, 1))
	s.deliver(at(us), readOnly(101, 0, 0)) // acknowledges the WRITE, too
	s.transmit()
	if c := s.qp.sendDone[1].detail; c.Opcode != ib.WCFlush || c.ByteLen != 0 {
		t.Errorf("%+v", c)
	}
	s.completes(success(1), success(2))
	s.deliver(at(2*us), readOnly(102, 0, 0), ack(103))
	s.completes(success(3), success(4))
}

// What is not the response of a FLUSH: an acknowledgement behind it says that the response was lost, and one of another
// kind is an error.
func TestResponsesOfAFlush(t *testing.T) {
	s := newScript(t)
	s.post(flush(8), send(1))
	s.expect(at(0), flushPacket(100, 8), sendOnly(101, 1))
	s.deliver(at(us), ack(101))
	s.expect(at(us), flushPacket(100, 8), sendOnly(101, 1))
	s.deliver(at(2*us), readOnly(100, 0, 0), ack(101))
	s.completes(success(1), success(2))
	for name, p := range map[string]packet{
		"data": readOnly(100, 0, 4), "first": readFirst(100, 0, 1024), "last": readLast(100, 0, 1), "atomic": atomicAck(100, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.post(flush(8))
			s.expect(at(0), flushPacket(100, 8))
			s.deliver(at(us), p)
			s.completes(failed(1, ib.WCBadRespErr))
		})
	}
	for syndrome, status := range map[wire.Syndrome]ib.WCStatus{
		wire.NakInvalidRequest: ib.WCRemInvReqErr, wire.NakRemoteAccess: ib.WCRemAccessErr, wire.NakRemoteOperation: ib.WCRemOpErr,
	} {
		s := newScript(t)
		s.post(flush(8), atomicWrite(1))
		s.skip(at(0))
		s.deliver(at(us), nak(100, syndrome))
		s.completes(failed(1, status), failed(2, ib.WCWRFlushErr))
	}
}
