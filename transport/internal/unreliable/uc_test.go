package unreliable_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

func line(op wire.Opcode, psn ib.PSN, n int) string { return fmt.Sprintf("%v %d %d", op, psn, n) }

func (s *script) service() wire.Service {
	if _, ok := s.e.(*ud.Engine); ok {
		return wire.ServiceUD
	}
	return wire.ServiceUC
}

func TestUCSegments(t *testing.T) {
	s := newUC(t)
	imm, write, both := send(1025), send(2048), send(0)
	imm.Opcode, write.Opcode, both.Opcode = ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm
	s.post(send(2049), imm, write, both, send(1024))
	s.sends(
		line(wire.UCSendFirst, 100, 1024), line(wire.UCSendMiddle, 101, 1024), line(wire.UCSendLast, 102, 1),
		line(wire.UCSendFirst, 103, 1024), line(wire.UCSendLastImm, 104, 1),
		line(wire.UCWriteFirst, 105, 1024), line(wire.UCWriteLast, 106, 1024),
		line(wire.UCWriteOnlyImm, 107, 0), line(wire.UCSendOnly, 108, 1024),
	)
	s.completes("send 1 SUCCESS", "send 2 SUCCESS", "send 3 SUCCESS", "send 4 SUCCESS", "send 5 SUCCESS")
}

// SE stands in the last packet of a message that takes a receive, and nowhere else (IBA 9.2).
func TestUCSolicits(t *testing.T) {
	s := newUC(t)
	s.stuck = true
	long, write, imm := send(2000), send(10), send(10)
	write.Opcode, imm.Opcode = ib.WRRDMAWrite, ib.WRRDMAWriteWithImm
	for _, r := range []*transport.Request{&long, &write, &imm} {
		r.Flags |= ib.SendSolicited
		s.post(*r)
	}
	s.run()
	for i, want := range []bool{false, true, false, true} {
		if f := &s.burst.Frames()[i]; f.BTH().Solicited() != want {
			t.Errorf("%v: SE is %v", f.BTH().Opcode(), !want)
		}
	}
	s.stuck = false
	s.leave()
	s.now, s.sent = s.e.Deadline(), nil
	s.completes("send 1 SUCCESS", "send 2 SUCCESS", "send 3 SUCCESS")
}

