package nic

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// pool is a shared receive queue as its application sees it.
type pool struct {
	*app
	srq    *SRQ
	block  *abi.QPBlock
	raw    []byte
	posted uint32
}

const poolHandle = 55

func (a *app) newSRQ(t testing.TB, maxWR uint32, edit func(*SRQConfig)) *pool {
	t.Helper()
	p := &pool{app: a}
	cfg := SRQConfig{PD: a.pd, MaxWR: maxWR, MaxSGE: 2, Handle: poolHandle, Block: p.ring}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if p.srq, err = a.ctx.CreateSRQ(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pool) ring(l abi.QPLayout) ([]byte, error) {
	p.raw = make([]byte, l.Size())
	var err error
	p.block, err = abi.NewQPBlock(p.raw, l)
	return p.raw, err
}

func (p *pool) post(id uint64, list ...ib.SGE) {
	if !p.block.PutRecv(p.posted, &abi.RecvWQE{WRID: id}, list) {
		panic("test: a receive that does not fit")
	}
	p.posted++
	p.block.PublishRecv(p.posted)
}

func (p *pool) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: 0x10000 + uint64(off), Length: uint32(n), LKey: p.mr.LKey()}
}

func onSRQ(p *pool) func(*QPConfig) { return func(c *QPConfig) { c.SRQ = p.srq } }

// connected makes n queue pairs of a, each with a peer of b that takes receives from p.
func connected(t testing.TB, a, b *host, p *pool, n int) (xs, ys []*endpoint) {
	t.Helper()
	for i := range n {
		x, y := a.newQP(t, nil), b.newQP(t, func(c *QPConfig) { c.SRQ, c.Handle = p.srq, uint32(200+i) })
		x.connect(t, y)
		y.connect(t, x)
		xs, ys = append(xs, x), append(ys, y)
	}
	return xs, ys
}

// Whoever needs a receive takes the oldest; each completes in the CQ of the queue pair that took it.
func TestSRQIsShared(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 5, nil)
	if n := p.srq.MaxWR(); n != 8 {
		t.Errorf("5 receives become %d, want 8", n)
	}
	xs, ys := connected(t, a, b, p, 3)
	if c := ys[0].qp.Cap(); c.MaxRecvWR != 0 || c.MaxRecvSGE != 0 {
		t.Errorf("capacities %+v: a queue pair on a shared queue has no receives of its own", c)
	}
	for i := range 6 {
		p.post(uint64(i), p.sge(i*100, 100))
	}
	for i := range 6 {
		xs[i%3].postSend(sendWQE(9), xs[i%3].sge(0, 10+i))
		w.run(time.Millisecond)
	}
	got := b.poll(t)
	if len(got) != 6 {
		t.Fatalf("%d receives", len(got))
	}
	for i, c := range got {
		if c.Status != 0 || c.WRID != uint64(i) || c.QPN != uint32(ys[i%3].qp.QPN()) || c.ByteLen != uint32(10+i) ||
			c.Queue != abi.QueueSharedRecv || c.WQEIndex != uint32(i) || c.QPSlot != ys[i%3].qp.Slot() {
			t.Errorf("receive %d: %+v", i, c)
		}
	}
	if n := p.block.RecvTaken(); n != 6 {
		t.Errorf("%d taken, says the ring", n)
	}
	// Empty: the sender waits by its RNR timer, and the next receive is for it.
	xs[1].postSend(sendWQE(9), xs[1].sge(0, 50))
	w.run(3 * time.Millisecond)
	if n := b.counter("out_of_buffer"); n == 0 {
		t.Error("no RNR NAK from an empty queue")
	}
	p.post(77, p.sge(0, 50))
	w.run(3 * time.Millisecond)
	if c := b.poll(t); len(c) != 1 || c[0].WRID != 77 || c[0].Status != 0 {
		t.Errorf("after RNR: %+v", c)
	}
}

