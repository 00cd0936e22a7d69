package rc

import (
	"fmt"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

func TestSendSegmentation(t *testing.T) {
	s := newScript(t)
	s.post(send(3000))
	s.expect(at(0),
		sendFirst(100, 1024).holds(pattern(0, 1024)).asking(false),
		sendMiddle(101, 1024).holds(pattern(1024, 1024)).asking(false),
		sendLast(102, 952).holds(pattern(2048, 952)).asking(true))
	s.deliver(at(10*us), ack(102))
	s.completes(success(1))
}

// IBA 9.7.2.1: FIRST and MIDDLE are full, what fits one packet is an ONLY, a length of zero too.
func TestSegmentationOfEveryOperation(t *testing.T) {
	ops := []struct {
		name                      string
		request                   func(uint32) transport.Request
		first, middle, last, only wire.Opcode
	}{
		{"SEND", send, wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly},
		{"SEND_IMM", func(n uint32) transport.Request { return sendImm(n, 7) },
			wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastImm, wire.RCSendOnlyImm},
		{"WRITE", write, wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly},
		{"WRITE_IMM", func(n uint32) transport.Request { return writeImm(n, 7) },
			wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLastImm, wire.RCWriteOnlyImm},
		{"SEND_INV", func(n uint32) transport.Request { return sendInv(n, 0xabc07) },
			wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLastInv, wire.RCSendOnlyInv},
	}
	for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU1024, ib.MTU4096} {
		m := mtu.Bytes()
		for _, op := range ops {
			for _, n := range []int{0, 1, m - 1, m, m + 1, 2 * m, 2*m + 1, 5*m - 3} {
				t.Run(fmt.Sprintf("%s/%v/%d", op.name, mtu, n), func(t *testing.T) {
					s := newScript(t, pathMTU(mtu))
					s.post(op.request(uint32(n)))
					var want []packet
					for off := 0; off == 0 || off < n; off += m {
						o, size := op.middle, min(m, n-off)
						switch ends := off+m >= n; {
						case off == 0 && ends:
							o = op.only
						case off == 0:
							o = op.first
						case ends:
							o = op.last
						}
						p := of(o, ib.PSN(100+off/m), 0).holds(pattern(off, size)).asking(o.Ends())
						if o.Headers().Has(wire.HasRETH) {
							p = p.to(remoteVA, remoteKey, uint32(n)) // the whole message, once (IBA 9.3.3)
						}
						if o.Headers().Has(wire.HasImm) {
							p = p.imme(7)
						}
						if o.Headers().Has(wire.HasIETH) {
							p = p.invalidates(0xabc07)
						}
						want = append(want, p)
					}
					s.expect(at(0), want...)
					s.deliver(at(us), ack(ib.PSN(100+len(want)-1)))
					s.completes(success(1))
				})
			}
		}
	}
}

// IBA 9.2: SE belongs to the last packet of what consumes a receive.
func TestSolicitedEvent(t *testing.T) {
	s := newScript(t)
	s.post(with(send(2000), ib.SendSolicited), with(write(1), ib.SendSolicited), with(writeImm(1, 5), ib.SendSolicited), send(1))
	s.expect(at(0), sendFirst(100, 1024).se(false), sendLast(101, 976).se(true), writeOnly(102, 1).se(false),
		of(wire.RCWriteOnlyImm, 103, 1).se(true), sendOnly(104, 1).se(false))
	s.deliver(at(us), ack(104))
	s.completes(success(1), success(2), success(3), success(4))
}

// Inline data is fixed when it is posted: a retransmission has it too, whatever was fetched since (rdma-core's
// ibv_post_send; field bug B32).
func TestInlineComesFromThePrivateCopy(t *testing.T) {
	s := newScript(t, pathMTU(ib.MTU256))
	long := string(pattern(9, 256))
	s.post(inline("first"), inline(long), inline(""))
	s.expect(at(0), sendOnly(100, 0).holds([]byte("first")), sendOnly(101, 0).holds([]byte(long)), sendOnly(102, 0))
	s.deliver(at(us), nak(100, wire.NakSequence))
	s.expect(at(us), sendOnly(100, 0).holds([]byte("first")), sendOnly(101, 0).holds([]byte(long)), sendOnly(102, 0))
	s.deliver(at(2*us), ack(102))
	s.completes(success(1), success(2), success(3))
}

// Only what is sent for the first time is promised to stay as it is.
func TestOnlyFirstTransmissionsAreStable(t *testing.T) {
	s := newScript(t)
	s.post(write(2000))
	s.expect(at(0), writeFirst(100, 1024).isStable(true), writeLast(101, 976).isStable(true))
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.post(send(5))
	s.expect(at(us), writeLast(101, 976).isStable(false), sendOnly(102, 5).isStable(true))
	s.deliver(at(2*us), ack(102))
	s.completes(success(1), success(2))
}

