package nic

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// What applications and strangers get wrong about addresses, keys, services and operations: each is the error that the
// reference names, or a silent drop, and in either case it is counted.

// Address vectors that lead nowhere, in handles and in connections (reference 5.2, 6.3). Nothing is made, and no state changes.
func TestBadAddressVectors(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(a *ib.AHAttr)
		handle syscall.Errno // 0: a handle may be so
	}{
		"SGID index beyond the table": {func(a *ib.AHAttr) { a.GRH.SGIDIndex = 255 }, syscall.EINVAL},
		"empty SGID":                  {func(a *ib.AHAttr) { a.GRH.SGIDIndex = 3 }, syscall.EINVAL},
		"no GRH":                      {func(a *ib.AHAttr) { a.IsGlobal = false }, syscall.EINVAL},
		"port 2":                      {func(a *ib.AHAttr) { a.PortNum = 2 }, syscall.EINVAL},
		"the other family":            {func(a *ib.AHAttr) { a.GRH.DGID = gid("2001:db8::7") }, syscall.EINVAL},
		"multicast GID":               {func(a *ib.AHAttr) { a.GRH.DGID = gid("239.1.2.3") }, 0},
	} {
		f := &fakeGroups{}
		_, a, b := newPair(t, withGroups(f))
		attr := av(b.addr, 0)
		c.edit(&attr)
		refused := uint64(0)
		if _, err := a.ctx.CreateAH(a.pd, &attr); errno(err) != c.handle {
			t.Errorf("%s: handle: %v", name, err)
		} else if err != nil {
			refused++
		}
		for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC} {
			x := a.newQP(t, func(q *QPConfig) { q.Type = typ })
			x.modify(t, initAttr(), initMask)
			rtr, mask := rtrAttr(b.addr, 5), rtrMask
			rtr.AH = attr
			if typ == ib.QPTypeUC {
				mask = ib.QPAttrState | ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN
			}
			if err := a.ctx.ModifyQP(x.qp, &rtr, mask); errno(err) != syscall.EINVAL {
				t.Errorf("%s: %v: %v", name, typ, err)
			}
			refused++
			if x.block.State() != ib.StateInit {
				t.Errorf("%s: %v in %v", name, typ, x.block.State())
			}
		}
		if n := a.counter("refused_address_vectors"); n != refused {
			t.Errorf("%s: %d counted, %d were refused", name, n, refused)
		}
	}
}

// Datagrams that are for nobody: dropped without a word, the sender is content, and the receiver's receive stays.
func TestStrayDatagrams(t *testing.T) {
	for name, c := range map[string]struct {
		to      string // unless b
		group   bool   // the other end is queue pair 0xffffff
		qkey    uint64
		counter string
	}{
		"Q_Key mismatch":                       {qkey: 1, counter: "qkey_viol_cntr"},
		"a group's handle and one queue pair":  {to: testGroup, counter: "rx_foreign_gid"},
		"a host's handle and the group number": {group: true, counter: "rx_multicast_unattached"},
		"a group that nobody has here":         {to: "239.1.2.9", group: true, counter: "rx_multicast_unattached"},
	} {
		f := &fakeGroups{}
		w, a, b := newPair(t, withGroups(f))
		x, y := a.newDatagrams(t), b.newDatagrams(t)
		y.attach(t, false)
		y.postRecv(1, y.sge(0, 4200))
		to, qpn := b.addr, y.qp.QPN()
		if c.to != "" {
			to = c.to
		}
		if c.group {
			qpn = ib.MulticastQPN
		}
		wqe := datagramWQE(2, a.newAH(t, to), qpn)
		wqe.Compare += c.qkey
		x.postSend(wqe, x.sge(0, 100))
		w.run(time.Millisecond)
		if got := a.poll(t); len(got) != 1 || got[0].Status != 0 {
			t.Errorf("%s: the sender sees %+v", name, got)
		}
		y.wantDatagrams(t, 0)
		if n := b.counter(c.counter); n != 1 || y.block.State() != ib.StateRTS {
			t.Errorf("%s: %s is %d, the queue pair in %v", name, c.counter, n, y.block.State())
		}
		if c.qkey != 0 && b.dev.PortAttr().QKeyViolCntr != 1 {
			t.Errorf("%s: the port says %d violations", name, b.dev.PortAttr().QKeyViolCntr)
		}
	}
}

