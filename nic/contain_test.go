package nic

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// shaky is an engine that panics when it is told to, after it has half made a frame.
type shaky struct {
	transport.Engine
	in string
}

func (e *shaky) fall(in string) {
	if e.in == in {
		e.in = ""
		panic("the engine fell in " + in)
	}
}

func (e *shaky) Receive(now clock.Time, p *wire.Packet) bool {
	e.fall("Receive")
	return e.Engine.Receive(now, p)
}

func (e *shaky) Transmit(now clock.Time, out *wire.Burst, budget int) (int, bool) {
	if e.in == "Transmit" {
		out.Next().SetHeader(wire.RCSendOnly)
		e.fall("Transmit")
	}
	return e.Engine.Transmit(now, out, budget)
}

func (e *shaky) Expire(now clock.Time) bool { e.fall("Expire"); return e.Engine.Expire(now) }
func (e *shaky) Deadline() clock.Time       { e.fall("Deadline"); return e.Engine.Deadline() }

func (e *shaky) Modify(now clock.Time, a *ib.QPAttr, mask ib.QPAttrMask, p *wire.Path) bool {
	e.fall("Modify")
	return e.Engine.Modify(now, a, mask, p)
}

func (e *shaky) Query(a *ib.QPAttr) { e.fall("Query"); e.Engine.Query(a) }

// shake makes the engine of x panic in its next call of the method named.
func shake(x *endpoint, in string) { x.qp.engine.(*shaky).in = in }

func newShakyPair(t *testing.T) (w *world, a, b *host) {
	w, a, b = newPair(t, nil)
	a.dev.newEngine = func(q *QP) transport.Engine { return &shaky{Engine: a.dev.newRC(q)} }
	return w, a, b
}

// A panic in an engine is the end of its queue pair and of nothing else.
func TestPanicIsContained(t *testing.T) {
	for _, in := range []string{"Receive", "Transmit", "Expire", "Deadline", "Modify", "Query"} {
		w, a, b := newShakyPair(t)
		x, other := a.newQP(t, nil), a.newQP(t, func(c *QPConfig) { c.Handle = 8 })
		y, peer := b.newQP(t, nil), b.newQP(t, nil)
		for _, p := range [][2]*endpoint{{x, y}, {other, peer}} {
			p[0].connect(t, p[1])
			p[1].connect(t, p[0])
		}
		y.postRecv(1, y.sge(0, 4096))
		peer.postRecv(2, y.sge(0, 4096))
		shake(x, in)
		switch in {
		case "Modify":
			_ = x.ctx.ModifyQP(x.qp, &ib.QPAttr{MinRNRTimer: 1}, ib.QPAttrMinRNRTimer)
		case "Query":
			x.ctx.QueryQP(x.qp)
		case "Expire":
			b.port.stuck = true // no answer: the timer fires
		}
		x.postSend(abi.SendWQE{WRID: 1, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 4096))
		w.run(500 * time.Millisecond)
		b.port.stuck = false
		other.postSend(abi.SendWQE{WRID: 2, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 4096))
		w.run(time.Second)

		if got, want := a.take(), []event{{ib.EventQPFatal, 7}}; !slices.Equal(got, want) {
			t.Errorf("%s: events %v, want %v", in, got, want)
		}
		if s := x.block.State(); s != ib.StateErr {
			t.Errorf("%s: state %s", in, s)
		}
		c := x.poll(t)
		if len(c) != 2 || ib.WCStatus(c[0].Status) != ib.WCWRFlushErr || c[1].WRID != 2 || c[1].Status != 0 {
			t.Errorf("%s: completions %+v, want a flush and the other queue pair's success", in, c)
		}
		if n := strings.Count(a.log.String(), "the engine fell in "+in); n != 1 {
			t.Errorf("%s: logged %d times", in, n)
		}
		if !strings.Contains(a.log.String(), "shaky") {
			t.Errorf("%s: no stack in the log", in)
		}
		a.dev.Close()
		a.checkEmpty(t)
	}
}

// The second panic in a context ends it; other contexts go on.
func TestSecondPanicEndsContext(t *testing.T) {
	w, a, b := newShakyPair(t)
	var second app
	second.open(t, a.dev, ContextConfig{Tenant: 5}, a.addr)
	x, x2, other := a.newQP(t, nil), a.newQP(t, nil), second.newQP(t, nil)
	y, y2, peer := b.newQP(t, nil), b.newQP(t, nil), b.newQP(t, nil)
	for _, p := range [][2]*endpoint{{x, y}, {x2, y2}, {other, peer}} {
		p[0].connect(t, p[1])
		p[1].connect(t, p[0])
	}
	for _, e := range []*endpoint{x, x2} {
		shake(e, "Transmit")
		e.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend)})
	}
	peer.postRecv(1)
	other.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)})
	w.run(time.Second)
	if got, want := a.take(), []event{{ib.EventQPFatal, 7}, {ib.EventDeviceFatal, 0}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if c := other.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Errorf("another context: %+v", c)
	}
	if got := second.take(); len(got) != 0 {
		t.Errorf("another context hears %v", got)
	}
	if _, err := a.ctx.AllocPD(); errno(err) != syscall.EIO {
		t.Errorf("alloc pd in the dead context: %v, want EIO", err)
	}
	if err := a.ctx.ModifyQP(x2.qp, &ib.QPAttr{State: ib.StateReset}, ib.QPAttrState); errno(err) != syscall.EIO {
		t.Errorf("modify qp in the dead context: %v, want EIO", err)
	}
	if err := a.ctx.DestroyQP(x.qp); err != nil {
		t.Errorf("destroy qp in the dead context: %v", err)
	}
	a.dev.Close()
	a.checkEmpty(t)
}

