package nic

import (
	"bytes"
	"errors"
	"maps"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// fakeGroups is a network's groups.
type fakeGroups struct {
	joined map[ib.GID]int
	err    error
}

func (f *fakeGroups) Join(g ib.GID) error {
	if f.err == nil {
		f.joined[g]++
	}
	return f.err
}

func (f *fakeGroups) Leave(g ib.GID) {
	if f.joined[g]--; f.joined[g] == 0 {
		delete(f.joined, g)
	}
}

func withGroups(f *fakeGroups) func(*Config) {
	f.joined = map[ib.GID]int{}
	return func(c *Config) { c.Groups = f }
}

func groupGID(s string) ib.GID { return ib.GIDFromAddr(netip.MustParseAddr(s)) }

const testGroup = "239.1.2.3"

func (e *endpoint) attach(t testing.TB, own bool) {
	t.Helper()
	if err := e.ctx.AttachMcast(e.qp, groupGID(testGroup), own); err != nil {
		t.Fatal(err)
	}
}

func (e *endpoint) wantDatagrams(t testing.TB, n int) {
	t.Helper()
	if got := int(e.block.RecvTaken()); got != n {
		t.Errorf("queue pair %#x took %d receives, want %d", uint32(e.qp.QPN()), got, n)
	}
}

// A datagram to a group reaches all who are attached, here and there, and its sender only if he wants it.
func TestMcastDelivers(t *testing.T) {
	f := &fakeGroups{}
	w, a, b := newPair(t, withGroups(f))
	x, own, y, z, other := a.newDatagrams(t), a.newDatagrams(t), b.newDatagrams(t), b.newDatagrams(t), b.newDatagrams(t)
	for _, e := range []*endpoint{x, y, z, own} {
		e.attach(t, e == own)
	}
	all := []*endpoint{x, own, y, z, other}
	for _, e := range all {
		for i := range 4 {
			e.postRecv(uint64(i), e.sge(1<<16+i*4200, 4200))
		}
	}
	ah := a.newAH(t, testGroup)
	for i := range a.mem[:3000] {
		a.mem[i] = byte(i * 5)
	}
	x.postSend(datagramWQE(20, ah, ib.MulticastQPN), x.sge(0, 3000))
	w.run(10 * time.Millisecond)
	x.wantDatagrams(t, 0) // the sender
	own.wantDatagrams(t, 1)
	y.wantDatagrams(t, 1)
	z.wantDatagrams(t, 1)
	other.wantDatagrams(t, 0) // not attached
	for _, h := range []*host{a, b} {
		for _, c := range h.poll(t) {
			if c.Status != 0 || c.WRID != 20 && (c.ByteLen != 3040 || c.SrcQP != uint32(x.qp.QPN())) {
				t.Errorf("completion %+v", c)
			}
		}
		if !bytes.Equal(h.mem[1<<16+40:1<<16+3040], a.mem[:3000]) {
			t.Error("wrong bytes")
		}
	}
	// Who asked hears himself.
	own.postSend(datagramWQE(20, ah, ib.MulticastQPN), own.sge(0, 10))
	w.run(10 * time.Millisecond)
	own.wantDatagrams(t, 2)
	x.wantDatagrams(t, 1)
	y.wantDatagrams(t, 2)
	// Another Q_Key, RESET, another group: not heard.
	w2 := datagramWQE(21, ah, ib.MulticastQPN)
	w2.Compare = 77
	x.postSend(w2, x.sge(0, 10))
	x.postSend(datagramWQE(22, a.newAH(t, "239.1.2.4"), ib.MulticastQPN), x.sge(0, 10))
	z.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	x.postSend(datagramWQE(23, ah, ib.MulticastQPN), x.sge(0, 10))
	w.run(10 * time.Millisecond)
	y.wantDatagrams(t, 3)
	own.wantDatagrams(t, 3)
	z.wantDatagrams(t, 0) // its ring is empty since RESET
	if b.counter("rx_multicast_unattached") != 1 {
		t.Errorf("unattached: %d", b.counter("rx_multicast_unattached"))
	}
	// Detached, it hears no more.
	if err := b.ctx.DetachMcast(y.qp, groupGID(testGroup)); err != nil {
		t.Fatal(err)
	}
	x.postSend(datagramWQE(24, ah, ib.MulticastQPN), x.sge(0, 10))
	w.run(10 * time.Millisecond)
	y.wantDatagrams(t, 3)
	for _, h := range []*host{a, b} {
		if err := h.ctx.Close(); err != nil {
			t.Error(err)
		}
		h.checkEmpty(t)
		if len(h.dev.groups.m) != 0 {
			t.Errorf("groups left: %v", h.dev.groups.m)
		}
	}
	if len(f.joined) != 0 {
		t.Errorf("still joined: %v", f.joined)
	}
}

// A queue pair that was made so never hears itself, whatever its attachment says (ibv_create_qp_ex); the others do hear it.
func TestMcastBlocksItsOwn(t *testing.T) {
	f := &fakeGroups{}
	w, a, _ := newPair(t, withGroups(f))
	block := func(c *QPConfig) { c.Type, c.Flags = ib.QPTypeUD, ib.QPCreateBlockSelfMcastLB }
	x, y := a.newQP(t, block), a.newDatagrams(t)
	x.modify(t, ib.QPAttr{State: ib.StateInit, PortNum: 1, QKey: testQKey}, ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrQKey)
	x.modify(t, ib.QPAttr{State: ib.StateRTR}, ib.QPAttrState)
	x.modify(t, ib.QPAttr{State: ib.StateRTS}, ib.QPAttrState|ib.QPAttrSQPSN)
	ah := a.newAH(t, testGroup)
	for _, e := range []*endpoint{x, y} {
		e.attach(t, true)
		e.attach(t, true) // the second time it changes own, or not
		for range 2 {
			e.postRecv(1, e.sge(1<<16, 4200))
		}
	}
	x.postSend(datagramWQE(20, ah, ib.MulticastQPN), x.sge(0, 100))
	w.run(time.Millisecond)
	x.wantDatagrams(t, 0)
	y.wantDatagrams(t, 1)
	y.postSend(datagramWQE(20, ah, ib.MulticastQPN), y.sge(0, 100))
	w.run(time.Millisecond)
	x.wantDatagrams(t, 1)
	y.wantDatagrams(t, 2)
}

func TestMcastAttachRules(t *testing.T) {
	f := &fakeGroups{}
	_, a, b := newPair(t, withGroups(f))
	x, y, rc := a.newDatagrams(t), a.newDatagrams(t), a.newQP(t, nil)
	want := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, errno) {
			t.Errorf("%s: %v, want %v", what, err, errno)
		}
	}
	plain, old := groupGID(testGroup), groupGID(testGroup)
	old[0], old[1] = 0xff, 0x0e // ff0e::ffff:239.1.2.3
	v6 := groupGID("ff02::1:3")
	want("unicast", a.ctx.AttachMcast(x.qp, groupGID("10.0.0.2"), false), syscall.EINVAL)
	want("nothing", a.ctx.AttachMcast(x.qp, ib.GID{}, false), syscall.EINVAL)
	want("RC", a.ctx.AttachMcast(rc.qp, plain, false), syscall.EINVAL)
	want("another's queue pair", b.ctx.AttachMcast(x.qp, plain, false), syscall.EINVAL)
	want("detached unattached", a.ctx.DetachMcast(x.qp, plain), syscall.EINVAL)
	// Both spellings are one group, and twice is once.
	for _, g := range []ib.GID{plain, old, plain} {
		if err := a.ctx.AttachMcast(x.qp, g, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.ctx.AttachMcast(y.qp, old, false), a.ctx.AttachMcast(y.qp, v6, false)); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(f.joined, map[ib.GID]int{plain: 1, v6: 1}) {
		t.Errorf("joined %v", f.joined)
	}
	want("destroyed while attached", a.ctx.DestroyQP(x.qp), syscall.EBUSY)
	if err := a.ctx.DetachMcast(x.qp, old); err != nil {
		t.Fatal(err)
	}
	want("detached twice", a.ctx.DetachMcast(x.qp, plain), syscall.EINVAL)
	if err := a.ctx.DestroyQP(x.qp); err != nil {
		t.Fatal(err)
	}
	f.err = syscall.ENOBUFS
	want("the network refuses", a.ctx.AttachMcast(y.qp, groupGID("239.9.9.9"), false), syscall.ENOBUFS)
	f.err = nil
	if d := a.dev.Attr(); d.MaxMcastGrp == 0 || d.MaxMcastQPAttach == 0 || d.MaxTotalMcastQPAttach == 0 {
		t.Errorf("attributes %+v", d)
	}
	a.ctx.Close()
	a.checkEmpty(t)
	if len(f.joined) != 0 {
		t.Errorf("still joined: %v", f.joined)
	}
	for g, ok := range map[ib.GID]bool{plain: true, old: true, v6: true, groupGID("ff0e::ffff:a00:1"): true, groupGID("fe80::1"): false} {
		if n, is := NormalGroup(g); is != ok || n == old {
			t.Errorf("%s: %s, %v", g, n, is)
		}
	}
}

