package rc_test

import (
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// TestResponderOperation has the rows of reference 4.4: what the queue pair does not allow is an invalid request, whatever
// the memory allows.
func TestResponderOperation(t *testing.T) {
	rows := []struct {
		name    string
		without ib.AccessFlags
		request func(s *peerScript) request
	}{
		{"write without REMOTE_WRITE", ib.AccessRemoteWrite, func(s *peerScript) request { return s.writeOnly(100, 0, 8) }},
		{"write first without REMOTE_WRITE", ib.AccessRemoteWrite, func(s *peerScript) request { return s.writeFirst(100, 0, 2*mtu) }},
		{"write with immediate without REMOTE_WRITE", ib.AccessRemoteWrite, func(s *peerScript) request { return s.writeOnlyImm(100, 0, 8, 1) }},
		{"zero-length write without REMOTE_WRITE", ib.AccessRemoteWrite, func(s *peerScript) request { return s.writeOnly(100, 0, 0) }},
		{"read without REMOTE_READ", ib.AccessRemoteRead, func(s *peerScript) request { return s.read(100, 0, 8) }},
		{"zero-length read without REMOTE_READ", ib.AccessRemoteRead, func(s *peerScript) request { return s.read(100, 0, 0) }},
		{"compare swap without REMOTE_ATOMIC", ib.AccessRemoteAtomic, func(s *peerScript) request { return s.compareSwap(100, 0, 0, 1) }},
		{"fetch add without REMOTE_ATOMIC", ib.AccessRemoteAtomic, func(s *peerScript) request { return s.fetchAdd(100, 0, 1) }},
		{"reserved opcode 0x15", 0, func(*peerScript) request { return request{op: 0x15, psn: 100} }},
		{"reserved opcode 0x18", 0, func(*peerScript) request { return request{op: 0x18, psn: 100} }},
		{"flush without FLUSH_GLOBAL", ib.AccessFlushGlobal, func(s *peerScript) request { return s.flush(100, 0, 8) }},
		{"flush without FLUSH_PERSISTENT", 0, func(s *peerScript) request { return s.flush(100, 0, 8).placing(ib.FlushPersistent) }},
		{"flush without one of both", 0, func(s *peerScript) request {
			return s.flush(100, 0, 8).placing(ib.FlushGlobal | ib.FlushPersistent)
		}},
		{"flush that asks for nothing", 0, func(s *peerScript) request { return s.flush(100, 0, 8).placing(0) }},
		{"flush that asks for what is not", 0, func(s *peerScript) request { return s.flush(100, 0, 8).placing(ib.FlushGlobal | 4) }},
		{"flush of a level that is none", 0, func(s *peerScript) request { return s.flush(100, 0, 8).of(2) }},
		{"flush of 2^31+1 bytes", 0, func(s *peerScript) request { return s.flush(100, 0, 1<<31+1) }},
		{"flush with a payload", 0, func(s *peerScript) request { return s.flush(100, 0, 8).payload(8) }},
		{"atomic write without REMOTE_WRITE", ib.AccessRemoteWrite, func(s *peerScript) request { return s.atomicWrite(100, 0) }},
		{"atomic write without payload (B5)", 0, func(s *peerScript) request { return s.atomicWrite(100, 0).payload(0) }},
		{"atomic write of length 0 (B5)", 0, func(s *peerScript) request { return s.atomicWrite(100, 0).payload(0).sized(0) }},
		{"atomic write of 4 bytes", 0, func(s *peerScript) request { return s.atomicWrite(100, 0).payload(4).sized(4) }},
		{"atomic write of 9 bytes", 0, func(s *peerScript) request { return s.atomicWrite(100, 0).payload(9).sized(9) }},
		{"atomic write with another RETH length", 0, func(s *peerScript) request { return s.atomicWrite(100, 0).sized(16) }},
		{"atomic write, unaligned", 0, func(s *peerScript) request { return s.atomicWrite(100, 4) }},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := newPeerScript(t)
			s.attr.AccessFlags &^= row.without
			s.modify(ib.StateRTS, ib.QPAttrAccessFlags)
			s.deliver(row.request(s))
			s.untouched(0, 64)
			s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
		})
	}
	for _, op := range []wire.Opcode{
		wire.UCSendOnly, wire.UDSendOnly, wire.XRCSendOnly, wire.CNP, 0xff, 0x44, wire.RCAcknowledge, wire.RCReadResponseOnly,
	} {
		// Field B4 and reference 1.8: what is no request of this service is dropped without a word.
		t.Run("dropped "+op.String(), func(t *testing.T) {
			s := newPeerScript(t)
			s.deliver(request{op: op, psn: 100})
			s.expect()
			s.state(ib.StateRTR)
			s.expectedPSN(100)
		})
	}
}

