package nic

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

var team = XRCDName{Tenant: 1000, Name: "team"}

func (a *app) openXRCD(t testing.TB, name XRCDName) *XRCD {
	t.Helper()
	x, err := a.ctx.OpenXRCD(XRCDConfig{Name: name, Flags: ib.XRCDCreate})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (a *app) newXSRQ(t testing.TB, x *XRCD) *pool {
	t.Helper()
	return a.newSRQ(t, 8, func(c *SRQConfig) { c.XRCD, c.CQ = x, a.cq })
}

func (a *app) newTarget(t testing.TB, x *XRCD, handle uint32) *QP {
	t.Helper()
	q, err := a.ctx.CreateTarget(TargetConfig{XRCD: x, Handle: handle})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

const (
	iniRTR = rtrMask &^ (ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer)
	tgtRTS = ib.QPAttrState | ib.QPAttrTimeout | ib.QPAttrSQPSN
)

// connectXRC connects an initiator with a target.
func connectXRC(t testing.TB, ini *endpoint, owner *app, target *QP) {
	t.Helper()
	ini.modify(t, initAttr(), initMask)
	ini.modify(t, rtrAttr(owner.addr, target.QPN()), iniRTR)
	ini.modify(t, rtsAttr(), rtsMask)
	e := &endpoint{app: owner, qp: target}
	e.modify(t, initAttr(), initMask)
	e.modify(t, rtrAttr(ini.addr, ini.qp.QPN()), rtrMask)
	e.modify(t, rtsAttr(), tgtRTS)
}

// crew is a node with two processes that share a target, and a peer with an initiator.
type crew struct {
	w      *world
	a, b   *host
	c      *app // the second process of b's node
	xb, xc *XRCD
	pb, pc *pool
	ini    *endpoint
	target *QP // as b has it
	opened *QP // as c has it
}

const (
	targetHandle = 71
	openedHandle = 72
)

func newCrew(t testing.TB) *crew {
	t.Helper()
	g := &crew{c: &app{}}
	g.w, g.a, g.b = newPair(t, nil)
	g.c.open(t, g.b.dev, ContextConfig{Tenant: 1000}, "10.0.0.2")
	g.xb, g.xc = g.b.openXRCD(t, team), g.c.openXRCD(t, team)
	g.pb, g.pc = g.b.newXSRQ(t, g.xb), g.c.newXSRQ(t, g.xc)
	g.target = g.b.newTarget(t, g.xb, targetHandle)
	var err error
	if g.opened, err = g.c.ctx.OpenTarget(TargetConfig{XRCD: g.xc, Handle: openedHandle}, g.target.QPN()); err != nil {
		t.Fatal(err)
	}
	g.ini = g.a.newQP(t, func(c *QPConfig) { c.Type, c.RecvCQ = ib.QPTypeXRCSend, nil })
	connectXRC(t, g.ini, &g.b.app, g.target)
	g.b.take()
	g.c.take()
	return g
}

// send sends n bytes to a shared receive queue and returns the completion.
func (g *crew) send(t testing.TB, srqn uint32, n int) abi.CQE {
	t.Helper()
	w := sendWQE(20)
	w.SRQN = srqn
	g.ini.postSend(w, g.ini.sge(0, n))
	g.w.run(time.Second)
	all := g.a.poll(t)
	if len(all) != 1 {
		t.Fatalf("%d completions of one send", len(all))
	}
	return all[0]
}

func (g *crew) checkEmpty(t testing.TB) {
	t.Helper()
	for _, c := range []*Context{g.a.ctx, g.b.ctx, g.c.ctx} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	g.a.checkEmpty(t)
	g.b.checkEmpty(t)
	if r := &g.b.dev.xrc; len(r.named) != 0 || len(r.numbers) != 0 {
		t.Errorf("left: %d domains, %d numbers", len(r.named), len(r.numbers))
	}
}

// One target serves two processes: what is for whose queue completes in his, with the target's number.
func TestTargetServesProcesses(t *testing.T) {
	g := newCrew(t)
	if g.pb.srq.Number() == 0 || g.pb.srq.Number() == g.pc.srq.Number() {
		t.Fatalf("numbers %d and %d", g.pb.srq.Number(), g.pc.srq.Number())
	}
	for i := range g.a.mem[:6000] {
		g.a.mem[i] = byte(i * 7)
	}
	for round := range 3 {
		for _, p := range []*pool{g.pb, g.pc} {
			clear(p.mem[:6000])
			p.post(uint64(round), p.sge(0, 6000))
			if c := g.send(t, p.srq.Number(), 5000+round); c.Status != 0 {
				t.Fatalf("send: %+v", c)
			}
			other := g.pb
			if p == g.pb {
				other = g.pc
			}
			if c := other.poll(t); len(c) != 0 {
				t.Errorf("the other process hears of it: %+v", c)
			}
			c := p.poll(t)
			if len(c) != 1 || c[0].Status != 0 || c[0].WRID != uint64(round) || c[0].QPN != uint32(g.target.QPN()) ||
				c[0].ByteLen != uint32(5000+round) || c[0].Queue != abi.QueueXRCRecv {
				t.Fatalf("receive: %+v", c)
			}
			if !bytes.Equal(p.mem[:5000+round], g.a.mem[:5000+round]) {
				t.Error("the bytes are not those that were sent")
			}
		}
	}
	// WRITE and READ name the memory of the process whose queue they name.
	w := sendWQE(20)
	w.Opcode, w.SRQN, w.RemoteAddr, w.RKey = uint8(ib.WRRDMAWrite), g.pc.srq.Number(), 0x10000+1<<20, uint32(g.c.mr.RKey())
	g.ini.postSend(w, g.ini.sge(0, 3000))
	w.Opcode = uint8(ib.WRRDMARead)
	g.ini.postSend(w, g.ini.sge(1<<20, 3000))
	g.w.run(time.Second)
	if c := g.a.poll(t); len(c) != 2 || c[0].Status != 0 || c[1].Status != 0 {
		t.Fatalf("write and read: %+v", c)
	}
	if !bytes.Equal(g.c.mem[1<<20:1<<20+3000], g.a.mem[:3000]) || !bytes.Equal(g.a.mem[1<<20:1<<20+3000], g.a.mem[:3000]) {
		t.Error("wrong bytes")
	}
	g.checkEmpty(t)
}

// The key of one process does not work with the queue of the other: keys are the queue's domain's (A14).
func TestTargetKeepsProcessesApart(t *testing.T) {
	g := newCrew(t)
	w := sendWQE(20)
	w.Opcode, w.SRQN, w.RemoteAddr, w.RKey = uint8(ib.WRRDMAWrite), g.pb.srq.Number(), 0x10000, uint32(g.c.mr.RKey())
	g.ini.postSend(w, g.ini.sge(0, 100))
	g.w.run(time.Second)
	if c := g.a.poll(t); len(c) != 1 || c[0].Status != uint8(ib.WCRemAccessErr) {
		t.Fatalf("write: %+v", c)
	}
	g.checkEmpty(t)
}

// A target outlives the process that made it; requests for the queue of that process are then XRC violations, which those
// who still have it open hear of.
func TestTargetOutlivesItsMaker(t *testing.T) {
	g := newCrew(t)
	number := g.pb.srq.Number()
	if err := g.b.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	g.pc.post(1, g.pc.sge(0, 100))
	if c := g.send(t, g.pc.srq.Number(), 100); c.Status != 0 {
		t.Fatalf("send: %+v", c)
	}
	if c := g.c.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Fatalf("receive: %+v", c)
	}
	if c := g.send(t, number, 100); c.Status != uint8(ib.WCRemAccessErr) {
		t.Fatalf("send to a queue that is gone: %+v", c)
	}
	if e := g.c.take(); !slices.Equal(e, []event{{ib.EventQPAccessErr, openedHandle}, {ib.EventQPLastWQEReached, openedHandle}}) {
		t.Errorf("events %v", e)
	}
	if a, _, _ := g.c.ctx.QueryQP(g.opened); a.State != ib.StateErr {
		t.Errorf("the target is in %s", a.State)
	}
	g.checkEmpty(t)
}

// A target that is told to end gives back the receive that it had in hand, and then says to all who have it open that it was
// the last (IBA 10.2.9): in the middle of a message, and with nothing in hand.
func TestTargetLastWQE(t *testing.T) {
	for _, begun := range []bool{false, true} {
		g := newCrew(t)
		g.pc.post(1, g.pc.sge(0, 10000))
		g.pc.post(2, g.pc.sge(0, 10000))
		if begun {
			w := sendWQE(20)
			w.SRQN = g.pc.srq.Number()
			g.ini.postSend(w, g.ini.sge(0, 10000))
			g.a.dev.Step(g.w.now)
			g.a.port.peer.drop(1) // its end
			g.b.dev.Step(g.w.now)
		}
		if err := g.b.ctx.ModifyQP(g.target, &ib.QPAttr{State: ib.StateErr}, ib.QPAttrState); err != nil {
			t.Fatal(err)
		}
		g.w.run(time.Millisecond)
		want := 0
		if begun {
			want = 1
		}
		if c := g.c.poll(t); len(c) != want || want == 1 && (c[0].WRID != 1 || c[0].Status != uint8(ib.WCWRFlushErr)) {
			t.Errorf("receives: %+v", c)
		}
		if e := g.b.take(); !slices.Equal(e, []event{{ib.EventQPLastWQEReached, targetHandle}}) {
			t.Errorf("events %v", e)
		}
		if e := g.c.take(); !slices.Equal(e, []event{{ib.EventQPLastWQEReached, openedHandle}}) {
			t.Errorf("events of the other %v", e)
		}
		// Once: what is said again changes nothing.
		if err := g.c.ctx.ModifyQP(g.opened, &ib.QPAttr{State: ib.StateErr}, ib.QPAttrState); err != nil {
			t.Fatal(err)
		}
		g.w.run(time.Millisecond)
		if e := g.b.take(); len(e) != 0 {
			t.Errorf("more events %v", e)
		}
	}
}

// The queue of another domain is none, whoever has it.
func TestTargetOtherDomain(t *testing.T) {
	g := newCrew(t)
	x, err := g.b.ctx.OpenXRCD(XRCDConfig{Flags: ib.XRCDCreate})
	if err != nil {
		t.Fatal(err)
	}
	p := g.b.newXSRQ(t, x)
	p.post(1, p.sge(0, 100))
	if c := g.send(t, p.srq.Number(), 100); c.Status != uint8(ib.WCRemAccessErr) {
		t.Fatalf("send: %+v", c)
	}
	if c := g.b.poll(t); len(c) != 0 {
		t.Errorf("it was received: %+v", c)
	}
	// Every opener hears of it.
	if e := g.b.take(); !slices.Equal(e, []event{{ib.EventQPAccessErr, targetHandle}, {ib.EventQPLastWQEReached, targetHandle}}) {
		t.Errorf("events %v", e)
	}
	if e := g.c.take(); !slices.Equal(e, []event{{ib.EventQPAccessErr, openedHandle}, {ib.EventQPLastWQEReached, openedHandle}}) {
		t.Errorf("events of the other %v", e)
	}
	if n := g.b.counter("resp_remote_access_errors"); n != 1 {
		t.Errorf("counted %d times", n)
	}
	g.checkEmpty(t)
}

// The rules of opening, with Linux's errnos.
func TestXRCDOpen(t *testing.T) {
	_, a, _ := newPair(t, nil)
	file := XRCDName{File: true, Dev: 1, Ino: 2}
	open := func(name XRCDName, f ib.XRCDFlags) (*XRCD, error) {
		return a.ctx.OpenXRCD(XRCDConfig{Name: name, Flags: f})
	}
	want := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, errno) {
			t.Errorf("%s: %v, want %v", what, err, errno)
		}
	}
	_, err := open(XRCDName{}, 0)
	want("a private one that is not made", err, syscall.EINVAL)
	_, err = open(file, 0)
	want("one that is not there", err, syscall.EAGAIN)
	_, err = open(file, ib.XRCDExclusive)
	want("a new one that is not made", err, syscall.EAGAIN)
	_, err = open(file, ib.XRCDCreate|1)
	want("unknown flags", err, syscall.EINVAL)
	x, err := open(file, ib.XRCDCreate|ib.XRCDExclusive)
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(file, ib.XRCDCreate|ib.XRCDExclusive)
	want("one that is there", err, syscall.EINVAL)
	y, err := open(file, 0)
	if err != nil || x.domain != y.domain {
		t.Fatalf("the same file: %v", err)
	}
	z, err := open(XRCDName{File: true, Dev: 1, Ino: 3}, ib.XRCDCreate)
	if err != nil || z.domain == x.domain {
		t.Fatalf("another file: %v", err)
	}
	p1, p2 := a.openXRCD(t, XRCDName{}), a.openXRCD(t, XRCDName{})
	if p1.domain == p2.domain {
		t.Error("two private domains are one")
	}
	for _, v := range []*XRCD{x, y, z, p1, p2} {
		if err := a.ctx.CloseXRCD(v); err != nil {
			t.Error(err)
		}
	}
	want("closed twice", a.ctx.CloseXRCD(x), syscall.EINVAL)
	_, err = open(file, 0)
	want("one that the last has closed", err, syscall.EAGAIN)
	a.ctx.Close()
	a.checkEmpty(t)
}