// The keys in receives are those of the queue's domain, not of the queue pair's.
func TestSRQHasItsOwnDomain(t *testing.T) {
	w, a, b := newPair(t, nil)
	pd, err := b.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, 4096)
	mr, err := b.ctx.RegMR(pd, MRConfig{Region: dma.NewEmbedded(mem), Base: 0x900000, Length: 4096, Access: ib.AccessLocalWrite})
	if err != nil {
		t.Fatal(err)
	}
	p := b.newSRQ(t, 8, func(c *SRQConfig) { c.PD = pd })
	if errno(b.ctx.DeallocPD(pd)) != syscall.EBUSY {
		t.Error("a domain with a shared receive queue can be destroyed")
	}
	xs, _ := connected(t, a, b, p, 2)
	xs[0].mem[0] = 0xa5
	p.post(1, ib.SGE{Addr: 0x900000, Length: 100, LKey: mr.LKey()})
	p.post(2, p.sge(0, 100)) // the queue pair's domain
	for i, want := range []ib.WCStatus{ib.WCSuccess, ib.WCLocProtErr} {
		xs[i].postSend(sendWQE(9), xs[i].sge(0, 100))
		w.run(10 * time.Millisecond)
		if c := b.poll(t); len(c) != 1 || ib.WCStatus(c[0].Status) != want || c[0].WRID != uint64(i+1) {
			t.Errorf("receive %d: %+v, want %s", i, c, want)
		}
	}
	if mem[0] != 0xa5 {
		t.Error("nothing arrived")
	}
}

func (a *app) limitEvents() (n int) {
	for _, e := range a.take() {
		if e == (event{ib.EventSRQLimitReached, poolHandle}) {
			n++
		}
	}
	return n
}

// SRQ_LIMIT_REACHED comes once for each time that it was armed: below the limit, not at it; at once if it is so already.
func TestSRQLimit(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 8, nil)
	xs, _ := connected(t, a, b, p, 1)
	b.take()
	arm := func(limit uint32) {
		t.Helper()
		if err := b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: limit}, ib.SRQAttrLimit, nil); err != nil {
			t.Fatal(err)
		}
	}
	limit := func() uint32 {
		t.Helper()
		at, _, err := b.ctx.QuerySRQ(p.srq)
		if err != nil {
			t.Fatal(err)
		}
		return at.SRQLimit
	}
	send := func(n int) {
		for range n {
			xs[0].postSend(sendWQE(1), xs[0].sge(0, 10))
		}
		w.run(time.Millisecond)
	}
	for i := range 6 {
		p.post(uint64(i), p.sge(0, 100))
	}
	arm(4)
	send(2)
	if n := b.limitEvents(); n != 0 || limit() != 4 {
		t.Errorf("%d events with 4 of 4 left, limit %d", n, limit())
	}
	send(1)
	if n := b.limitEvents(); n != 1 || limit() != 0 {
		t.Errorf("%d events with 3 of 4 left, limit %d", n, limit())
	}
	send(1)
	if n := b.limitEvents(); n != 0 {
		t.Errorf("%d more events without an arm", n)
	}
	arm(3) // 2 are left
	if n := b.limitEvents(); n != 1 || limit() != 0 {
		t.Errorf("%d events for an arm that is late, limit %d", n, limit())
	}
	arm(2)
	if n := b.limitEvents(); n != 0 || limit() != 2 {
		t.Errorf("%d events with 2 of 2 left", n)
	}
	arm(0)
	send(2)
	if n := b.limitEvents(); n != 0 {
		t.Errorf("%d events after the limit was taken back", n)
	}
	if err := b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: 9}, ib.SRQAttrLimit, nil); errno(err) != syscall.EINVAL {
		t.Errorf("a limit of 9 of 8: %v", err)
	}
}