// TestResponderAccess has the rows of reference 4.6 for each operation that names memory. Nothing is written.
func TestResponderAccess(t *testing.T) {
	operations := map[string]func(s *peerScript, key ib.RKey, va uint64) request{
		"write only": func(s *peerScript, k ib.RKey, va uint64) request { return s.writeOnly(100, 0, 8).keyed(k).at(va) },
		"write first": func(s *peerScript, k ib.RKey, va uint64) request {
			return s.writeFirst(100, 0, 2*mtu).keyed(k).at(va)
		},
		"read":         func(s *peerScript, k ib.RKey, va uint64) request { return s.read(100, 0, 8).keyed(k).at(va) },
		"compare swap": func(s *peerScript, k ib.RKey, va uint64) request { return s.compareSwap(100, 0, 0, 1).keyed(k).at(va) },
		"fetch add":    func(s *peerScript, k ib.RKey, va uint64) request { return s.fetchAdd(100, 0, 1).keyed(k).at(va) },
		"atomic write": func(s *peerScript, k ib.RKey, va uint64) request { return s.atomicWrite(100, 0).keyed(k).at(va) },
		"flush":        func(s *peerScript, k ib.RKey, va uint64) request { return s.flush(100, 0, 8).keyed(k).at(va) },
	}
	rows := []struct {
		name string
		key  func(s *peerScript) ib.RKey
		va   uint64
	}{
		{"no such key", func(s *peerScript) ib.RKey { return s.mr.RKey ^ 0x12345600 }, memBase},
		{"variant of the key is wrong", func(s *peerScript) ib.RKey { return s.mr.RKey + 1 }, memBase},
		{"key 0", func(*peerScript) ib.RKey { return 0 }, memBase},
		{"region deregistered", func(s *peerScript) ib.RKey { s.table.Remove(s.mr); return s.mr.RKey }, memBase},
		{"other protection domain", func(s *peerScript) ib.RKey {
			return s.register(&dma.MR{Domain: &dma.Domain{Handle: 2}, Region: s.mr.Region, Base: memBase, Length: memSize, Access: allRights}).RKey
		}, memBase},
		{"no remote right", func(s *peerScript) ib.RKey { return s.rights(ib.AccessLocalWrite) }, memBase},
		{"before the region", nil, memBase - 8},
		{"behind the region", nil, memBase + memSize},
		{"over the end of the region", nil, memBase + memSize - 4},
		{"address 0", nil, 0},
		{"wraps around the address space", nil, ^uint64(0) - 3}, // field B3, CVE-2026-98365
		{"ends at the end of the address space", nil, ^uint64(0) - 7},
		{"zero-length region", func(s *peerScript) ib.RKey { // CVE-2023-25775: it allows nothing, rather than anything
			return s.register(&dma.MR{Domain: s.domain, Region: s.mr.Region, Offset: canary, Base: memBase, Access: allRights}).RKey
		}, memBase},
	}
	for name, make := range operations {
		for _, row := range rows {
			t.Run(name+", "+row.name, func(t *testing.T) {
				s := newPeerScript(t)
				key := s.mr.RKey
				if row.key != nil {
					key = row.key(s)
				}
				s.deliver(make(s, key, row.va))
				s.untouched(0, memSize)
				s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
			})
		}
	}
	rights := []struct {
		name string
		has  ib.AccessFlags
		make func(s *peerScript, k ib.RKey) request
	}{
		{"write with all rights but its own", ib.AccessLocalWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic,
			func(s *peerScript, k ib.RKey) request { return s.writeOnly(100, 0, 8).keyed(k) }},
		{"read with all rights but its own", ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteAtomic,
			func(s *peerScript, k ib.RKey) request { return s.read(100, 0, 8).keyed(k) }},
		{"atomic with all rights but its own", ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead,
			func(s *peerScript, k ib.RKey) request { return s.fetchAdd(100, 0, 8).keyed(k) }},
		{"atomic write with all rights but REMOTE_WRITE", allRights &^ ib.AccessRemoteWrite,
			func(s *peerScript, k ib.RKey) request { return s.atomicWrite(100, 0).keyed(k) }},
		{"flush with all rights but its own", allRights &^ ib.AccessFlushGlobal,
			func(s *peerScript, k ib.RKey) request { return s.flush(100, 0, 8).keyed(k) }},
		{"flush of a region without the right", allRights &^ ib.AccessFlushGlobal,
			func(s *peerScript, k ib.RKey) request { return s.flush(100, 0, 8).keyed(k).of(ib.FlushRegion) }},
	}
	for _, row := range rights {
		t.Run(row.name, func(t *testing.T) {
			s := newPeerScript(t)
			s.deliver(row.make(s, s.rights(row.has)))
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		})
	}
	play(t, []script{
		{"the last bytes of the region", "IBA 10.6.3", func(s *peerScript) {
			s.deliver(s.writeOnly(100, memSize-8, 8), s.read(101, memSize-8, 8), s.fetchAdd(102, memSize-8, 0))
			s.expect(ack(100, 1), readOnly(101, 8, 2), atomicAck(102, s.word(memSize-8), 3))
		}},
		{"the whole RETH length counts on the first packet", "IBA 9.7.4.1.3", func(s *peerScript) {
			s.deliver(s.writeFirst(100, memSize-2*mtu, 2*mtu+1))
			s.untouched(memSize-2*mtu, 2*mtu)
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"the region disappears in the middle of a WRITE", "IBA 9.7.4.1.3", func(s *peerScript) {
			s.deliver(s.writeFirst(100, 0, 3*mtu).with(1))
			s.table.Remove(s.mr)
			s.deliver(writeMiddle(101))
			s.wrote(0, writeMiddle(0).with(1).bytes()) // what was written stays
			s.untouched(mtu, 2*mtu)
			s.dies(nak(101, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"the region disappears before the last packet of a WRITE with immediate", "IBA 9.7.4.1.3, wc_status 8", func(s *peerScript) {
			s.post(1, 0)
			s.deliver(s.writeFirst(100, 0, 2*mtu))
			s.table.Remove(s.mr)
			s.deliver(writeLastImm(101, mtu, 7))
			s.dies(nak(101, wire.NakRemoteAccess, 0)) // the receive tells; no event
			s.completed(failed(1, ib.WCLocAccessErr, transport.VendorBadKey))
		}},
		{"write with immediate and a bad key reports in the receive", "wc_status 8; field B11", func(s *peerScript) {
			s.post(1, 0)
			s.post(2, 0)
			s.deliver(s.writeOnlyImm(100, 0, 8, 7).at(memBase + memSize))
			s.dies(nak(100, wire.NakRemoteAccess, 0))
			s.completed(failed(1, ib.WCLocAccessErr, transport.VendorBadRange), flushed(2))
		}},
		{"write with immediate, a bad key and no receive: the receive comes first", "IBA 9.7.4, order of the questions", func(s *peerScript) {
			s.deliver(s.writeOnlyImm(100, 0, 8, 7).keyed(0))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			s.state(ib.StateRTR)
		}},
		{"atomics look at their key, whatever they do", "C9-88 is about READ and WRITE alone", func(s *peerScript) {
			s.deliver(s.fetchAdd(100, 0, 0).keyed(1))
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"unaligned fetch add", "IBA 9.4.5.1", func(s *peerScript) {
			s.deliver(s.fetchAdd(100, 4, 1))
			s.untouched(0, 16)
			s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
		}},
		{"unaligned compare swap", "IBA 9.4.5.1", func(s *peerScript) {
			s.deliver(s.compareSwap(100, 1, 0, 0))
			s.dies(nak(100, wire.NakInvalidRequest, 0), ib.EventQPReqErr)
		}},
		// Field B25: a patch elsewhere says that a refused atomic is answered by an ATOMIC ACKNOWLEDGE. It is not: an
		// ATOMIC ACKNOWLEDGE has an AtomicAckETH, and there is no original value to put there. NAKs come only in
		// ACKNOWLEDGE packets (reference 3.6, after IBA 9.7.5.2); a requester finds what they refuse by PSN.
		{"the NAK of an atomic is an ACKNOWLEDGE", "IBA 9.7.5.2; field B25", func(s *peerScript) {
			s.deliver(s.compareSwap(100, 0, 0, 0).keyed(1))
			s.dies(reply{op: wire.RCAcknowledge, psn: 100, syndrome: wire.NakRemoteAccess}, ib.EventQPAccessErr)
		}},
		{"the NAK of a READ is an ACKNOWLEDGE", "IBA 9.7.5.2", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8).keyed(1))
			s.dies(reply{op: wire.RCAcknowledge, psn: 100, syndrome: wire.NakRemoteAccess}, ib.EventQPAccessErr)
		}},
		{"a NAK leaves whether A was set or not", "IBA 9.7.5.1.2; field B11", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8).keyed(1).silent())
			s.dies(nak(100, wire.NakRemoteAccess, 0), ib.EventQPAccessErr)
		}},
		{"what was executed before the error is acknowledged before the NAK", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 64, 8), s.read(101, 0, 2*mtu), s.writeOnly(103, 0, 8).keyed(1), s.writeOnly(104, 0, 8))
			s.expect(ack(100, 1), readFirst(101, 2), readLast(102, mtu, 2), nak(103, wire.NakRemoteAccess, 2))
			s.state(ib.StateErr)
			s.raised(ib.EventQPAccessErr)
		}},
	})
}