func TestXRCLifetimes(t *testing.T) {
	g := newCrew(t)
	want := func(what string, err error, errno syscall.Errno) {
		t.Helper()
		if !errors.Is(err, errno) {
			t.Errorf("%s: %v, want %v", what, err, errno)
		}
	}
	want("a domain with a queue and a target", g.b.ctx.CloseXRCD(g.xb), syscall.EBUSY)
	want("the queue's CQ", g.b.ctx.DestroyCQ(g.b.cq), syscall.EBUSY)
	want("the queue's PD", g.b.ctx.DeallocPD(g.b.pd), syscall.EBUSY)
	if err := g.b.ctx.DestroyQP(g.target); err != nil {
		t.Fatal(err)
	}
	want("a handle that is closed", g.b.ctx.ModifyQP(g.target, &ib.QPAttr{State: ib.StateErr}, ib.QPAttrState), syscall.EINVAL)
	want("closed twice", g.b.ctx.DestroyQP(g.target), syscall.EINVAL)
	want("a domain with a queue", g.b.ctx.CloseXRCD(g.xb), syscall.EBUSY)
	// The target lives, for the other.
	g.pb.post(1, g.pb.sge(0, 100))
	if c := g.send(t, g.pb.srq.Number(), 100); c.Status != 0 {
		t.Fatalf("send: %+v", c)
	}
	// In the middle of a message for it the queue stays.
	part := sendWQE(20)
	part.SRQN = g.pb.srq.Number()
	g.pb.post(2, g.pb.sge(0, 1<<20))
	g.ini.postSend(part, g.ini.sge(0, 1<<20))
	for !g.opened.of.inHand {
		g.a.dev.Step(g.w.now)
		g.b.dev.Step(g.w.now)
		g.w.now++
	}
	want("a queue in use", g.b.ctx.DestroySRQ(g.pb.srq), syscall.EBUSY)
	g.w.run(time.Second)
	if c := g.a.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Fatalf("long send: %+v", c)
	}
	if err := errors.Join(g.b.ctx.DestroySRQ(g.pb.srq), g.b.ctx.CloseXRCD(g.xb)); err != nil {
		t.Fatal(err)
	}
	if err := g.c.ctx.DestroyQP(g.opened); err != nil {
		t.Fatal(err)
	}
	x := g.b.openXRCD(t, team)
	_, err := g.b.ctx.OpenTarget(TargetConfig{XRCD: x}, g.target.QPN())
	want("a target that the last has closed", err, syscall.EINVAL)
	_, err = g.b.ctx.OpenTarget(TargetConfig{XRCD: g.xc}, g.target.QPN())
	want("the domain of another context", err, syscall.EINVAL)
	_, err = g.b.ctx.CreateTarget(TargetConfig{})
	want("no domain", err, syscall.EINVAL)
	g.checkEmpty(t)
}

