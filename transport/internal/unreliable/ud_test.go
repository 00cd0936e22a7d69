package unreliable_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

func TestUDSends(t *testing.T) {
	s := newUD(t)
	s.stuck = true
	imm, controlled := send(activeMTU), send(3)
	imm.Opcode, imm.Imm, imm.Flags = ib.WRSendWithImm, 5, imm.Flags|ib.SendSolicited
	controlled.Datagram.QKey = 1 << 31
	s.post(imm, controlled, send(0))
	s.run()
	f := s.burst.Frames()
	if d := wire.FindDETH(f[0].Header()); d.QKey() != qkey || d.SourceQP() != localQPN || !f[0].BTH().Solicited() ||
		wire.FindImmDt(f[0].Header()).Data() != 5 {
		t.Errorf("header % x", f[0].Header())
	}
	// A Q_Key with the top bit is the queue pair's own instead (IBA 10.2.5).
	if d := wire.FindDETH(f[1].Header()); d.QKey() != qkey {
		t.Errorf("Q_Key %#x was sent", d.QKey())
	}
	s.stuck = false
	s.now = s.e.Deadline()
	s.sends(line(wire.UDSendOnlyImm, 100, activeMTU), line(wire.UDSendOnly, 101, 3), line(wire.UDSendOnly, 102, 0))
	s.completes("send 1 SUCCESS", "send 2 SUCCESS", "send 3 SUCCESS")
}

// What only datagrams refuse: more than the port's MTU, no address, operations of connections (reference 5.2, 7.2).
func TestUDRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(r *transport.Request)
		status string
	}{
		"beyond the MTU": {func(r *transport.Request) { *r = send(activeMTU + 1) }, "LOC_LEN_ERR"},
		"no address":     {func(r *transport.Request) { r.Datagram.Path = nil }, "LOC_QP_OP_ERR"},
		"WRITE":          {func(r *transport.Request) { r.Opcode = ib.WRRDMAWrite }, "LOC_QP_OP_ERR"},
	} {
		s := newUD(t)
		r := send(10)
		c.spoil(&r)
		s.post(r)
		s.completes("send 1 " + c.status)
		if s.inState(ib.StateSQE); t.Failed() {
			t.Log(name)
		}
	}
}

// B19: a datagram that does not fit the receive must not take the queue pair down; it is dropped, and the receive stays.
func TestUDDrops(t *testing.T) {
	s := newUD(t)
	s.postRecv(40 + 9)
	s.deliver(
		packet{op: wire.UDSendOnly, n: 10},              // a byte too long
		packet{op: wire.UDSendOnly, n: 4, qkey: 1},      // another Q_Key
		packet{op: wire.UDSendOnly, n: 5, badPad: true}, // a pad that is none
		packet{op: wire.UDSendOnly, n: 4097},            // more than any port's MTU
		packet{op: wire.UCSendOnly, n: 4},               // another service
	)
	s.completes()
	s.inState(ib.StateRTS)
	if s.counters.MessagesDropped != 4 || s.counters.RespLocalLengthError != 1 {
		t.Errorf("dropped %d, too long %d", s.counters.MessagesDropped, s.counters.RespLocalLengthError)
	}
	s.deliver(packet{op: wire.UDSendOnly, psn: 77, n: 9, fill: 3}, packet{op: wire.UDSendOnly, n: 1})
	s.completes("recv 1001 SUCCESS 49")
	s.holds(buffers+40, 9, 3)
	if s.counters.OutOfBuffer != 1 {
		t.Errorf("%d receives were missing", s.counters.OutOfBuffer)
	}
}

// The 40 bytes in front of a datagram (reference 5.2). Total length counts UDP, BTH, DETH, immediate, payload, pad and ICRC.
func TestGRH(t *testing.T) {
	for _, c := range []struct {
		v6   bool
		want string
	}{
		{false, "0000000000000000000000000000000000000000" + "45280040" + "00000000" + "3d11" + "0000" + "0a000002" + "0a000001"},
		{true, "62800000" + "002c" + "11" + "3d" + "20010000000000000000000000000002" + "20010000000000000000000000000001"},
	} {
		s := newUD(t)
		s.postRecv(100)
		s.deliver(packet{op: wire.UDSendOnlyImm, n: 5, fill: 9, v6: c.v6, service: true})
		s.completes("recv 1001 SUCCESS 45")
		got := bytes.Clone(s.memory[buffers-base:][:40])
		if !c.v6 {
			if ud.Checksum(got[20:]) != 0 {
				t.Errorf("the header's checksum is wrong: % x", got[20:])
			}
			got[30], got[31] = 0, 0
		}
		if hex.EncodeToString(got) != c.want {
			t.Errorf("header\n%x, want\n%s", got, c.want)
		}
		s.holds(buffers+40, 5, 9)
		if w := s.qp.last; w.SrcQP != peerQPN || w.Flags != ib.WCGRH|ib.WCWithImm || w.Imm != 77 || !w.Solicited {
			t.Errorf("completion %+v", w)
		}
	}
}

// A receive may be cut anywhere, in the header too.
func TestUDScatters(t *testing.T) {
	s := newUD(t)
	s.postRecv(60)
	s.qp.recvs[0].SGE = []ib.SGE{
		{Addr: buffers, Length: 33, LKey: s.mr.LKey}, {}, {Addr: buffers + 100, Length: 17, LKey: s.mr.LKey},
		{Addr: buffers + 200, Length: 10, LKey: s.mr.LKey},
	}
	s.deliver(packet{op: wire.UDSendOnly, n: 20, fill: 4})
	s.completes("recv 1001 SUCCESS 60")
	s.holds(buffers+107, 10, 4)
	s.holds(buffers+200, 10, 4)
}
