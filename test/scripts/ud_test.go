package scripts

import (
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Datagrams. What the device judges before the engine sees a packet, P_Key, addresses and groups, is tested in package nic.
var datagrams = []event{
	{"DETH", "IBA 9.3-9.5", "the Q_Key of the request and the queue pair that sends", func(s *script) {
		s.with(overUD)
		s.post(addressed(send(8)))
		s.expect(at(0), datagramOnly(100, 8).qkey(qkey).has(&fieldSource, uint64(here)).silent())
		s.completes(success(1).as(ib.WCSend, 8))
	}},
	{"immediate", "IBA 9.8.3", "behind the DETH, and in the completion", func(s *script) {
		s.with(overUD)
		s.post(addressed(sendImm(8, 0xcafe)))
		s.expect(at(0), of(wire.UDSendOnlyImm, 100, 8).imm(0xcafe))
		s.completes(success(1))
		s.postRecv(64)
		s.deliver(at(us), of(wire.UDSendOnlyImm, 0, 8).imm(5))
		want := receivedDatagram(1001, 8)
		want.Flags |= ib.WCWithImm
		want.Imm = 5
		s.receives(want)
	}},
	{"controlled Q_Key", "IBA 10.2.5", "one with the top bit is not sent for who asks: the queue pair's own is", func(s *script) {
		s.with(overUD, func(c *choice) { c.attr.QKey = 0x80000007 })
		r := addressed(send(8))
		r.Datagram.QKey = 0x80010000
		s.post(r, addressed(send(8)))
		s.expect(at(0), datagramOnly(100, 8).qkey(0x80000007), datagramOnly(101, 8).qkey(qkey))
		s.completes(success(1), success(2))
	}},
	{"MTU excess", "IBA 9.8.3", "a datagram is one packet, no longer than the port's MTU: LOC_LEN_ERR, SQE", func(s *script) {
		s.with(overUD)
		s.post(addressed(send(activeMTU)), addressed(send(activeMTU+1)))
		s.expect(at(0), datagramOnly(100, activeMTU))
		s.completes(success(1), failure(2, ib.WCLocLenErr).because(transport.VendorTooLong).as(ib.WCSend, 0))
		s.inState(ib.StateSQE)
	}},
	{"no address handle", "IBA 9.8.3", "or one of another protection domain: LOC_QP_OP_ERR", func(s *script) {
		s.with(overUD)
		s.post(send(8))
		s.completes(failure(1, ib.WCLocQPOpErr))
		s.inState(ib.StateSQE)
	}},
	{"operations of connections", "man:ibv_post_send", "LOC_QP_OP_ERR", func(s *script) {
		for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAdd, ib.WRLocalInv, ib.WRBindMW, ib.WRSendWithInv} {
			s.with(overUD)
			r := addressed(send(8))
			r.Opcode = op
			s.post(r)
			s.completes(failure(1, ib.WCLocQPOpErr))
		}
	}},
	{"PSN", "IBA 9.8.3", "counted by who sends, ignored by who receives", func(s *script) {
		s.with(overUD)
		s.post(addressed(send(1)), addressed(send(1)))
		s.expect(at(0), datagramOnly(100, 1), datagramOnly(101, 1))
		s.completes(success(1), success(2))
		s.postRecv(64, 64, 64)
		s.deliver(at(us), datagramOnly(7, 4), datagramOnly(7, 4), datagramOnly(3, 4))
		s.receives(receivedDatagram(1001, 4), receivedDatagram(1002, 4), receivedDatagram(1003, 4))
		same(s, "out_of_sequence", s.counters.OutOfSequence, 0)
	}},
	{"Q_Key mismatch", "IBA 10.2.5", "dropped, and counted; the receive stays", func(s *script) {
		s.with(overUD)
		s.postRecv(64)
		s.deliver(at(0), datagramOnly(0, 8).qkey(qkey+1))
		s.receives()
		same(s, "messages dropped", s.counters.MessagesDropped, 1)
		s.deliver(at(us), datagramOnly(0, 8))
		s.receives(receivedDatagram(1001, 8))
	}},
	{"GRH of IPv4", "A17", "20 bytes of zero, the header of IPv4 with a right checksum, the payload", func(s *script) {
		s.with(overUD)
		s.postRecv(64)
		s.deliver(at(0), datagramOnly(0, 8))
		s.receives(receivedDatagram(1001, 8))
		s.holds(buffers, networkHeader4(8))
		s.holds(buffers+grhSize, theirs(0, 8))
	}},
	{"GRH of IPv6", "A17", "the header of IPv6, which fills the 40 bytes, the payload", func(s *script) {
		s.with(overUD)
		s.postRecv(64)
		s.deliver(at(0), datagramOnly(0, 8).overIPv6())
		want := receivedDatagram(1001, 8)
		want.Network = ib.NetworkIPv6
		s.receives(want)
		s.holds(buffers, networkHeader6(8))
		s.holds(buffers+grhSize, theirs(0, 8))
	}},
	{"datagram of nothing", "IBA 9.8.3", "40 bytes all the same", func(s *script) {
		s.with(overUD)
		s.postRecv(grhSize)
		s.deliver(at(0), datagramOnly(0, 0))
		s.receives(receivedDatagram(1001, 0))
		s.holds(buffers, networkHeader4(0))
	}},
	{"receive over several entries", "man:ibv_post_recv", "the 40 bytes are filled like any others", func(s *script) {
		s.with(overUD)
		s.postList(ib.SGE{Addr: buffers, Length: 30, LKey: s.mr.LKey}, ib.SGE{Addr: buffers + 512, Length: 100, LKey: s.mr.LKey})
		s.deliver(at(0), datagramOnly(0, 8))
		s.receives(receivedDatagram(1001, 8))
		s.holds(buffers, networkHeader4(8)[:30])
		s.holds(buffers+512, networkHeader4(8)[30:])
		s.holds(buffers+522, theirs(0, 8))
	}},
	{"too long for the receive", "IBA 9.8.3", "dropped; the queue pair lives, the receive is there for the next", func(s *script) {
		s.with(overUD)
		s.postRecv(grhSize + 8)
		s.deliver(at(0), datagramOnly(0, 9))
		s.receives()
		same(s, "resp_local_length_error", s.counters.RespLocalLengthError, 1)
		s.inState(ib.StateRTS)
		s.deliver(at(us), datagramOnly(0, 8))
		s.receives(receivedDatagram(1001, 8))
	}},
	{"no receive", "IBA 9.8.3", "dropped", func(s *script) {
		s.with(overUD)
		s.deliver(at(0), datagramOnly(0, 8))
		s.expect(at(0))
		same(s, "out_of_buffer", s.counters.OutOfBuffer, 1)
	}},
	{"SE", "IBA 9.2", "sent when it was asked for, and told to who receives", func(s *script) {
		s.with(overUD)
		s.post(flagged(addressed(send(1)), ib.SendSolicited), addressed(send(1)))
		s.expect(at(0), datagramOnly(100, 1).se(), datagramOnly(101, 1).notSE())
		s.completes(success(1), success(2))
		s.postRecv(64)
		s.deliver(at(us), datagramOnly(0, 8).se())
		s.receives(receivedDatagram(1001, 8).solicited())
	}},
	{"source QP", "man:ibv_poll_cq", "of the DETH, by which one answers", func(s *script) {
		s.with(overUD)
		s.postRecv(64)
		s.deliver(at(0), datagramOnly(0, 8).has(&fieldSource, 0x777))
		want := receivedDatagram(1001, 8)
		want.SrcQP = 0x777
		s.receives(want)
	}},
	{"receive with a bad key", "IBA 10.3.1", "LOC_PROT_ERR, and the error state", func(s *script) {
		s.with(overUD)
		s.postList(ib.SGE{Addr: buffers, Length: 64, LKey: 1})
		s.deliver(at(0), datagramOnly(0, 8))
		s.receives(failure(1001, ib.WCLocProtErr))
		s.inState(ib.StateErr)
	}},
	{"packets of another service", "IBA 9.6", "dropped", func(s *script) {
		s.with(overUD)
		s.postRecv(64)
		s.deliver(at(0), sendOnly(0, 8), inUC(sendOnly(0, 8)), inXRC(sendOnly(0, 8)))
		s.receives()
	}},
	{"static rate", "man:ibv_post_send", "of the address handle: packets along its path keep their distance", func(s *script) {
		s.with(overUD)
		slow := addressed(send(1000))
		slow.Datagram.Rate = 1024 * 1000 // bytes a second: a packet in a millisecond
		s.post(slow, slow, addressed(send(1)))
		s.expect(at(0), datagramOnly(100, 1000))
		s.completes(success(1))
		s.run(at(700 * us))
		s.expect(at(700 * us))
		s.run(at(2 * ms))
		same(s, "packets by now", len(s.sent), 3)
		apart := time.Duration(s.sent[1].when - s.sent[0].when)
		same(s, "distance between 700 us and 1 ms", apart > 700*us && apart <= ms, true)
		s.seen = len(s.sent)
		s.completes(success(2), success(3))
	}},
}