// A device whose network has no groups says so, for handles and attachments alike.
func TestMcastWithoutGroups(t *testing.T) {
	_, a, _ := newPair(t, nil)
	x := a.newDatagrams(t)
	if err := a.ctx.AttachMcast(x.qp, groupGID(testGroup), false); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("attach: %v", err)
	}
	attr := av(testGroup, 0)
	if _, err := a.ctx.CreateAH(a.pd, &attr); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("address handle: %v", err)
	}
	if d := a.dev.Attr(); d.MaxMcastGrp != 0 {
		t.Errorf("attributes %+v", d)
	}
}

func TestMcastLimits(t *testing.T) {
	f := &fakeGroups{}
	_, a, _ := newPair(t, withGroups(f))
	x := a.newDatagrams(t)
	for i := range maxGroups {
		if err := a.ctx.AttachMcast(x.qp, ib.GID{0xff, 2, 14: byte(i >> 8), 15: byte(i)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.ctx.AttachMcast(x.qp, groupGID(testGroup), false); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one group more: %v", err)
	}
	for range maxGroupQPs - 1 {
		e := a.newQP(t, func(c *QPConfig) { c.Type = ib.QPTypeUD })
		if err := a.ctx.AttachMcast(e.qp, ib.GID{0xff, 2}, false); err != nil {
			t.Fatal(err)
		}
	}
	e := a.newQP(t, func(c *QPConfig) { c.Type = ib.QPTypeUD })
	if err := a.ctx.AttachMcast(e.qp, ib.GID{0xff, 2}, false); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one queue pair more: %v", err)
	}
	a.ctx.Close()
	a.checkEmpty(t)
}

// What comes to a group from our own address, or for another service, is dropped. Only the latter is counted: the former is
// what we sent ourselves.
func TestMcastRefused(t *testing.T) {
	f := &fakeGroups{}
	_, a, _ := newPair(t, withGroups(f))
	x := a.newDatagrams(t)
	x.attach(t, true)
	x.postRecv(1, x.sge(0, 4200))
	var frame wire.Frame
	deliver := func(op wire.Opcode, source string) {
		frame = wire.Frame{}
		h := frame.SetHeader(op)
		frame.BTH().SetPKey(ib.DefaultPKey)
		frame.BTH().SetDestQP(ib.MulticastQPN)
		if d := wire.FindDETH(h); d != nil {
			d.SetQKey(testQKey)
		}
		frame.Path = &wire.Path{Source: groupGID(source), Dest: groupGID(testGroup)}
		var p wire.Packet
		p.FromFrame(&frame)
		p.Local = false
		a.dev.shards[0].arrived(0, &p)
	}
	deliver(wire.UDSendOnly, "10.0.0.1")
	deliver(wire.RCSendOnly, "10.0.0.2")
	x.wantDatagrams(t, 0)
	if own, other := a.counter("rx_own_source"), a.counter("rx_service_mismatch"); own != 0 || other != 1 {
		t.Errorf("%d of our own are counted, and %d of another service", own, other)
	}
	deliver(wire.UDSendOnly, "10.0.0.2")
	x.wantDatagrams(t, 1)
}

func TestMcastDoesNotAllocate(t *testing.T) {
	f := &fakeGroups{}
	_, a, _ := newPair(t, withGroups(f))
	x, y := a.newDatagrams(t), a.newDatagrams(t)
	y.attach(t, false)
	ah := a.newAH(t, testGroup)
	cqe := make([]abi.CQE, 16)
	now := a.dev.shards[0].now
	turn := func() {
		y.postRecv(1, y.sge(1000, 140))
		x.postSend(datagramWQE(1, ah, ib.MulticastQPN), x.sge(0, 100))
		for range 4 {
			now++
			a.dev.Step(now)
		}
		_, _ = a.cqr.Poll(cqe)
	}
	turn()
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
	y.wantDatagrams(t, 52)
}
