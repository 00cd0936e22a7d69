package nic

import (
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"golang.org/x/sys/unix"
)

func TestLastWQEReached(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 8, nil)
	xs, ys := connected(t, a, b, p, 2)
	for i := range 3 {
		p.post(uint64(i), p.sge(0, 100<<10))
	}
	// A message of which the first part arrives: its receive is taken and not complete.
	a.port.peer.slots = a.port.peer.slots[:4]
	xs[0].postSend(sendWQE(9), xs[0].sge(0, 100<<10))
	a.dev.Step(w.now)
	b.dev.Step(w.now)
	if n := p.block.RecvTaken(); n != 1 {
		t.Fatalf("%d taken", n)
	}
	b.take()
	ys[0].modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	ys[1].modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	for range 4 {
		b.dev.Step(w.now)
	}
	if c := b.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCWRFlushErr || c[0].WRID != 0 ||
		c[0].QPN != uint32(ys[0].qp.QPN()) || c[0].Queue != abi.QueueSharedRecv {
		t.Errorf("completions %+v, want receive 0 flushed", c)
	}
	got := b.take()
	slices.SortFunc(got, func(x, y event) int { return int(x.handle) - int(y.handle) })
	if want := []event{{ib.EventQPLastWQEReached, 200}, {ib.EventQPLastWQEReached, 201}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	ys[0].postSend(sendWQE(3))
	w.run(time.Millisecond)
	if c := b.poll(t); len(c) != 1 || c[0].WRID != 3 {
		t.Errorf("completions %+v, want the send flushed", c)
	}
	if got := b.take(); len(got) != 0 {
		t.Errorf("again: %v", got)
	}
	if _, n, _ := b.ctx.QuerySRQ(p.srq); n != 2 {
		t.Errorf("%d are left, want 2", n)
	}
	// Through RESET it can serve again, and reach its last once more.
	ys[0].modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	xs[0].modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
	xs[0].sends, ys[0].sends = 0, 0
	a.port.peer.slots = a.port.peer.slots[:512]
	xs[0].connect(t, ys[0])
	ys[0].connect(t, xs[0])
	xs[0].postSend(sendWQE(9), xs[0].sge(0, 100))
	w.run(time.Millisecond)
	if c := b.poll(t); len(c) != 1 || c[0].WRID != 1 || c[0].Status != 0 {
		t.Errorf("after RESET: %+v", c)
	}
	b.take()
	ys[0].modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	w.run(time.Millisecond)
	if got := b.take(); !slices.Equal(got, []event{{ib.EventQPLastWQEReached, 200}}) {
		t.Errorf("events %v", got)
	}
}

func TestSRQErr(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 8, nil)
	xs, ys := connected(t, a, b, p, 2)
	b.take()
	p.block.PublishRecv(9)
	write := abi.SendWQE{WRID: 4, Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()), RemoteAddr: 0x10000}
	xs[0].postSend(sendWQE(3), xs[0].sge(0, 10))
	w.run(time.Millisecond)
	if got, want := b.take(), []event{{ib.EventSRQErr, poolHandle}, {ib.EventQPFatal, 200}, {ib.EventQPLastWQEReached, 200}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if c := a.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCRemOpErr {
		t.Errorf("the sender sees %+v, want %s", c, ib.WCRemOpErr)
	}
	if p.block.State() != ib.StateErr || ys[0].block.State() != ib.StateErr || ys[1].block.State() != ib.StateRTS {
		t.Errorf("states %s, %s, %s", p.block.State(), ys[0].block.State(), ys[1].block.State())
	}
	xs[1].postSend(write, xs[1].sge(0, 10))
	w.run(time.Millisecond)
	if c := a.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Errorf("a WRITE on the other queue pair: %+v", c)
	}
	p.block.PublishRecv(4) // honest again, too late
	xs[1].postSend(sendWQE(3), xs[1].sge(0, 10))
	w.run(time.Millisecond)
	if got, want := b.take(), []event{{ib.EventQPFatal, 201}, {ib.EventQPLastWQEReached, 201}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if c := b.poll(t); len(c) != 0 {
		t.Errorf("receives completed: %+v", c)
	}
	if err := b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{}, ib.SRQAttrLimit, nil); errno(err) != syscall.EIO {
		t.Errorf("modify: %v", err)
	}
	if _, _, err := b.ctx.QuerySRQ(p.srq); err != nil {
		t.Error(err)
	}
}