// IBA 10.7.2: a message is gathered from its entries in order; an entry of no bytes names nothing, so its key goes unread.
func TestGatherAcrossEntries(t *testing.T) {
	s := newScript(t)
	r := send(0)
	r.SGE = []ib.SGE{sge(10, 1000), {Addr: 1, LKey: 0xbad}, sge(5000, 30), sge(9000, 1000)}
	s.post(r)
	data := append(append(pattern(10, 1000), pattern(5000, 30)...), pattern(9000, 1000)...)
	s.expect(at(0), sendFirst(100, 0).holds(data[:1024]), sendLast(101, 0).holds(data[1024:]))
	// Sent again from the middle, it is gathered from the same place (field bug B22).
	s.deliver(at(us), nak(101, wire.NakSequence))
	s.expect(at(us), sendLast(101, 0).holds(data[1024:]))
	s.deliver(at(2*us), ack(101))
	s.completes(success(1))
}

// IBA 9.7.3.1: a READ takes a number for every packet of its response; atomics take one.
func TestReadTakesANumberForEveryResponse(t *testing.T) {
	s := newScript(t)
	s.post(read(3000), send(1), fetchAdd(5), read(0), compareSwap(1, 2))
	s.expect(at(0), readRequest(100, 0, 3000), sendOnly(103, 1),
		of(wire.RCFetchAdd, 104, 0).operand(remoteVA, remoteKey, 5, 0),
		readRequest(105, 0, 0),
		of(wire.RCCompareSwap, 106, 0).operand(remoteVA, remoteKey, 2, 1))
	s.deliver(at(us), readFirst(100, 0, 1024), readMiddle(101, 1024, 1024), readLast(102, 2048, 952), ack(103),
		atomicAck(104, 77), readOnly(105, 0, 0), atomicAck(106, 78))
	s.completes(success(1), success(2), success(3), success(4), success(5))
}

// Field bug B29: every comparison is in the ring of 2^24, so a connection survives the wrap, wherever it falls.
func TestNumbersWrap(t *testing.T) {
	for _, start := range []ib.PSN{0xfffff0, 0xffffff, 0xfffffe, 0xfffffd, 0x7ffffe, 0x800000, 0} {
		t.Run(start.String(), func(t *testing.T) {
			s := newScript(t, startPSN(start), ackTimeout(14, 7))
			p := func(n uint32) ib.PSN { return start.Add(n) }
			for range 3 {
				s.post(send(2000), read(2000), write(1), fetchAdd(1))
				s.expect(s.now, sendFirst(p(0), 1024), sendLast(p(1), 976), readRequest(p(2), 0, 2000),
					writeOnly(p(4), 1), of(wire.RCFetchAdd, p(5), 0))
				// The second response is lost; then everything from there on is asked for again.
				s.deliver(s.now.Add(us), readFirst(p(2), 0, 1024), ack(p(4)))
				s.expect(s.now, readRequest(p(3), 1024, 976), writeOnly(p(4), 1), of(wire.RCFetchAdd, p(5), 0))
				s.deliver(s.now.Add(us), ack(p(0).Sub(1)), nak(p(2), wire.NakRemoteAccess)) // ghosts
				s.deliver(s.now.Add(us), readOnly(p(3), 1024, 976), ack(p(4)), atomicAck(p(5), 1))
				id := uint64(s.qp.posted)
				s.completes(success(id-3), success(id-2), success(id-1), success(id))
				start = start.Add(6)
			}
			s.counts("ghosts", s.counters.GhostAcks, 6)
		})
	}
}

// Field bug B10: a READ or WRITE of no bytes names no memory, so no R_Key is checked (IBA 9.7.4.1.3, C9-88). The requester
// sends one packet with whatever key it was given, which takes one number, and ends well. rdma-unit-test expects an error
// of a wrong key instead (ReadZeroByteInvalidRKey); we go with the specification, as the maintainers of Linux rxe read it:
// there is nothing that the key could protect.
func TestZeroLengthOfEveryKind(t *testing.T) {
	s := newScript(t)
	none := func(r transport.Request) transport.Request {
		r.SGE, r.RKey = nil, 0xdeadbeef
		return r
	}
	s.post(none(send(0)), none(sendImm(0, 1)), none(write(0)), none(writeImm(0, 1)), none(read(0)), send(1))
	s.expect(at(0), sendOnly(100, 0), of(wire.RCSendOnlyImm, 101, 0).imme(1),
		writeOnly(102, 0).to(remoteVA, 0xdeadbeef, 0), of(wire.RCWriteOnlyImm, 103, 0).to(remoteVA, 0xdeadbeef, 0),
		of(wire.RCReadRequest, 104, 0).to(remoteVA, 0xdeadbeef, 0), sendOnly(105, 1))
	s.deliver(at(us), ack(103), readOnly(104, 0, 0), ack(105))
	s.completes(success(1), success(2), success(3), success(4), success(5), success(6))
}