// A process ends in the middle of a message for its queue: the others and their memory are left alone.
func TestXRCProcessEndsInMidMessage(t *testing.T) {
	g := newCrew(t)
	w := sendWQE(20)
	w.SRQN = g.pb.srq.Number()
	g.pb.post(1, g.pb.sge(0, 1<<20))
	g.ini.postSend(w, g.ini.sge(0, 1<<20))
	for !g.target.of.inHand {
		g.a.dev.Step(g.w.now)
		g.b.dev.Step(g.w.now)
		g.w.now++
	}
	if err := g.b.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	g.w.run(time.Second)
	if c := g.a.poll(t); len(c) != 1 || c[0].Status != uint8(ib.WCRemAccessErr) {
		t.Fatalf("send: %+v", c)
	}
	if a, _, _ := g.c.ctx.QueryQP(g.opened); a.State != ib.StateErr {
		t.Errorf("the target is in %s", a.State)
	}
	// It can be used again.
	g.pc.post(3, g.pc.sge(0, 100))
	g.ini.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	g.ini.sends = 0
	e := &endpoint{app: g.c, qp: g.opened}
	e.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	connectXRC(t, g.ini, g.c, g.opened)
	if c := g.send(t, g.pc.srq.Number(), 100); c.Status != 0 {
		t.Fatalf("send: %+v", c)
	}
	g.checkEmpty(t)
}