func TestResponderReceiveErrors(t *testing.T) {
	play(t, []script{
		{"no receive: RNR NAK, and nothing moves", "IBA 9.7.5.2.8", func(s *peerScript) {
			s.deliver(sendOnly(100, 8))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			s.expectedPSN(100)
			s.state(ib.StateRTR)
			s.raised()
			if s.counters.OutOfBuffer != 1 {
				s.t.Errorf("out_of_buffer is %d", s.counters.OutOfBuffer)
			}
		}},
		{"what follows an RNR NAK is dropped", "IBA 9.7.5.2.8", func(s *peerScript) {
			s.deliver(sendFirst(100), sendMiddle(101), sendLast(102, 8))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			s.deliver(s.writeOnly(103, 0, 8))
			s.expect()
			s.untouched(0, 8)
		}},
		{"each attempt is answered by RNR NAK, until there is a receive", "IBA 9.7.5.2.8", func(s *peerScript) {
			for range 3 {
				s.deliver(sendOnly(100, 8))
				s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			}
			s.post(1, 64)
			s.deliver(sendOnly(100, 8))
			s.expect(ack(100, 1))
			s.completed(received(1, 8))
		}},
		{"the receive came before the RNR NAK left", "IBA 9.7.5.2.8", func(s *peerScript) {
			s.deliver(sendOnly(100, 8))
			s.post(1, 64)
			s.deliver(sendOnly(100, 8))
			s.expect(ack(100, 1))
		}},
		{"RNR NAK carries min_rnr_timer of the last modify", "IBA 9.7.5.2.8", func(s *peerScript) {
			s.attr.MinRNRTimer = 31
			s.modify(ib.StateRTS, ib.QPAttrMinRNRTimer)
			s.deliver(sendOnly(100, 8))
			s.expect(nak(100, wire.RNRNak(31), 0))
		}},
		{"write only with immediate and no receive stores nothing", "IBA 9.7.5.2.8, 4.9", func(s *peerScript) {
			s.deliver(s.writeOnlyImm(100, 0, 8, 1).with(1))
			s.expect(nak(100, wire.RNRNak(rnrTimer), 0))
			s.untouched(0, 8)
			s.post(1, 0)
			s.deliver(s.writeOnlyImm(100, 0, 8, 1).with(1))
			s.expect(ack(100, 1))
			s.completed(writtenImm(1, 8, 1))
		}},
		{"write last with immediate and no receive", "IBA 9.7.5.2.8, 4.9", func(s *peerScript) {
			s.deliver(s.writeFirst(100, 0, mtu+8), writeLastImm(101, 8, 1))
			s.expect(nak(101, wire.RNRNak(rnrTimer), 0))
			s.untouched(mtu, 8)
			s.post(1, 0)
			s.deliver(writeLastImm(101, 8, 1).with(3))
			s.expect(ack(101, 1))
			s.wrote(mtu, writeLastImm(0, 8, 1).with(3).bytes())
		}},
		{"write first of a WRITE with immediate needs no receive yet", "opcodes.csv, recv_wqe", func(s *peerScript) {
			w := s.writeFirst(100, 0, mtu+8)
			w.quiet = false
			s.deliver(w)
			s.expect(ack(100, 0))
		}},
		{"RNR does not overtake a READ", "IBA 9.7.5.1.2", func(s *peerScript) {
			s.deliver(s.read(100, 0, 2*mtu), sendOnly(102, 8))
			s.expect(readFirst(100, 1), readLast(101, mtu, 1), nak(102, wire.RNRNak(rnrTimer), 1))
		}},
		{"malformed receive", "IBA 9.7.5.2.7, wc_status 2", func(s *peerScript) {
			s.post(1, 64)
			s.post(2, 64)
			s.qp.malformed = map[uint64]bool{1: true}
			s.deliver(sendOnly(100, 8))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocQPOpErr, transport.VendorMalformedWQE), flushed(2))
		}},
		{"malformed receive of a WRITE with immediate", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.post(1, 64)
			s.qp.malformed = map[uint64]bool{1: true}
			s.deliver(s.writeOnlyImm(100, 0, 8, 1))
			s.untouched(0, 8)
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocQPOpErr, transport.VendorMalformedWQE))
		}},
		{"receive with a key that does not exist", "IBA 9.7.5.2.7, wc_status 4", func(s *peerScript) {
			s.postList(1, ib.SGE{Addr: bufBase, Length: 64, LKey: s.bufs.LKey ^ 0x5500})
			s.deliver(sendOnly(100, 8))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorBadKey))
		}},
		{"receive in memory without LOCAL_WRITE", "IBA 10.6.3.1", func(s *peerScript) {
			k := s.register(&dma.MR{Domain: s.domain, Region: dma.NewEmbedded(make([]byte, 64)), Base: 0, Length: 64}).LKey
			s.postList(1, ib.SGE{Length: 64, LKey: k})
			s.deliver(sendOnly(100, 8))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorBadAccess))
		}},
		{"receive outside its region", "IBA 10.6.3.1", func(s *peerScript) {
			s.postList(1, ib.SGE{Addr: bufBase + bufSize - 4, Length: 64, LKey: s.bufs.LKey})
			s.deliver(sendOnly(100, 8))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorBadRange))
		}},
		{"an entry that is not used is not looked at", "reference 7.3", func(s *peerScript) {
			s.postList(1, ib.SGE{Addr: bufBase, Length: 64, LKey: s.bufs.LKey}, ib.SGE{Addr: 1, Length: 64, LKey: 1})
			s.deliver(sendOnly(100, 64))
			s.expect(ack(100, 1))
			s.completed(received(1, 64))
		}},
		{"the bad entry is met in the second packet", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.postList(1, ib.SGE{Addr: bufBase, Length: mtu, LKey: s.bufs.LKey}, ib.SGE{Addr: 1, Length: mtu, LKey: 1})
			s.deliver(sendFirst(100), sendLast(101, 4))
			s.dies(nak(101, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorBadKey))
		}},
		{"a message half received is flushed", "IBA 10.3.1.7", func(s *peerScript) {
			s.post(1, 4096)
			s.post(2, 4096)
			s.deliver(sendFirst(100), sendMiddle(101))
			s.modify(ib.StateErr, 0)
			s.expect()
			s.completed(flushed(1), flushed(2))
			s.post(3, 64) // the drain idiom: posted in ERR, flushed behind all others
			s.expect()
			s.completed(flushed(3))
			s.expect()
			s.completed()
		}},
		{"the flush keeps to its budget", "transport.Engine.Transmit", func(s *peerScript) {
			for i := range 5 {
				s.post(uint64(i), 64)
			}
			s.modify(ib.StateErr, 0)
			if _, more := s.transmit(2 * 64); !more || len(s.qp.done) != 2 {
				s.t.Errorf("%d flushed, more %v", len(s.qp.done), more)
			}
			s.expect()
			s.completed(flushed(0), flushed(1), flushed(2), flushed(3), flushed(4))
		}},
		{"the application's error state stops all answers", "IBA 10.3.1.7", func(s *peerScript) {
			s.deliver(s.read(100, 0, 4*mtu), s.writeOnly(104, 0, 8))
			s.modify(ib.StateErr, 0)
			s.expect()
		}},
		{"RESET forgets everything", "IBA 10.3.1.1", func(s *peerScript) {
			s.post(1, 4096)
			s.deliver(s.fetchAdd(100, 0, 1), sendFirst(101), s.writeOnly(103, 0, 8))
			s.modify(ib.StateReset, 0)
			s.expect()
			s.completed()
			s.modify(ib.StateInit, ib.QPAttrAccessFlags)
			s.attr.RQPSN = 150
			s.modify(ib.StateRTR, ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|ib.QPAttrMaxDestRDAtomic|ib.QPAttrMinRNRTimer)
			s.deliver(s.fetchAdd(100, 0, 1)) // of the former life
			s.expect()
			s.deliver(sendOnly(150, 8)) // the receive that was taken is gone, too
			s.expect(nak(150, wire.RNRNak(rnrTimer), 0))
			s.post(2, 64)
			s.deliver(sendOnly(150, 8))
			s.expect(ack(150, 1))
			s.completed(received(2, 8))
		}},
		{"packets in RESET, INIT and ERR are dropped", "IBA 10.3.1; CVE-2026-93107", func(s *peerScript) {
			for _, state := range []ib.QPState{ib.StateReset, ib.StateInit, ib.StateErr} {
				s.modify(state, 0)
				s.deliver(s.writeOnly(100, 0, 8), s.writeOnly(0, 0, 8))
				s.expect()
				s.untouched(0, 8)
			}
		}},
		{"the CQ overruns: nothing is acknowledged, nothing more executed", "CVE-2026-93107; wc_status", func(s *peerScript) {
			s.post(1, 64)
			s.post(2, 64)
			s.qp.overrun = func() { s.modify(ib.StateErr, 0) }
			s.deliver(sendOnly(100, 8), s.writeOnly(101, 0, 8))
			s.qp.overrun = nil
			s.untouched(0, 8)
			s.expect()
			s.state(ib.StateErr)
			s.completed(flushed(2))
		}},
		{"the CQ overruns with an error completion: the peer has its NAK", "CVE-2026-93107, CVE-2021-47076", func(s *peerScript) {
			s.post(1, 4)
			s.qp.overrun = func() { s.modify(ib.StateErr, 0) }
			s.deliver(sendOnly(100, 8))
			s.qp.overrun = nil
			s.expect(nak(100, wire.NakInvalidRequest, 0))
			s.state(ib.StateErr)
		}},
	})
}