func TestSRQMalformedReceive(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 8, nil)
	xs, _ := connected(t, a, b, p, 2)
	p.post(1, p.sge(0, 100))
	p.raw[abi.QPHeaderSize+8] = 3 // entries, of 2
	p.post(2, p.sge(0, 100))
	for i, want := range []ib.WCStatus{ib.WCLocQPOpErr, ib.WCSuccess} {
		xs[i].postSend(sendWQE(9), xs[i].sge(0, 100))
		w.run(10 * time.Millisecond)
		if c := b.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != want || c[0].WRID != uint64(i+1) {
			t.Errorf("receive %d: %+v, want %s", i, c, want)
		}
	}
}

func TestSRQMemoryIsGone(t *testing.T) {
	w, a, b := newPair(t, nil)
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	p := b.newSRQ(t, 8, func(c *SRQConfig) { c.Block = func(abi.QPLayout) ([]byte, error) { return mem, nil } })
	xs, _ := connected(t, a, b, p, 1)
	b.take()
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.ctx.QuerySRQ(p.srq); errno(err) != syscall.EFAULT {
		t.Errorf("query: %v", err)
	}
	xs[0].postSend(sendWQE(3), xs[0].sge(0, 10))
	w.run(time.Millisecond)
	if got, want := b.take(), []event{{ib.EventSRQErr, poolHandle}, {ib.EventQPFatal, 200}, {ib.EventQPLastWQEReached, 200}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if c := a.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != ib.WCRemOpErr {
		t.Errorf("the sender sees %+v, want %s", c, ib.WCRemOpErr)
	}
	// A fault in a control call is the end as well.
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	p = b.newSRQ(t, 8, func(c *SRQConfig) { c.Block = func(abi.QPLayout) ([]byte, error) { return mem, nil } })
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if err := b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: 3}, ib.SRQAttrLimit, nil); errno(err) != syscall.EFAULT {
		t.Errorf("modify: %v", err)
	}
	if got, want := b.take(), []event{{ib.EventSRQErr, poolHandle}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestScribbledSRQ(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 78))
		w, a, b := newPair(t, nil)
		var bad app
		bad.open(t, b.dev, ContextConfig{Tenant: 5}, b.addr)
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		for round := range 20 {
			p := bad.newSRQ(t, 1+r.Uint32N(20), nil)
			var us, vs []*endpoint
			for range 2 {
				u, v := a.newQP(t, nil), bad.newQP(t, onSRQ(p))
				u.connect(t, v)
				v.connect(t, u)
				us, vs = append(us, u), append(vs, v)
			}
			for range 10 {
				for range r.IntN(6) {
					p.post(7, p.sge(r.IntN(appMemory), r.IntN(3000)))
				}
				switch r.IntN(6) {
				case 0:
					p.raw[r.IntN(len(p.raw))] = byte(r.Uint32())
				case 1:
					p.block.PublishRecv(p.posted + r.Uint32N(40))
				case 2:
					_ = p.resize(r.Uint32N(40), func() { p.raw[r.IntN(len(p.raw))] = byte(r.Uint32()) })
				case 3:
					_ = bad.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: r.Uint32N(20)}, ib.SRQAttrLimit, nil)
				}
				u := us[r.IntN(2)]
				if u.block.State() == ib.StateRTS {
					u.postSend(sendWQE(1), u.sge(0, r.IntN(3000)))
				}
				w.run(time.Duration(r.IntN(500)) * time.Microsecond)
				a.poll(t)
				for n := 1; n > 0; {
					var c [16]abi.CQE
					n, _ = bad.cqr.Poll(c[:])
				}
			}
			for i := range us {
				if a.ctx.DestroyQP(us[i].qp) != nil || bad.ctx.DestroyQP(vs[i].qp) != nil {
					t.Fatal("a queue pair cannot be destroyed")
				}
			}
			if err := bad.ctx.DestroySRQ(p.srq); err != nil {
				t.Fatal(err)
			}
			if round%5 == 4 {
				exchange(t, w, x, y)
			}
		}
		if strings.Contains(a.log.String()+b.log.String(), "internal error") || t.Failed() {
			t.Fatalf("seed %d:\n%s%s", seed, a.log.String(), b.log.String())
		}
		a.dev.Close()
		b.dev.Close()
		b.checkEmpty(t)
	}
}