// mapped returns memory that can be taken away.
func mapped(t *testing.T, n int) (b []byte, vanish func()) {
	n = (n + 4095) &^ 4095
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b, func() {
		if err := unix.Mprotect(b, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
}

// Memory that a context shares and takes away is its own end.
func TestVanishedMemoryEndsContext(t *testing.T) {
	for _, what := range []string{"ring", "CQ", "doorbell"} {
		w, a, b := newPair(t, nil)
		var bad app
		bad.open(t, a.dev, ContextConfig{Tenant: 5}, a.addr)
		vanish := func() {}
		edit := func(c *QPConfig) {}
		switch what {
		case "ring":
			edit = func(c *QPConfig) {
				carve := c.Block
				c.Block = func(l abi.QPLayout) (mem []byte, err error) {
					_, _ = carve(l)
					mem, vanish = mapped(t, int(l.Size()))
					return mem, nil
				}
			}
		case "CQ":
			var mem []byte
			mem, vanish = mapped(t, int(abi.CQBlockSize(64)))
			q, err := bad.ctx.CreateCQ(CQConfig{Block: mem, Entries: 64})
			if err != nil {
				t.Fatal(err)
			}
			edit = func(c *QPConfig) { c.SendCQ = q }
		case "doorbell":
			bad.ctx.Close()
			var mem []byte
			mem, vanish = mapped(t, abi.DoorbellSize)
			ctx, err := a.dev.OpenContext(ContextConfig{Tenant: 5, Doorbell: mem, Async: func(e ib.EventType, h uint32, _ uint64) {
				bad.events = append(bad.events, event{e, h})
			}})
			if err != nil {
				t.Fatal(err)
			}
			bad.ctx, bad.events = ctx, nil
		}
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		if what != "doorbell" {
			z, v := bad.newQP(t, edit), b.newQP(t, nil)
			z.connect(t, v)
			v.connect(t, z)
			v.postRecv(9)
			z.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)})
		}
		vanish()
		y.postRecv(1)
		x.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)})
		w.run(100 * time.Millisecond)
		if got, want := bad.take(), []event{{ib.EventDeviceFatal, 0}}; !slices.Equal(got, want) {
			t.Errorf("%s: events %v, want %v", what, got, want)
		}
		if c := x.poll(t); len(c) != 1 || c[0].Status != 0 {
			t.Errorf("%s: another context: %+v", what, c)
		}
		bad.ctx.Close()
		a.dev.Close()
		a.checkEmpty(t)
	}
}

// Creation on memory that is not there fails and leaves nothing behind.
func TestCreateOnVanishedMemory(t *testing.T) {
	_, a, _ := newPair(t, nil)
	mem, vanish := mapped(t, 1<<20)
	vanish()
	used := a.dev.ledger.used
	if _, err := a.ctx.CreateCQ(CQConfig{Block: mem, Entries: 64}); errno(err) != syscall.EFAULT {
		t.Errorf("create cq: %v, want EFAULT", err)
	}
	_, err := a.ctx.CreateQP(QPConfig{PD: a.pd, Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: testCap,
		Block: func(abi.QPLayout) ([]byte, error) { return mem, nil }})
	if errno(err) != syscall.EFAULT {
		t.Errorf("create qp: %v, want EFAULT", err)
	}
	if used != a.dev.ledger.used {
		t.Errorf("charges left: %v, before %v", a.dev.ledger.used, used)
	}
}

// A payload whose owner takes it away while it waits for the port: that request fails, the frame is dropped.
func TestVanishedPayload(t *testing.T) {
	w, a, b := newPair(t, nil)
	mem, vanish := mapped(t, 1<<16)
	mr := a.registered(t, mem)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	y.postRecv(1, y.sge(0, 1<<16))
	a.port.stuck = true
	x.postSend(abi.SendWQE{WRID: 4, Opcode: uint8(ib.WRSend)}, ib.SGE{Addr: 0x900000, Length: 1 << 16, LKey: mr.LKey()})
	a.dev.Step(w.now)
	if a.dev.shards[0].burst.Len() == 0 {
		t.Fatal("nothing waits for the port")
	}
	vanish()
	a.port.stuck = false
	w.run(time.Second)
	if c := x.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCLocProtErr || c[0].WRID != 4 {
		t.Errorf("completions %+v, want LOC_PROT_ERR", c)
	}
}
