package nic

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// A message's whole way, from the doorbell to both completions, allocates nothing.
func TestStepAllocatesNothing(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	remote := abi.SendWQE{Flags: uint8(ib.SendSignaled), RKey: uint32(y.mr.RKey()), RemoteAddr: 0x10000}
	var c [16]abi.CQE
	for name, op := range map[string]ib.WROpcode{
		"SEND": ib.WRSend, "WRITE": ib.WRRDMAWrite, "READ": ib.WRRDMARead, "FETCH ADD": ib.WRAtomicFetchAdd,
	} {
		wqe, list := remote, []ib.SGE{x.sge(1<<20, 20000)}
		wqe.Opcode = uint8(op)
		if op == ib.WRAtomicFetchAdd {
			list[0].Length = 8
		}
		if n := testing.AllocsPerRun(100, func() {
			if op == ib.WRSend {
				y.postRecv(1, y.sge(2<<20, 20000))
			}
			if !x.block.PutSend(x.sends, &wqe, list) {
				panic("test: a send that does not fit")
			}
			x.sends++
			x.block.PublishSend(x.sends)
			x.bell.Ring(x.qp.Slot())
			w.run(10 * time.Millisecond)
			if n, _ := x.cqr.Poll(c[:]); n != 1 || c[0].Status != 0 {
				panic("test: no completion")
			}
			if n, _ := y.cqr.Poll(c[:]); op == ib.WRSend && n != 1 {
				panic("test: no receive")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations a message", name, n)
		}
	}
}

// The same turns make the same world, to the last completion and counter.
func TestStepIsDeterministic(t *testing.T) {
	run := func() (string, []Counter) {
		w, a, b := newPair(t, nil)
		var xs []*endpoint
		for range 5 {
			x, y := a.newQP(t, nil), b.newQP(t, nil)
			x.connect(t, y)
			y.connect(t, x)
			y.postRecv(1, y.sge(0, 1<<20))
			xs = append(xs, x)
		}
		for i, x := range xs {
			x.postSend(sendWQE(uint64(i)), x.sge(0, 100000*(i+1)))
		}
		w.run(time.Second)
		log := ""
		for _, c := range a.poll(t) {
			log += ib.QPN(c.QPN).String() + " "
		}
		return log, a.dev.Counters()
	}
	log1, counters1 := run()
	log2, counters2 := run()
	if log1 != log2 || !slices.Equal(counters1, counters2) {
		t.Errorf("two runs differ:\n%s\n%s\n%v\n%v", log1, log2, counters1, counters2)
	}
}

// greedy is an engine that always has packets to send, of which it counts the bytes.
type greedy struct {
	path   wire.Path
	mem    wire.Buffer
	active bool
	sent   int
	left   int // negative: for ever
}

func (e *greedy) Receive(clock.Time, *wire.Packet) bool { return false }
func (e *greedy) Expire(clock.Time) bool                { return false }
func (e *greedy) Deadline() clock.Time                  { return clock.Never }
func (e *greedy) Query(*ib.QPAttr)                      {}
func (e *greedy) Faulted(clock.Time, uint64) bool       { return false }

func (e *greedy) Modify(clock.Time, *ib.QPAttr, ib.QPAttrMask, *wire.Path) bool { return e.active }

func (e *greedy) Transmit(_ clock.Time, out *wire.Burst, budget int) (bytes int, more bool) {
	for bytes < budget && e.left != 0 {
		f := out.Next()
		if f == nil {
			break
		}
		f.SetHeader(wire.RCSendMiddle)
		f.Path = &e.path
		f.Add(&e.mem, 0, len(e.mem.B))
		bytes += f.Len()
		if e.left > 0 {
			e.left--
		}
	}
	e.sent += bytes
	return bytes, e.left != 0
}

// The port is divided by tenant: 64 queue pairs of one get no more than one queue pair of another, and a sender of 64
// bytes waits for a few quanta.
func TestShareOfThePort(t *testing.T) {
	a := newHost(t, "softnic0", "10.0.0.1", newCable(512), nil)
	var engines []*greedy
	a.dev.newEngine = func(*QP) transport.Engine {
		e := &greedy{mem: wire.Buffer{B: make([]byte, 4096)}, left: -1}
		engines = append(engines, e)
		return e
	}
	var second app
	second.open(t, a.dev, ContextConfig{Tenant: 5}, a.addr)
	for range 64 {
		a.newQP(t, nil)
	}
	lone := second.newQP(t, nil)
	small := second.newQP(t, nil)
	crowd, one, tiny := engines[:64], engines[64], engines[65]
	one.mem.B = one.mem.B[:1024]
	tiny.mem.B, tiny.left = tiny.mem.B[:64], 0
	for slot := range uint32(64) {
		a.bell.Ring(slot)
	}
	second.bell.Ring(lone.qp.Slot())
	for i := range 500 {
		if i%7 == 0 {
			tiny.left = 1
			second.bell.Ring(small.qp.Slot())
		}
		// Before it: a quantum of the other queue pair of its tenant, and one of the other tenant beside each of its own.
		for sent := 0; sent < 4*tenantQuantum; sent += burstBytes {
			a.dev.Step(clock.Time(i))
		}
		if tiny.left != 0 {
			t.Fatalf("round %d: 64 bytes still wait after %d others", i, 4*tenantQuantum)
		}
	}
	sum := 0
	for _, e := range crowd {
		sum += e.sent
	}
	if share := float64(one.sent) / float64(one.sent+sum); share < 0.475 || share > 0.525 {
		t.Errorf("the lone queue pair got %.1f %% of the bytes, want half within 5 %%", 100*share)
	}
	for i, e := range crowd {
		if share := float64(e.sent) * 64 / float64(sum); share < 0.9 || share > 1.1 {
			t.Errorf("queue pair %d of 64 got %.2f of its fair share", i, share)
		}
	}
}

// What a congested port did not take goes first when it takes again, and nothing is lost.
func TestCongestedPort(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	a.port.stuck = true
	y.postRecv(21, y.sge(1<<20, 5000))
	x.postSend(sendWQE(20), x.sge(0, 5000))
	next, _ := a.dev.Step(w.now)
	if next == clock.Never || next > w.now.Add(time.Millisecond) {
		t.Errorf("next step at %d with frames waiting for the port", next)
	}
	for range 5 {
		a.dev.Step(w.now)
	}
	if n := a.dev.shards[0].burst.Len(); n != 2 {
		t.Errorf("%d frames wait, want 2", n)
	}
	a.port.stuck = false
	w.run(time.Second)
	if n := a.counter("retransmissions"); n != 0 {
		t.Errorf("%d packets sent again", n)
	}
	if c := x.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Errorf("completions %+v", c)
	}
}

// Deregistered memory is not touched any more when DeregMR returns, also when frames that name it were waiting for a port
// that takes nothing.
func TestDeregWaitsForGrace(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		w, a, b := newPair(t, nil)
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		region := &watched{Region: dma.NewEmbedded(make([]byte, 1<<16))}
		mr, err := a.ctx.RegMR(a.pd, MRConfig{Region: region, Base: 0x900000, Length: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		y.postRecv(1, y.sge(0, 1<<16))
		a.port.stuck = true
		x.postSend(sendWQE(1), ib.SGE{Addr: 0x900000, Length: 1 << 16, LKey: mr.LKey()})
		a.dev.Step(w.now)
		if a.dev.shards[0].burst.Len() == 0 {
			t.Fatal("nothing waits for the port")
		}
		a.port.stuck = stuck
		if err := a.ctx.DeregMR(mr); err != nil {
			t.Fatal(err)
		}
		if a.dev.shards[0].burst.Len() != 0 {
			t.Error("frames still wait after the grace point")
		}
		region.closed = true
		a.port.stuck = false
		w.run(10 * time.Second)
		if region.late {
			t.Errorf("stuck %v: the memory was touched after DeregMR", stuck)
		}
		want := ib.WCSuccess
		if stuck {
			want = ib.WCLocProtErr
		}
		if c := x.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != want {
			t.Errorf("stuck %v: completions %+v, want %s", stuck, c, want)
		}
	}
}

// watched is a region that notices who touches it when it is closed.
type watched struct {
	dma.Region
	closed, late bool
}

func (r *watched) Bytes(off uint64, n int) []byte {
	r.late = r.late || r.closed
	return r.Region.Bytes(off, n)
}

func (r *watched) Read(dst []byte, off uint64) error {
	r.late = r.late || r.closed
	return r.Region.Read(dst, off)
}

// After a stall the port is emptied before timers fire: the acknowledgement that they wait for has long arrived.
func TestStallDrainsBeforeTimers(t *testing.T) {
	pa, pb := newCables(512)
	a, b := newHost(t, "softnic0", "10.0.0.1", pa, nil), newHost(t, "softnic1", "10.0.0.2", pb, nil)
	b.dev.newEngine = b.dev.newRC
	var now clock.Time
	type pair struct{ x, y *endpoint }
	var pairs []pair
	for range 100 { // more acknowledgements than one receive burst holds
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		y.postRecv(1)
		x.postSend(sendWQE(1))
		pairs = append(pairs, pair{x, y})
	}
	for range 10 {
		a.dev.Step(now)
	}
	// The acknowledgements arrive while a stands still.
	for range 10 {
		b.dev.Step(now)
	}
	if pa.waiting < 100 {
		t.Fatalf("%d packets wait, want 100", pa.waiting)
	}
	now = now.Add(5 * time.Second)
	a.dev.Step(now)
	if n := a.counter("local_ack_timeout_err"); n != 0 {
		t.Errorf("%d timeouts after a stall", n)
	}
	if c := a.poll(t); len(c) != len(pairs) {
		t.Errorf("%d completions in the first step after it, want %d", len(c), len(pairs))
	}
}

// Losing the other side ends in exceeded retries, by timers alone.
func TestSilentPeer(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	b.port.stuck = true
	x.postSend(sendWQE(1), x.sge(0, 10))
	w.run(100 * time.Second)
	if c := x.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCRetryExcErr {
		t.Errorf("completions %+v, want RETRY_EXC_ERR", c)
	}
	if x.block.State() != ib.StateErr {
		t.Errorf("state %s", x.block.State())
	}
}

func TestLinkEvents(t *testing.T) {
	page := make([]byte, abi.DevicePageSize)
	a := newHost(t, "softnic0", "10.0.0.1", newCable(64), func(c *Config) { c.Page = page })
	view, err := abi.NewDevicePage(page)
	if err != nil || view.Check() != nil {
		t.Fatal(err, view.Check())
	}
	expect := func(l Link, state ib.PortState, mtu ib.MTU, want ...event) {
		t.Helper()
		a.dev.SetLink(l)
		if got := a.take(); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		p := a.dev.PortAttr()
		if p.State != state || p.ActiveMTU != mtu || view.PortState() != uint32(state) {
			t.Errorf("port %s, page %d, MTU %s, want %s, %s", p.State, view.PortState(), p.ActiveMTU, state, mtu)
		}
	}
	up := Link{Name: "eth0", MTU: 9000, Up: true, Addrs: addrs("10.0.0.1")}
	expect(up, ib.PortActive, ib.MTU4096)
	up.MTU = 1500
	expect(up, ib.PortActive, ib.MTU1024)
	up.Addrs = addrs("10.0.0.1 2001:db8::1")
	expect(up, ib.PortActive, ib.MTU1024, event{ib.EventGIDChange, 1})
	down := up
	down.Up = false
	expect(down, ib.PortDown, ib.MTU1024, event{ib.EventPortErr, 1})
	down.Addrs = nil
	expect(down, ib.PortDown, ib.MTU1024, event{ib.EventGIDChange, 1})
	expect(up, ib.PortActive, ib.MTU1024, event{ib.EventPortActive, 1}, event{ib.EventGIDChange, 1})
}

func TestFailedPort(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	a.port.err = errors.New("network is down")
	x.postSend(sendWQE(1))
	w.run(100 * time.Second)
	if got, want := a.take(), []event{{ib.EventPortErr, 1}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if s := a.dev.PortAttr().State; s != ib.PortDown {
		t.Errorf("port state %s", s)
	}
	if c := x.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCRetryExcErr {
		t.Errorf("completions %+v, want RETRY_EXC_ERR", c)
	}
	a.port.err = nil
	l := *a.dev.link.Load()
	a.dev.SetLink(l)
	if got, want := a.take(), []event{{ib.EventPortActive, 1}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// Draining flushes what is posted, tells everybody, and lets nobody in.
func TestDrain(t *testing.T) {
	_, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	x.postRecv(1)
	x.postRecv(2)
	x.postSend(sendWQE(3))
	if err := a.dev.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, c := range x.poll(t) {
		if ib.WCStatus(c.Status) != ib.WCWRFlushErr {
			t.Errorf("completion %+v, want a flush", c)
		}
	}
	if got, want := a.take(), []event{{ib.EventDeviceFatal, 0}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if _, err := a.dev.OpenContext(ContextConfig{Owner: true}); err == nil {
		t.Error("a context was opened while draining")
	}
	a.dev.Close()
	a.checkEmpty(t)
}