// resize does what an application does: it moves what was not taken to a new ring.
func (p *pool) resize(maxWR uint32, edit func()) error {
	old, raw := p.block, p.raw
	err := p.ctx.ModifySRQ(p.srq, &ib.SRQAttr{MaxWR: maxWR}, ib.SRQAttrMaxWR, func(l abi.QPLayout) ([]byte, error) {
		mem, err := p.ring(l)
		for i := p.posted - old.Layout().RecvDepth; i != p.posted; i++ {
			p.block.MoveRecv(i, old)
		}
		p.block.PublishRecv(p.posted)
		if edit != nil {
			edit()
		}
		return mem, err
	})
	if err != nil {
		p.block, p.raw = old, raw
	}
	return err
}

// A queue that is resized keeps what is posted, and does not become smaller than that (field bug B16).
func TestSRQResize(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 4, nil)
	xs, _ := connected(t, a, b, p, 1)
	next := uint64(0)
	receive := func(n int) {
		t.Helper()
		for range n {
			xs[0].postSend(sendWQE(1), xs[0].sge(0, 10))
		}
		w.run(time.Millisecond)
		for _, c := range b.poll(t) {
			if c.Status != 0 || c.WRID != next {
				t.Fatalf("completion %+v, want receive %d", c, next)
			}
			next++
			n--
		}
		if n != 0 {
			t.Fatalf("%d receives are missing", n)
		}
	}
	post := func(n int) {
		for range n {
			p.post(uint64(p.posted), p.sge(0, 100))
		}
	}
	post(3)
	receive(2)
	post(3) // 4 wait, across the end of the ring
	if err := p.resize(3, nil); errno(err) != syscall.EINVAL {
		t.Errorf("3 places for 4 that wait: %v", err)
	}
	if err := p.resize(16385, nil); errno(err) != syscall.EINVAL {
		t.Errorf("more than the device has: %v", err)
	}
	if err := p.resize(9, func() { p.block.PublishRecv(p.posted + 16) }); errno(err) != syscall.EINVAL {
		t.Errorf("a new ring that lies: %v", err)
	}
	old := slices.Clone(p.raw)
	was := p.raw
	if err := p.resize(9, nil); err != nil {
		t.Fatal(err)
	}
	if at, n, err := b.ctx.QuerySRQ(p.srq); err != nil || at != (ib.SRQAttr{MaxWR: 16, MaxSGE: 2}) || n != 4 {
		t.Errorf("%+v, %d posted, %v", at, n, err)
	}
	post(12)
	receive(10)
	if !slices.Equal(old, was) {
		t.Error("the old ring was touched after the resize")
	}
	if err := p.resize(6, nil); err != nil {
		t.Fatal(err)
	}
	receive(6)
	post(8)
	receive(8)
	if err := b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: 5}, ib.SRQAttrLimit, nil); err != nil {
		t.Fatal(err)
	}
	post(8)
	if err := p.resize(4, nil); errno(err) != syscall.EINVAL {
		t.Errorf("a size below the limit: %v", err)
	}
}