// Field bug B9 and IBA 10.8.3.3: a fence waits for READs and atomics before it, and for nothing else.
func TestFenceWaitsForReadsAndAtomicsOnly(t *testing.T) {
	s := newScript(t)
	s.post(send(1), with(send(2), ib.SendFence))
	s.expect(at(0), sendOnly(100, 1), sendOnly(101, 2)) // not for the SEND
	s.post(read(10), fetchAdd(1), write(3), with(send(4), ib.SendFence), send(5))
	s.expect(at(0), readRequest(102, 0, 10), of(wire.RCFetchAdd, 103, 0), writeOnly(104, 3))
	s.deliver(at(us), ack(101), readOnly(102, 0, 10))
	s.quiet() // the atomic is still out
	s.deliver(at(2*us), atomicAck(103, 0))
	s.expect(at(2*us), sendOnly(105, 4), sendOnly(106, 5)) // the WRITE need not have been acknowledged
	s.deliver(at(3*us), ack(106))
	s.completes(success(1), success(2), success(3), success(4), success(5), success(6), success(7))
}

// IBA 9.7.3.1: at max_rd_atomic the next READ waits, and everything behind it. A retry does not count twice.
func TestMaxRDAtomic(t *testing.T) {
	s := newScript(t, maxRDAtomic(2))
	s.post(read(10), fetchAdd(1), read(20), send(1))
	s.expect(at(0), readRequest(100, 0, 10), of(wire.RCFetchAdd, 101, 0))
	s.deliver(at(us), nak(100, wire.NakSequence))
	s.expect(at(us), readRequest(100, 0, 10), of(wire.RCFetchAdd, 101, 0))
	s.deliver(at(2*us), readOnly(100, 0, 10))
	s.expect(at(2*us), readRequest(102, 0, 20), sendOnly(103, 1))
	s.deliver(at(3*us), atomicAck(101, 0), readOnly(102, 0, 20), ack(103))
	s.completes(success(1), success(2), success(3), success(4))
}

// Where no READ was agreed on, one completes with an error instead of waiting for ever.
func TestNoReadsAgreedOn(t *testing.T) {
	for name, r := range map[string]transport.Request{"READ": read(1), "CAS": compareSwap(1, 2), "FAA": fetchAdd(1),
		"FLUSH": flush(1), "ATOMIC_WRITE": atomicWrite(1)} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, maxRDAtomic(0))
			s.post(send(1), r, send(2))
			s.expect(at(0), sendOnly(100, 1))
			s.deliver(at(us), ack(100))
			s.completes(success(1), failed(2, ib.WCLocQPOpErr), failed(3, ib.WCWRFlushErr))
		})
	}
}

// IBA 9.7.3.1: outstanding numbers span less than 2^23, however much is posted.
func TestSpanStaysBelowHalfTheRing(t *testing.T) {
	s := newScript(t, pathMTU(ib.MTU256), startPSN(0xc00000), windowOf(1<<23))
	mr := &dma.MR{Domain: s.pd, Region: vast{}, Length: 1 << 31, Access: ib.AccessLocalWrite}
	if err := s.table.Insert(mr); err != nil {
		t.Fatal(err)
	}
	long := func(packets uint32) transport.Request {
		r := read(0)
		r.SGE = []ib.SGE{{Addr: 0, Length: packets * 256, LKey: mr.LKey}}
		return r
	}
	s.post(long(1<<22), long(1<<22), send(1))
	s.expect(at(0), readRequest(0xc00000, 0, 1<<30)) // both together have 2^23 numbers
	s.deliver(at(us), response(wire.RCReadResponseFirst, 0xc00000, 0, 256))
	s.expect(at(us), readRequest(0, 0, 1<<30)) // now it is one less; and with that the window is closed
	// A response at the far end is still newer than what is awaited: a hole, not a ghost.
	s.deliver(at(2*us), response(wire.RCReadResponseLast, 0x3fffff, 0, 256))
	s.counts("implied NAKs", s.counters.ImpliedNakSeqErr, 1)
	s.counts("ghosts", s.counters.GhostAcks, 0)
	s.skip(at(3 * us))
	s.modify(ib.StateReset, 0)
}

// With a path MTU of 256 a READ of 2^31 bytes would have 2^23 numbers: one too many for the order of IBA 9.7.3.1.
func TestReadWithTooManyNumbers(t *testing.T) {
	s := newScript(t, pathMTU(ib.MTU256))
	r := read(0)
	r.SGE = []ib.SGE{{Length: 1 << 31, LKey: 1}}
	s.post(r)
	s.completes(failed(1, ib.WCLocLenErr))
}

// IBA 10.7.2: a message of exactly the largest length is sent.
func TestLargestMessage(t *testing.T) {
	s := newScript(t, maxMessage(3000))
	s.post(send(3000), send(3001))
	s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952))
	s.deliver(at(us), ack(102))
	s.completes(success(1), failed(2, ib.WCLocLenErr))
}

// vast is a region without memory.
type vast struct{}

func (vast) Size() uint64                                                { return 1 << 40 }
func (vast) Bytes(uint64, int) []byte                                    { return nil }
func (vast) Read([]byte, uint64) error                                   { return nil }
func (vast) Write([]byte, uint64) error                                  { return nil }
func (vast) Atomic(uint64, dma.AtomicOp, uint64, uint64) (uint64, error) { return 0, nil }
func (vast) Close() error                                                { return nil }