// A message that arrives while a process ends leaves nothing of the process behind: its completion queue, which holds events
// back, would have its memory touched when their time comes.
func TestXRCProcessEndsAsMessagesArrive(t *testing.T) {
	g := newCrew(t)
	block := make([]byte, abi.CQBlockSize(128))
	q, err := g.b.ctx.CreateCQ(CQConfig{Block: block, Entries: 128, Notifier: &channel{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := cq.NewReader(block, q.Capacity())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.b.ctx.ModerateCQ(q, 100, 1000); err != nil {
		t.Fatal(err)
	}
	r.ReqNotify(abi.ArmNext)
	p := g.b.newSRQ(t, 8, func(c *SRQConfig) { c.XRCD, c.CQ = g.xb, q })
	s, target := g.target.shard, (*served)(g.target.of)
	arrived := 0
	var arrive func(clock.Time)
	arrive = func(clock.Time) { // as often as the shard does something else
		s.post(arrive)
		if target.Select(p.srq.Number()) != nil {
			arrived++
			target.CompleteRecv(&transport.Receive{}, &transport.Completion{})
		}
		target.pool = nil
	}
	s.post(arrive)
	if err := g.b.ctx.Close(); err != nil {
		t.Fatal(err)
	}
	if arrived == 0 || len(s.held) != 0 {
		t.Errorf("%d messages arrived; %d completion queues hold events back", arrived, len(s.held))
	}
	s.in.queue = nil
}

// What cannot be delivered is not acknowledged: the completion queue of a shared receive queue overruns.
func TestXRCOverrun(t *testing.T) {
	g := newCrew(t)
	small, _ := g.c.newCQ(t, 1)
	p := g.c.newSRQ(t, 256, func(c *SRQConfig) { c.XRCD, c.CQ = g.xc, small })
	n := int(small.Capacity())
	for i := range n + 1 {
		p.post(uint64(i), p.sge(0, 10))
	}
	for i := range n {
		if c := g.send(t, p.srq.Number(), 10); c.Status != 0 {
			t.Fatalf("send %d: %+v", i, c)
		}
	}
	w := sendWQE(20)
	w.SRQN = p.srq.Number()
	g.ini.postSend(w, g.ini.sge(0, 10))
	g.w.run(time.Millisecond)
	if c := g.a.poll(t); len(c) != 0 {
		t.Errorf("the send ends although nobody heard of it: %+v", c)
	}
	if e := g.c.take(); !slices.Contains(e, event{ib.EventQPFatal, openedHandle}) || !slices.Contains(e, event{ib.EventCQErr, 99}) {
		t.Errorf("events %v", e)
	}
	if e := g.b.take(); !slices.Contains(e, event{ib.EventQPFatal, targetHandle}) {
		t.Errorf("events of the other %v", e)
	}
	g.checkEmpty(t)
}

func TestXRCTypes(t *testing.T) {
	g := newCrew(t)
	block := func(l abi.QPLayout) ([]byte, error) { return make([]byte, l.Size()), nil }
	plain := g.b.newSRQ(t, 8, nil)
	for name, c := range map[string]QPConfig{
		"a target in a protection domain":   {PD: g.b.pd, Type: ib.QPTypeXRCRecv, SendCQ: g.b.cq, RecvCQ: g.b.cq, Block: block},
		"an initiator with a shared queue":  {PD: g.b.pd, Type: ib.QPTypeXRCSend, SendCQ: g.b.cq, SRQ: plain.srq, Block: block},
		"RC with an XRC queue":              {PD: g.b.pd, Type: ib.QPTypeRC, SendCQ: g.b.cq, RecvCQ: g.b.cq, SRQ: g.pb.srq, Block: block},
		"RC without a receive CQ":           {PD: g.b.pd, Type: ib.QPTypeRC, SendCQ: g.b.cq, Block: block},
		"an initiator without a send queue": {PD: g.b.pd, Type: ib.QPTypeXRCSend, RecvCQ: g.b.cq, Block: block},
	} {
		if _, err := g.b.ctx.CreateQP(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]SRQConfig{
		"a CQ without a domain":          {PD: g.b.pd, MaxWR: 1, MaxSGE: 1, CQ: g.b.cq, Block: block},
		"a domain without a CQ":          {PD: g.b.pd, MaxWR: 1, MaxSGE: 1, XRCD: g.xb, Block: block},
		"the domain of another context":  {PD: g.b.pd, MaxWR: 1, MaxSGE: 1, XRCD: g.xc, CQ: g.b.cq, Block: block},
		"the CQ of another context":      {PD: g.b.pd, MaxWR: 1, MaxSGE: 1, XRCD: g.xb, CQ: g.c.cq, Block: block},
		"more than the device has of it": {PD: g.b.pd, MaxWR: 1 << 30, MaxSGE: 1, XRCD: g.xb, CQ: g.b.cq, Block: block},
	} {
		if _, err := g.b.ctx.CreateSRQ(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := g.ini.qp.Cap(); c.MaxRecvWR != 0 || c.MaxRecvSGE != 0 {
		t.Errorf("an initiator has receives: %+v", c)
	}
	if g.b.dev.Attr().DeviceCapFlags&ib.CapXRC == 0 {
		t.Error("the device does not say that it has XRC")
	}
	g.checkEmpty(t)
}

func TestTargetDoesNotAllocate(t *testing.T) {
	g := newCrew(t)
	cqe := make([]abi.CQE, 16)
	w := sendWQE(20)
	turn := func() {
		for _, p := range []*pool{g.pb, g.pc} {
			p.post(1, p.sge(0, 100))
			w.SRQN = p.srq.Number()
			g.ini.postSend(w, g.ini.sge(0, 100))
		}
		for range 8 {
			g.w.now++
			g.a.dev.Step(g.w.now)
			g.b.dev.Step(g.w.now)
		}
		for _, a := range []*app{&g.a.app, &g.b.app, g.c} {
			_, _ = a.cqr.Poll(cqe)
		}
	}
	turn()
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := g.pb.block.RecvTaken() + g.pc.block.RecvTaken(); n != 2*52 {
		t.Errorf("%d receives were taken, want %d", n, 2*52)
	}
}

// A panic in the handling of a target takes the target to the error state, and no process.
func TestTargetContainsPanics(t *testing.T) {
	g := newCrew(t)
	g.pc.srq.cq.queue = nil
	g.sendAndForget(g.pc)
	if e := g.b.take(); !slices.Contains(e, event{ib.EventQPFatal, targetHandle}) {
		t.Errorf("events %v", e)
	}
	if g.b.ctx.dead.Load() || g.c.ctx.dead.Load() {
		t.Error("a process ended for a fault of the target")
	}
}

func (g *crew) sendAndForget(p *pool) {
	p.post(1, p.sge(0, 100))
	w := sendWQE(20)
	w.SRQN = p.srq.Number()
	g.ini.postSend(w, g.ini.sge(0, 100))
	g.w.run(10 * time.Millisecond)
}

// A process takes the memory of its completion queue away: it ends, alone. The target fails, for what could not be
// delivered must not be acknowledged, and works again for the others.
func TestTargetContainsFaults(t *testing.T) {
	g := newCrew(t)
	block, vanish := mapped(t, int(abi.CQBlockSize(64)))
	bad, err := g.c.ctx.CreateCQ(CQConfig{Block: block, Entries: 64, Handle: 98})
	if err != nil {
		t.Fatal(err)
	}
	p := g.c.newSRQ(t, 8, func(c *SRQConfig) { c.XRCD, c.CQ = g.xc, bad })
	vanish()
	g.sendAndForget(p)
	if g.b.ctx.dead.Load() || !g.c.ctx.dead.Load() || g.target.of.ctx.dead.Load() {
		t.Errorf("dead: the innocent %v, the guilty %v, the target %v", g.b.ctx.dead.Load(), g.c.ctx.dead.Load(), g.target.of.ctx.dead.Load())
	}
	if e := g.b.take(); !slices.Contains(e, event{ib.EventQPFatal, targetHandle}) {
		t.Errorf("events %v", e)
	}
	e := &endpoint{app: &g.b.app, qp: g.target}
	e.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	g.ini.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	g.ini.sends = 0
	g.a.poll(t)
	connectXRC(t, g.ini, &g.b.app, g.target)
	g.pb.post(1, g.pb.sge(0, 100))
	if c := g.send(t, g.pb.srq.Number(), 100); c.Status != 0 {
		t.Errorf("send: %+v", c)
	}
	// The queue of the one who ended is none any more.
	if c := g.send(t, p.srq.Number(), 100); c.Status != uint8(ib.WCRemAccessErr) {
		t.Errorf("send to the dead: %+v", c)
	}
	g.checkEmpty(t)
}