// In the error state what was taken is flushed, the rest stays for the others, and then comes QP_LAST_WQE_REACHED, once.
// A ring that lies is the end of the queue: SRQ_ERR at once, and each queue pair fails when it needs a receive, with a NAK
// for its peer. What needs none goes on.
// A malformed receive is one request's error.
func TestSRQObjects(t *testing.T) {
	_, a, b := newPair(t, nil)
	p := a.newSRQ(t, 8, nil)
	expect := func(what string, err error, want syscall.Errno) {
		t.Helper()
		if errno(err) != want || err != nil && want == 0 {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	for name, edit := range map[string]func(*SRQConfig){
		"max_wr 0":       func(c *SRQConfig) { c.MaxWR = 0 },
		"max_wr":         func(c *SRQConfig) { c.MaxWR = 16385 },
		"max_sge 0":      func(c *SRQConfig) { c.MaxSGE = 0 },
		"max_sge":        func(c *SRQConfig) { c.MaxSGE = 33 },
		"no pd":          func(c *SRQConfig) { c.PD = nil },
		"another's pd":   func(c *SRQConfig) { c.PD = b.pd },
		"no block":       func(c *SRQConfig) { c.Block = nil },
		"a short block":  func(c *SRQConfig) { c.Block = func(abi.QPLayout) ([]byte, error) { return make([]byte, 64), nil } },
		"no block after": func(c *SRQConfig) { c.Block = func(abi.QPLayout) ([]byte, error) { return nil, syscall.EINVAL } },
	} {
		cfg := SRQConfig{PD: a.pd, MaxWR: 8, MaxSGE: 2, Block: p.ring}
		edit(&cfg)
		_, err := a.ctx.CreateSRQ(cfg)
		expect(name, err, syscall.EINVAL)
	}
	attr := a.dev.Attr()
	if attr.MaxSRQ != 16384 || attr.MaxSRQWR != 16384 || attr.MaxSRQSGE != 32 || attr.DeviceCapFlags&ib.CapSRQResize == 0 {
		t.Errorf("attributes %d %d %d %s", attr.MaxSRQ, attr.MaxSRQWR, attr.MaxSRQSGE, attr.DeviceCapFlags)
	}
	expect("unknown attribute", a.ctx.ModifySRQ(p.srq, &ib.SRQAttr{}, 4, nil), syscall.EINVAL)
	expect("resize without a block", a.ctx.ModifySRQ(p.srq, &ib.SRQAttr{MaxWR: 4}, ib.SRQAttrMaxWR, nil), syscall.EINVAL)
	expect("destroy another's", b.ctx.DestroySRQ(p.srq), syscall.EINVAL)
	_, err := b.ctx.CreateQP(QPConfig{PD: b.pd, Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: p.srq, Block: p.ring})
	expect("queue pair on another's", err, syscall.EINVAL)
	x := a.newQP(t, func(c *QPConfig) { c.SRQ, c.Cap.MaxRecvWR, c.Cap.MaxRecvSGE = p.srq, 1<<30, 1<<30 })
	expect("destroy in use", a.ctx.DestroySRQ(p.srq), syscall.EBUSY)
	expect("destroy qp", a.ctx.DestroyQP(x.qp), 0)
	expect("destroy", a.ctx.DestroySRQ(p.srq), 0)
	expect("destroy again", a.ctx.DestroySRQ(p.srq), syscall.EINVAL)
	expect("modify what is gone", a.ctx.ModifySRQ(p.srq, &ib.SRQAttr{}, ib.SRQAttrLimit, nil), syscall.EINVAL)
	_, _, err = a.ctx.QuerySRQ(p.srq)
	expect("query what is gone", err, syscall.EINVAL)
	q := a.newSRQ(t, 8, nil)
	a.newQP(t, onSRQ(q))
	expect("close", a.ctx.Close(), 0)
	a.checkEmpty(t)
}

func TestSRQAllocatesNothing(t *testing.T) {
	w, a, b := newPair(t, nil)
	p := b.newSRQ(t, 8, nil)
	xs, _ := connected(t, a, b, p, 1)
	x := xs[0]
	wqe, list := sendWQE(1), []ib.SGE{x.sge(0, 20000)}
	recv, into := abi.RecvWQE{WRID: 1}, []ib.SGE{p.sge(0, 20000)}
	var c [4]abi.CQE
	if n := testing.AllocsPerRun(100, func() {
		p.block.PutRecv(p.posted, &recv, into)
		p.posted++
		p.block.PublishRecv(p.posted)
		x.block.PutSend(x.sends, &wqe, list)
		x.sends++
		x.block.PublishSend(x.sends)
		x.bell.Ring(x.qp.Slot())
		w.run(10 * time.Millisecond)
		if n, _ := x.cqr.Poll(c[:]); n != 1 || c[0].Status != 0 {
			panic("test: no completion")
		}
		if n, _ := b.cqr.Poll(c[:]); n != 1 {
			panic("test: no receive")
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// The memory of a ring that is gone ends the queue, not the context.
// An application that writes whatever it likes into the ring of its shared receive queue, and resizes and limits it
// meanwhile, harms itself at the most.