// TestResponderMemoryFaults is about memory that is registered and gone: unmapped or punched by its owner, who is charged.
func TestResponderMemoryFaults(t *testing.T) {
	play(t, []script{
		{"write into memory that is gone", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.deliver(s.writeOnly(100, 0, 8).keyed(s.brokenMR().RKey))
			s.dies(nak(100, wire.NakRemoteOperation, 0), ib.EventQPAccessErr)
		}},
		{"write with immediate into memory that is gone", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.post(1, 0)
			s.deliver(s.writeOnlyImm(100, 0, 8, 1).keyed(s.brokenMR().RKey))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorMemoryFault))
		}},
		{"receive in memory that is gone", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.postList(1, ib.SGE{Addr: memBase, Length: 64, LKey: s.brokenMR().LKey})
			s.deliver(sendOnly(100, 8))
			s.dies(nak(100, wire.NakRemoteOperation, 0))
			s.completed(failed(1, ib.WCLocProtErr, transport.VendorMemoryFault))
		}},
		{"atomic on memory that is gone", "IBA 9.7.5.2.7", func(s *peerScript) {
			s.deliver(s.fetchAdd(100, 0, 1).keyed(s.brokenMR().RKey))
			s.dies(nak(100, wire.NakRemoteOperation, 0), ib.EventQPAccessErr)
		}},
		{"read of memory that is gone: the port tells", "IBA 9.7.5.2.4; transport.Engine.Faulted", func(s *peerScript) {
			s.deliver(s.read(100, 0, 8).keyed(s.brokenMR().RKey), s.writeOnly(101, 64, 8))
			if got, _ := s.transmit(1); len(got) != 0 {
				s.t.Fatalf("sent %v", got)
			}
			s.dies(nak(100, wire.NakRemoteAccess, 2), ib.EventQPAccessErr)
		}},
		{"a fault of nothing that was read is ignored", "transport.Engine.Faulted", func(s *peerScript) {
			if s.e.Faulted(0, 1<<63|500) {
				s.t.Error("active: got true")
			}
			s.deliver(s.fetchAdd(100, 0, 0))
			s.e.Faulted(0, 1<<63|100)
			s.expect(atomicAck(100, s.word(0), 1))
			s.state(ib.StateRTR)
		}},
		{"a local peer's payload is gone: the packet never arrived", "ARCHITECTURE.md, a message's way in", func(s *peerScript) {
			s.post(1, 64)
			s.deliver(sendOnly(100, 8).local(&broken{64}), s.writeOnly(100, 0, 8).local(&broken{64}))
			s.expect()
			s.state(ib.StateRTR)
			s.expectedPSN(100)
			if n := s.e.SourceFaults(); n != 2 {
				s.t.Errorf("source faults: got %d, want 2", n)
			}
			s.deliver(sendOnly(100, 8)) // the receive that was taken is used now
			s.expect(ack(100, 1))
			s.completed(received(1, 8))
		}},
		{"a local peer's WRITE into memory that is gone", "ARCHITECTURE.md, a message's way in", func(s *peerScript) {
			b := &wire.Buffer{B: make([]byte, 8)}
			s.deliver(s.writeOnly(100, 0, 8).keyed(s.brokenMR().RKey).local(b))
			s.dies(nak(100, wire.NakRemoteOperation, 0), ib.EventQPAccessErr)
		}},
		{"source and destination are one memory, which is gone", "ARCHITECTURE.md, a message's way in", func(s *peerScript) {
			mr := s.brokenMR()
			s.deliver(s.writeOnly(100, 0, 8).keyed(mr.RKey).local(mr.Region))
			s.dies(nak(100, wire.NakRemoteOperation, 0), ib.EventQPAccessErr)
		}},
		{"a local peer's bytes arrive", "ARCHITECTURE.md, a message's way in", func(s *peerScript) {
			b := &wire.Buffer{B: []byte("a message")}
			s.deliver(s.writeOnly(100, 3, 9).local(b))
			s.expect(ack(100, 1))
			s.wrote(3, b.B)
		}},
	})
}
