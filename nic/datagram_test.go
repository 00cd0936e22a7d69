package nic

import (
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

const testQKey = 0x1234567

// newDatagrams makes a UD queue pair in RTS.
func (a *app) newDatagrams(t testing.TB) *endpoint {
	t.Helper()
	e := a.newQP(t, func(c *QPConfig) { c.Type = ib.QPTypeUD })
	e.modify(t, ib.QPAttr{State: ib.StateInit, PortNum: 1, QKey: testQKey}, ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrQKey)
	e.modify(t, ib.QPAttr{State: ib.StateRTR}, ib.QPAttrState)
	e.modify(t, ib.QPAttr{State: ib.StateRTS, SQPSN: 5}, ib.QPAttrState|ib.QPAttrSQPSN)
	return e
}

func (a *app) newAH(t testing.TB, to string) *AH {
	t.Helper()
	attr := av(to, 0)
	h, err := a.ctx.CreateAH(a.pd, &attr)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func datagramWQE(id uint64, to *AH, qpn ib.QPN) abi.SendWQE {
	w := sendWQE(id)
	w.Operand, w.Compare = uint64(qpn)<<32|uint64(to.Handle()), testQKey
	return w
}

// Datagrams cross a cable, to several queue pairs by one handle, and find the handle's way when it is gone.
func TestDatagramsCross(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y, z := a.newDatagrams(t), b.newDatagrams(t), b.newDatagrams(t)
	ah := a.newAH(t, b.addr)
	y.postRecv(11, y.sge(1000, 140))
	z.postRecv(12, z.sge(2000, 140))
	x.postSend(datagramWQE(1, ah, y.qp.QPN()), x.sge(0, 100))
	x.postSend(datagramWQE(2, ah, z.qp.QPN()), x.sge(100, 50))
	w.run(10 * time.Millisecond)
	if got := a.poll(t); len(got) != 2 || got[0].Status != 0 || got[1].Status != 0 {
		t.Fatalf("sends: %+v", got)
	}
	got := b.poll(t)
	if len(got) != 2 || got[0].WRID != 11 || got[0].ByteLen != 140 || got[1].WRID != 12 || got[1].ByteLen != 90 ||
		got[0].SrcQP != uint32(x.qp.QPN()) || ib.WCFlags(got[0].Flags) != ib.WCGRH {
		t.Fatalf("receives: %+v", got)
	}
	if err := a.ctx.DestroyAH(ah); err != nil {
		t.Fatal(err)
	}
	x.postSend(datagramWQE(3, ah, y.qp.QPN()), x.sge(0, 10))
	w.run(10 * time.Millisecond)
	if got := a.poll(t); len(got) != 1 || got[0].Status != uint8(ib.WCLocQPOpErr) || x.block.State() != ib.StateSQE {
		t.Fatalf("a handle that is gone: %+v in %v", got, x.block.State())
	}
}

// Who may speak to a queue pair for datagrams: whoever knows the Q_Key, to one of our addresses.
func TestJudgeDatagrams(t *testing.T) {
	_, a, b := newPair(t, nil)
	x := a.newDatagrams(t)
	for name, c := range map[string]struct {
		op          wire.Opcode
		key         ib.QKey
		source, dst string
		state       ib.QPState
		want        refusal
	}{
		"right":                 {wire.UDSendOnly, testQKey, b.addr, a.addr, ib.StateRTS, accepted},
		"from anybody":          {wire.UDSendOnlyImm, testQKey, "10.9.9.9", a.addr, ib.StateRTR, accepted},
		"in SQE":                {wire.UDSendOnly, testQKey, b.addr, a.addr, ib.StateSQE, accepted},
		"another Q_Key":         {wire.UDSendOnly, testQKey + 1, b.addr, a.addr, ib.StateRTS, refusedQKey},
		"to an address of none": {wire.UDSendOnly, testQKey, b.addr, "10.9.9.9", ib.StateRTS, refusedForeign},
		"RC":                    {wire.RCSendOnly, testQKey, b.addr, a.addr, ib.StateRTS, refusedService},
		"in INIT":               {wire.UDSendOnly, testQKey, b.addr, a.addr, ib.StateInit, refusedState},
		"CNP":                   {wire.CNP, testQKey, b.addr, a.addr, ib.StateRTS, accepted},
		"CNP in INIT":           {wire.CNP, testQKey, b.addr, a.addr, ib.StateInit, refusedState},
	} {
		var p wire.Packet
		f := wire.NewBurst(1).Next()
		f.SetHeader(c.op)
		f.Path = &wire.Path{Source: gid(c.source), Dest: gid(c.dst)}
		f.BTH().SetDestQP(x.qp.QPN())
		f.BTH().SetPKey(ib.DefaultPKey)
		if d := wire.FindDETH(f.Header()); d != nil {
			d.SetQKey(c.key)
		}
		p.FromFrame(f)
		p.Local = false
		x.qp.state = c.state
		if _, got := a.dev.shards[0].judge(&p); got != c.want {
			t.Errorf("%s: refusal %q, want %q", name, refusalNames[got], refusalNames[c.want])
		}
	}
	x.qp.state = ib.StateRTS
}

// A controlled Q_Key, with the top bit set, is for the daemon's own user and root (IBA 10.2.5).
func TestControlledQKeys(t *testing.T) {
	_, a, _ := newPair(t, nil)
	for _, c := range []struct {
		cfg  ContextConfig
		key  ib.QKey
		want syscall.Errno
	}{
		{ContextConfig{Tenant: 1001}, 1 << 31, syscall.EPERM},
		{ContextConfig{Tenant: 1001}, 1<<31 - 1, 0},
		{ContextConfig{Tenant: 0, Privileged: true}, 1 << 31, 0},
		{ContextConfig{Tenant: 1001, Owner: true}, 1 << 31, 0},
	} {
		var other app
		other.open(t, a.dev, c.cfg, a.addr)
		e := other.newQP(t, func(q *QPConfig) { q.Type = ib.QPTypeUD })
		err := other.ctx.ModifyQP(e.qp, &ib.QPAttr{State: ib.StateInit, PortNum: 1, QKey: c.key},
			ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrQKey)
		if errno(err) != c.want {
			t.Errorf("%+v, Q_Key %#x: %v", c.cfg, c.key, err)
		}
		if err := other.ctx.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Handles are counted, given out again, and gone with their context.
func TestAddressHandles(t *testing.T) {
	_, a, b := newPair(t, func(c *Config) { c.Limits.MaxAH = 3 })
	if n := a.dev.Attr().MaxAH; n != 3 {
		t.Errorf("max_ah is %d", n)
	}
	h := []*AH{a.newAH(t, b.addr), a.newAH(t, b.addr), a.newAH(t, b.addr)}
	attr := av(b.addr, 0)
	if _, err := a.ctx.CreateAH(a.pd, &attr); errno(err) != syscall.ENOMEM {
		t.Errorf("a fourth: %v", err)
	}
	if h[0].path.SourcePort == h[1].path.SourcePort {
		t.Error("two handles without a flow label have the same source port")
	}
	if err := a.ctx.DestroyAH(h[1]); err != nil {
		t.Fatal(err)
	}
	if err := a.ctx.DestroyAH(h[1]); errno(err) != syscall.EINVAL {
		t.Errorf("destroyed twice: %v", err)
	}
	if again := a.newAH(t, b.addr); again.Handle() != h[1].Handle() {
		t.Errorf("handle %d was given out, %d was free", again.Handle(), h[1].Handle())
	}
	other, err := a.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	for handle, want := range map[uint32]*AH{0: nil, 1: h[0], 4: nil, 1<<32 - 1: nil} {
		if got := a.ctx.routes.find(handle, a.pd); got != want {
			t.Errorf("handle %#x leads to %v", handle, got)
		}
	}
	if a.ctx.routes.find(1, other) != nil {
		t.Error("a handle of another protection domain was found")
	}
	if err := a.ctx.DeallocPD(a.pd); errno(err) != syscall.EBUSY {
		t.Errorf("dealloc pd: %v", err)
	}
	if n := testing.AllocsPerRun(100, func() { a.ctx.routes.find(1, a.pd) }); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
	if err := a.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	a.checkEmpty(t)
}

// UC over a cable: one message of many packets each way, and a state that survives a lost packet.
func TestUnreliableConnection(t *testing.T) {
	w, a, b := newPair(t, nil)
	uc := func(c *QPConfig) { c.Type = ib.QPTypeUC }
	x, y := a.newQP(t, uc), b.newQP(t, uc)
	for _, e := range [][2]*endpoint{{x, y}, {y, x}} {
		e[0].modify(t, initAttr(), initMask)
		e[0].modify(t, rtrAttr(e[1].addr, e[1].qp.QPN()), ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN)
		e[0].modify(t, rtsAttr(), ib.QPAttrState|ib.QPAttrSQPSN)
	}
	for i := range 100 {
		a.mem[i] = byte(i)
	}
	y.postRecv(11, y.sge(1000, 50000))
	x.postSend(sendWQE(1), x.sge(0, 50000))
	w.run(10 * time.Millisecond)
	if got := b.poll(t); len(got) != 1 || got[0].Status != 0 || got[0].ByteLen != 50000 || b.mem[1099] != 99 {
		t.Fatalf("receives: %+v", got)
	}
	if got := a.poll(t); len(got) != 1 || got[0].Status != 0 {
		t.Fatalf("sends: %+v", got)
	}
	// Nobody waits for an answer: without the peer it is the same.
	if err := b.ctx.DestroyQP(y.qp); err != nil {
		t.Fatal(err)
	}
	x.postSend(sendWQE(2), x.sge(0, 10))
	w.run(10 * time.Millisecond)
	if got := a.poll(t); len(got) != 1 || got[0].Status != 0 || x.block.State() != ib.StateRTS {
		t.Fatalf("sends: %+v", got)
	}
}