// What the peer's packets do, by the rules of reference 5.1.
func TestUCReceives(t *testing.T) {
	first, middle, last, only := wire.UCSendFirst, wire.UCSendMiddle, wire.UCSendLast, wire.UCSendOnly
	full := func(op wire.Opcode, psn ib.PSN) packet { return packet{op: op, psn: psn, n: 1024, fill: byte(psn)} }
	short := func(op wire.Opcode, psn ib.PSN) packet { return packet{op: op, psn: psn, n: 10, fill: byte(psn)} }
	write := func(op wire.Opcode, psn ib.PSN, n, size int) packet {
		return packet{op: op, psn: psn, n: n, size: size, va: base, fill: 0xee}
	}
	for name, c := range map[string]struct {
		recvs   []uint32
		packets []packet
		want    []string
	}{
		"one packet":                     {[]uint32{10}, []packet{short(only, 500)}, []string{"recv 1001 SUCCESS 10"}},
		"three packets":                  {[]uint32{4096}, []packet{full(first, 500), full(middle, 501), short(last, 502)}, []string{"recv 1001 SUCCESS 2058"}},
		"another number resynchronises":  {[]uint32{10, 10}, []packet{short(only, 900), short(only, 901)}, []string{"recv 1001 SUCCESS 10", "recv 1002 SUCCESS 10"}},
		"the middle is missing":          {[]uint32{4096}, []packet{full(first, 500), short(last, 502), short(only, 503)}, []string{"recv 1001 SUCCESS 10"}},
		"MIDDLE without FIRST":           {[]uint32{4096}, []packet{full(middle, 500), short(last, 501), short(only, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"FIRST while a message is open":  {[]uint32{4096}, []packet{full(first, 500), full(first, 501), short(last, 502)}, []string{"recv 1001 SUCCESS 1034"}},
		"a WRITE cuts in":                {[]uint32{4096}, []packet{full(first, 500), write(wire.UCWriteOnly, 501, 8, 8), short(last, 502), short(only, 503)}, []string{"recv 1001 SUCCESS 10"}},
		"LAST of another operation":      {[]uint32{4096}, []packet{full(first, 500), {op: wire.UCWriteLast, psn: 501, n: 8}, short(only, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"no receive":                     {nil, []packet{full(first, 500), short(last, 501)}, nil},
		"no receive, then one":           {[]uint32{10}, []packet{short(only, 500), full(first, 501), short(last, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"too long, then one that fits":   {[]uint32{1030}, []packet{full(first, 500), short(last, 501), short(only, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"too long in the middle":         {[]uint32{1500}, []packet{full(first, 500), full(middle, 501), short(last, 502), short(only, 503)}, []string{"recv 1001 SUCCESS 10"}},
		"FIRST that is not full":         {[]uint32{4096}, []packet{short(first, 500), short(last, 501), short(only, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"empty LAST":                     {[]uint32{4096}, []packet{full(first, 500), {op: last, psn: 501}, short(only, 502)}, []string{"recv 1001 SUCCESS 10"}},
		"wrong pad":                      {[]uint32{10}, []packet{{op: only, psn: 500, n: 10, badPad: true}}, nil},
		"WRITE":                          {[]uint32{10}, []packet{write(wire.UCWriteFirst, 500, 1024, 1034), write(wire.UCWriteLast, 501, 10, 0)}, nil},
		"WRITE with immediate":           {[]uint32{0}, []packet{write(wire.UCWriteOnlyImm, 500, 10, 10)}, []string{"recv 1001 SUCCESS 10"}},
		"WRITE shorter than it said":     {[]uint32{0}, []packet{write(wire.UCWriteOnlyImm, 500, 10, 11)}, nil},
		"WRITE longer than it said":      {[]uint32{0}, []packet{write(wire.UCWriteOnlyImm, 500, 10, 9)}, nil},
		"WRITE of nothing, key unread":   {[]uint32{0}, []packet{{op: wire.UCWriteOnlyImm, psn: 500, flip: 0x100}}, []string{"recv 1001 SUCCESS 0"}},
		"WRITE with a wrong key":         {[]uint32{0}, []packet{{op: wire.UCWriteOnlyImm, psn: 500, n: 4, size: 4, va: base, flip: 0x100}}, nil},
		"WRITE beyond the region":        {[]uint32{0}, []packet{{op: wire.UCWriteOnlyImm, psn: 500, n: 4, size: 4, va: base + 1<<16 - 3}}, nil},
		"WRITE around the address space": {[]uint32{0}, []packet{{op: wire.UCWriteOnlyImm, psn: 500, n: 4, size: 4, va: 1<<64 - 2}}, nil},
		"packet of another service":      {[]uint32{100}, []packet{{op: wire.RCSendOnly, psn: 500, n: 10}, {op: wire.UDSendOnly, psn: 500, n: 10}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newUC(t)
			before := slices.Clone(s.memory)
			s.postRecv(c.recvs...)
			s.deliver(c.packets...)
			s.completes(c.want...)
			s.inState(ib.StateRTS)
			if len(s.qp.events) != 0 {
				t.Errorf("events %v", s.qp.events)
			}
			if len(c.want) == 1 && c.packets[len(c.packets)-1].op == only {
				s.holds(buffers, 10, c.packets[len(c.packets)-1].fill)
			}
			if name == "WRITE" {
				s.holds(base, 1034, 0xee)
			} else if len(c.want) == 0 && c.recvs == nil && !slices.Equal(before, s.memory) {
				t.Error("memory was written")
			}
		})
	}
}

// Without the right in qp_access_flags a WRITE is dropped.
func TestUCWriteNeedsTheRight(t *testing.T) {
	s := newUC(t)
	s.attr.AccessFlags = 0
	s.modify(ib.StateRTS)
	s.deliver(packet{op: wire.UCWriteOnly, psn: 500, n: 8, size: 8, va: base, fill: 0xee})
	if s.memory[0] == 0xee {
		t.Error("it was executed")
	}
}

// A message that breaks off has used up a receive that others could have had: of a shared queue it tells (wc_status.csv, 16).
func TestUCAbortedMessageOfSharedQueue(t *testing.T) {
	s := newSharedUC(t)
	s.postRecv(4096, 4096)
	s.deliver(packet{op: wire.UCSendFirst, psn: 500, n: 1024}, packet{op: wire.UCSendOnly, psn: 502, n: 10})
	s.completes("recv 1001 REM_ABORT_ERR 0", "recv 1002 SUCCESS 10")
	s.inState(ib.StateRTS)
}

// A receive that cannot be used is the application's mistake, and ends the queue pair.
func TestReceiveErrors(t *testing.T) {
	both(t, func(s *script) {
		s.postRecv(100, 100)
		s.qp.recvs[0].SGE[0].LKey ^= 0x100
		s.deliver(s.short(500))
		s.completes("recv 1001 LOC_PROT_ERR 0", "recv 1002 WR_FLUSH_ERR 0")
		s.inState(ib.StateErr)
	})
	both(t, func(s *script) {
		s.qp.badRecv = true
		s.postRecv(100)
		s.deliver(s.short(500))
		s.completes("recv 1001 LOC_QP_OP_ERR 0")
		s.inState(ib.StateErr)
	})
	both(t, func(s *script) {
		s.qp.broken = true
		s.deliver(s.short(500))
		s.inState(ib.StateErr)
		if !slices.Equal(s.qp.events, []ib.EventType{ib.EventQPFatal}) {
			s.t.Errorf("events %v", s.qp.events)
		}
	})
}

// short is a message of one packet of the script's service.
func (s *script) short(psn ib.PSN) packet {
	if s.service() == wire.ServiceUD {
		return packet{op: wire.UDSendOnly, psn: psn, n: 10}
	}
	return packet{op: wire.UCSendOnly, psn: psn, n: 10}
}

// COMM_EST tells, once, that the peer speaks while we are in RTR. SQE is about sends alone.
func TestStatesThatHear(t *testing.T) {
	both(t, func(s *script) {
		s.postRecv(100, 100, 100, 100)
		bad := send(10)
		bad.Opcode = ib.WRRDMARead
		s.post(bad)
		s.completes("send 1 LOC_QP_OP_ERR")
		s.deliver(s.short(500))
		s.completes("recv 1001 SUCCESS " + s.received(10))
		s.modify(ib.StateErr)
		s.deliver(s.short(501))
		s.completes("recv 1002 WR_FLUSH_ERR 0", "recv 1003 WR_FLUSH_ERR 0", "recv 1004 WR_FLUSH_ERR 0")
		s.modify(ib.StateReset)
		s.deliver(s.short(502))
		s.modify(ib.StateInit)
		s.deliver(s.short(503))
		s.e.Modify(s.now, s.as(ib.StateRTR), ib.QPAttrState|ib.QPAttrRQPSN, path)
		s.deliver(s.short(500), s.short(501))
		if want := s.service() == wire.ServiceUC; slices.Equal(s.qp.events, []ib.EventType{ib.EventCommEst}) != want {
			s.t.Errorf("events %v", s.qp.events)
		}
	})
}

// received is byte_len of a message of n bytes.
func (s *script) received(n int) string {
	if s.service() == wire.ServiceUD {
		n += ib.GRHSize
	}
	return fmt.Sprint(n)
}