// A packet of one service for a queue pair of another is dropped, whichever they are (IBA 9.6).
func TestServiceMismatch(t *testing.T) {
	types := []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeXRCSend}
	for _, from := range types {
		for _, to := range types {
			if from == to {
				continue
			}
			name := fmt.Sprintf("%v to %v", from, to)
			w, a, b := newPair(t, nil)
			x := a.newQP(t, func(c *QPConfig) { c.Type = from })
			y := b.newQP(t, func(c *QPConfig) { c.Type = to })
			wqe := sendWQE(2)
			for i, e := range [][2]*endpoint{{x, y}, {y, x}} {
				switch e[0].qp.typ {
				case ib.QPTypeXRCSend:
					e[0].modify(t, initAttr(), initMask)
					e[0].modify(t, rtrAttr(e[1].addr, e[1].qp.QPN()), iniRTR)
					e[0].modify(t, rtsAttr(), rtsMask)
				default:
					e[0].bringUp(t, e[1])
				}
				if i == 0 && from == ib.QPTypeUD {
					wqe.Operand, wqe.Compare = uint64(y.qp.QPN())<<32|1, testQKey
				}
			}
			if to != ib.QPTypeXRCSend {
				y.postRecv(1, y.sge(0, 4200))
			}
			x.postSend(wqe, x.sge(0, 10))
			a.dev.Step(w.now)
			b.dev.Step(w.now)
			if n := b.counter("rx_service_mismatch"); n != 1 || y.block.State() != ib.StateRTS || len(b.poll(t)) != 0 {
				t.Errorf("%s: rx_service_mismatch is %d, the queue pair in %v", name, n, y.block.State())
			}
			if sent := b.counter("port_xmit_packets"); sent != 0 {
				t.Errorf("%s: answered by %d packets", name, sent)
			}
		}
	}
}

// Operations that a service does not have (reference 7.2): LOC_QP_OP_ERR, counted, and the state for local errors of the
// service. Those that it has are not among them.
func TestOperationsOfOtherServices(t *testing.T) {
	all := []ib.WROpcode{ib.WRRDMARead, ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAdd, ib.WRSendWithInv, ib.WRFlush, ib.WRAtomicWrite, 10, 12, 31, 77}
	refused := map[ib.QPType][]ib.WROpcode{
		ib.QPTypeRC: {10, 12, 31, 77},
		ib.QPTypeUC: all,
		ib.QPTypeUD: append([]ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRLocalInv, ib.WRBindMW}, all...),
	}
	for typ, ops := range refused {
		for _, op := range ops {
			w, a, b := newPair(t, nil)
			of := func(c *QPConfig) { c.Type = typ }
			x, y := a.newQP(t, of), b.newQP(t, of)
			x.bringUp(t, y)
			wqe := abi.SendWQE{WRID: 3, Opcode: uint8(op)} // unsignaled: errors complete all the same
			if typ == ib.QPTypeUD {
				wqe.Operand, wqe.Compare = uint64(y.qp.QPN())<<32|1, testQKey
			}
			x.postSend(wqe, x.sge(0, 8))
			w.run(time.Millisecond)
			want := ib.StateSQE
			if typ == ib.QPTypeRC {
				want = ib.StateErr
			}
			if c := a.poll(t); len(c) != 1 || c[0].Status != uint8(ib.WCLocQPOpErr) || x.block.State() != want {
				t.Errorf("%v, opcode %d: %+v in %v", typ, op, c, x.block.State())
			}
			if n := a.counter("req_cqe_error"); n != 1 || b.counter("port_rcv_packets") != 0 {
				t.Errorf("%v, opcode %d: req_cqe_error is %d, %d packets arrived", typ, op, n, b.counter("port_rcv_packets"))
			}
		}
	}
}

// A shared receive queue of another XRC domain is none: NAK remote access error (A14), counted at both ends.
func TestXRCQueueOfAnotherDomain(t *testing.T) {
	g := newCrew(t)
	x, err := g.b.ctx.OpenXRCD(XRCDConfig{Flags: ib.XRCDCreate})
	if err != nil {
		t.Fatal(err)
	}
	p := g.b.newXSRQ(t, x)
	p.post(1, p.sge(0, 100))
	if c := g.send(t, p.srq.Number(), 100); c.Status != uint8(ib.WCRemAccessErr) {
		t.Errorf("send: %+v", c)
	}
	if n, m := g.b.counter("resp_remote_access_errors"), g.a.counter("req_remote_access_errors"); n != 1 || m != 1 {
		t.Errorf("resp_remote_access_errors is %d, req_remote_access_errors %d", n, m)
	}
	// Nor can a plain queue pair have it, nor an initiator any.
	for _, c := range []QPConfig{{Type: ib.QPTypeRC, SRQ: p.srq}, {Type: ib.QPTypeUD, SRQ: p.srq}, {Type: ib.QPTypeXRCSend, SRQ: p.srq}} {
		c.PD, c.SendCQ, c.RecvCQ, c.Cap = g.b.pd, g.b.cq, g.b.cq, testCap
		c.Block = func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil }
		if _, err := g.b.ctx.CreateQP(c); errno(err) != syscall.EINVAL {
			t.Errorf("%v: %v", c.Type, err)
		}
	}
}
