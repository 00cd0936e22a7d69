package nic

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// cable is a port in memory: frames become datagrams, which the port at the other end parses. It holds a fixed number and
// is congested when that is reached.
type cable struct {
	peer     *cable
	counters PortCounters
	fd       int // readable when something waits; -1 without

	mu      sync.Mutex
	slots   []datagram // ring
	first   int
	waiting int
	given   int // slots that the last Recv handed out

	stuck bool  // take nothing
	err   error // fail

	closed, late atomic.Bool // and used after that
}

type datagram struct {
	b    []byte
	path *wire.Path
}

func newCable(slots int) *cable {
	c := &cable{slots: make([]datagram, slots), fd: -1}
	c.peer = c
	for i := range c.slots {
		c.slots[i].b = make([]byte, 0, 4300)
	}
	return c
}

func newCables(slots int) (a, b *cable) {
	a, b = newCable(slots), newCable(slots)
	a.peer, b.peer = b, a
	return a, b
}

func (c *cable) Send(_ clock.Time, frames []wire.Frame) (int, error) {
	c.late.Store(c.late.Load() || c.closed.Load())
	if c.err != nil {
		return 0, c.err
	}
	p := c.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range frames {
		if c.stuck || p.waiting+p.given == len(p.slots) {
			return i, nil
		}
		d := &p.slots[(p.first+p.given+p.waiting)%len(p.slots)]
		b, err := frames[i].AppendTo(d.b[:0], 0)
		if err != nil {
			return i, &FrameFault{err}
		}
		d.b, d.path = b, frames[i].Path
		p.waiting++
		c.counters.SentPackets.Add(1)
		c.counters.SentBytes.Add(uint64(len(b)))
	}
	if p.fd >= 0 {
		_, _ = unix.Write(p.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	return len(frames), nil
}

func (c *cable) Recv(_ clock.Time, packets []wire.Packet) (n int) {
	c.late.Store(c.late.Load() || c.closed.Load())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = (c.first + c.given) % len(c.slots)
	c.given = 0
	if c.waiting == 0 && c.fd >= 0 {
		var b [8]byte
		_, _ = unix.Read(c.fd, b[:])
	}
	for n < len(packets) && c.waiting > 0 {
		d := &c.slots[(c.first+c.given)%len(c.slots)]
		c.given++
		c.waiting--
		c.counters.ReceivedPackets.Add(1)
		c.counters.ReceivedBytes.Add(uint64(len(d.b)))
		if drop := wire.Parse(&packets[n], &wire.Datagram{Bytes: d.b, Source: d.path.Source, Dest: d.path.Dest,
			SourcePort: d.path.SourcePort, TrafficClass: d.path.TrafficClass, HopLimit: d.path.HopLimit, IDKnown: true,
		}); drop != wire.Accepted {
			c.counters.Dropped[drop].Add(1)
			continue
		}
		n++
	}
	return n
}

// drop loses the newest packets that wait.
func (c *cable) drop(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting -= n
}

func (c *cable) Descriptor() int         { return c.fd }
func (c *cable) Counters() *PortCounters { return &c.counters }
func (c *cable) Close() error            { c.closed.Store(true); return nil }

// smallLimits make tables that are quickly made.
func smallLimits() Limits {
	return Limits{MaxQP: 2048, MaxMR: 64, AckFloor: -1}
}

type event struct {
	typ    ib.EventType
	handle uint32
}

// host is a device and one application on it.
type host struct {
	t    testing.TB
	dev  *Device
	port *cable
	log  bytes.Buffer
	app
}

// app is what an application has.
type app struct {
	ctx  *Context
	bell *abi.Doorbell
	page []byte
	pd   *PD
	cq   *CQ
	cqr  *cq.Reader
	mem  []byte
	mr   *MR
	addr string

	mu     sync.Mutex
	events []event
}

func newHost(t testing.TB, name, addr string, port *cable, edit func(*Config)) *host {
	t.Helper()
	h := &host{t: t, port: port}
	cfg := Config{
		Name:   name,
		Port:   port,
		Random: rand.NewChaCha8([32]byte{byte(len(addr)), addr[len(addr)-1]}),
		Limits: smallLimits(),
		Link:   Link{Name: "test0", Index: 7, MTU: 9000, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Up: true, Addrs: addrs(addr)},
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)),
		Manual: true,
	}
	if edit != nil {
		edit(&cfg)
	}
	dev, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.dev = dev
	h.app.open(t, dev, ContextConfig{Tenant: 1000, Owner: true}, addr)
	return h
}

const appMemory = 4 << 20

func (a *app) open(t testing.TB, dev *Device, cfg ContextConfig, addr string) {
	t.Helper()
	a.addr = addr
	a.page = make([]byte, abi.DoorbellSize)
	var err error
	if a.bell, err = abi.NewDoorbell(a.page); err != nil {
		t.Fatal(err)
	}
	cfg.Doorbell = a.page
	cfg.Async = func(typ ib.EventType, handle uint32, _ uint64) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, event{typ, handle})
	}
	if a.ctx, err = dev.OpenContext(cfg); err != nil {
		t.Fatal(err)
	}
	if a.pd, err = a.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	a.cq, a.cqr = a.newCQ(t, 1024)
	a.mem = make([]byte, appMemory)
	if a.mr, err = a.ctx.RegMR(a.pd, MRConfig{
		Region: dma.NewEmbedded(a.mem), Base: 0x10000, Length: appMemory,
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic,
	}); err != nil {
		t.Fatal(err)
	}
}

func (a *app) newCQ(t testing.TB, entries uint32) (*CQ, *cq.Reader) {
	t.Helper()
	block := make([]byte, abi.CQBlockSize(abi.CQCapacity(entries)))
	q, err := a.ctx.CreateCQ(CQConfig{Block: block, Entries: entries, Handle: 99})
	if err != nil {
		t.Fatal(err)
	}
	r, err := cq.NewReader(block, q.Capacity())
	if err != nil {
		t.Fatal(err)
	}
	return q, r
}

func (a *app) take() []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.events
	a.events = nil
	return e
}

// endpoint is a queue pair as its application sees it.
type endpoint struct {
	*app
	qp           *QP
	block        *abi.QPBlock
	raw          []byte
	sends, recvs uint32
}

var testCap = ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 128}

func (a *app) newQP(t testing.TB, edit func(*QPConfig)) *endpoint {
	t.Helper()
	e := &endpoint{app: a}
	cfg := QPConfig{PD: a.pd, Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: testCap, Handle: 7,
		Block: func(l abi.QPLayout) ([]byte, error) {
			b := make([]byte, l.Size())
			var err error
			e.block, err = abi.NewQPBlock(b, l)
			e.raw = b
			return b, err
		}}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if e.qp, err = a.ctx.CreateQP(cfg); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *endpoint) modify(t testing.TB, a ib.QPAttr, mask ib.QPAttrMask) {
	t.Helper()
	if err := e.ctx.ModifyQP(e.qp, &a, mask); err != nil {
		t.Fatal(err)
	}
}

const (
	initMask = ib.QPAttrState | ib.QPAttrPort | ib.QPAttrPKeyIndex | ib.QPAttrAccessFlags
	rtrMask  = ib.QPAttrState | ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN |
		ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer
	rtsMask = ib.QPAttrState | ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrSQPSN | ib.QPAttrMaxRDAtomic
)

func initAttr() ib.QPAttr {
	return ib.QPAttr{State: ib.StateInit, PortNum: 1,
		AccessFlags: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic}
}

func rtrAttr(peer string, qpn ib.QPN) ib.QPAttr {
	return ib.QPAttr{State: ib.StateRTR, AH: av(peer, 0), PathMTU: ib.MTU4096, DestQPN: qpn, RQPSN: 0xfffff0,
		MaxDestRDAtomic: 16, MinRNRTimer: 12}
}

func rtsAttr() ib.QPAttr {
	return ib.QPAttr{State: ib.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: 0xfffff0, MaxRDAtomic: 16}
}

func (e *endpoint) connect(t testing.TB, peer *endpoint) {
	t.Helper()
	e.modify(t, initAttr(), initMask)
	e.modify(t, rtrAttr(peer.addr, peer.qp.QPN()), rtrMask)
	e.modify(t, rtsAttr(), rtsMask)
}

func (e *endpoint) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: 0x10000 + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

func (e *endpoint) postSend(w abi.SendWQE, list ...ib.SGE) {
	if !e.block.PutSend(e.sends, &w, list) {
		panic("test: a send that does not fit")
	}
	e.sends++
	e.block.PublishSend(e.sends)
	e.bell.Ring(e.qp.Slot())
}

func (e *endpoint) postRecv(id uint64, list ...ib.SGE) {
	if !e.block.PutRecv(e.recvs, &abi.RecvWQE{WRID: id}, list) {
		panic("test: a receive that does not fit")
	}
	e.recvs++
	e.block.PublishRecv(e.recvs)
	e.bell.Ring(e.qp.Slot())
}

func (a *app) poll(t testing.TB) (all []abi.CQE) {
	t.Helper()
	var some [16]abi.CQE
	for {
		n, err := a.cqr.Poll(some[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return all
		}
		all = append(all, some[:n]...)
	}
}

// world turns manual devices in virtual time.
type world struct {
	now  clock.Time
	devs []*Device
}

// run turns the devices for a time.
func (w *world) run(limit time.Duration) {
	end := w.now.Add(limit)
	for {
		next, busy := clock.Never, false
		for _, d := range w.devs {
			n, b := d.Step(w.now)
			next, busy = min(next, n), busy || b
		}
		if busy {
			continue
		}
		if next > end {
			w.now = end
			return
		}
		w.now = max(next, w.now+1)
	}
}

func newPair(t testing.TB, edit func(*Config)) (w *world, a, b *host) {
	t.Helper()
	pa, pb := newCables(512)
	a = newHost(t, "softnic0", "10.0.0.1", pa, edit)
	b = newHost(t, "softnic1", "10.0.0.2", pb, edit)
	return &world{devs: []*Device{a.dev, b.dev}}, a, b
}

func (h *host) counter(name string) uint64 {
	h.t.Helper()
	for _, c := range h.dev.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	h.t.Fatalf("no counter %s", name)
	return 0
}

func (h *host) checkEmpty(t testing.TB) {
	t.Helper()
	if g := h.dev.ledger; g.used != ([numResources]uint64{}) || len(g.tenants) != 0 {
		t.Errorf("%s: charges left: %v", h.dev.Name(), g.used)
	}
	s := h.dev.shards[0]
	if s.table.live != 0 || s.sched.ready != 0 || s.timers.n != 0 || len(s.parts) != 0 || len(s.tenants) != 0 {
		t.Errorf("%s: left in the shard: %d numbers, %d ready, %d timers, %d contexts, %d tenants", h.dev.Name(),
			s.table.live, s.sched.ready, s.timers.n, len(s.parts), len(s.tenants))
	}
	for _, q := range s.table.slots {
		if q != nil {
			t.Errorf("%s: queue pair %s can still be found", h.dev.Name(), q.qpn)
		}
	}
	if n := h.dev.keys.Len(); n != 0 {
		t.Errorf("%s: %d keys left", h.dev.Name(), n)
	}
}

// registered registers mem at 0x900000.
func (a *app) registered(t testing.TB, mem []byte) *MR {
	t.Helper()
	mr, err := a.ctx.RegMR(a.pd, MRConfig{Region: dma.NewShared(mem, nil), Base: 0x900000, Length: uint64(len(mem)),
		Access: ib.AccessLocalWrite | ib.AccessRemoteRead | ib.AccessRemoteWrite})
	if err != nil {
		t.Fatal(err)
	}
	return mr
}

func sendWQE(id uint64) abi.SendWQE {
	return abi.SendWQE{WRID: id, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}
}

// exchange sends a message from x to y, which are connected, and checks that it arrived.
func exchange(t testing.TB, w *world, x, y *endpoint) {
	t.Helper()
	for i := range x.mem[:5000] {
		x.mem[i] = byte(i*11 + int(x.sends))
	}
	y.postRecv(21, y.sge(1<<20, 5000))
	x.postSend(sendWQE(20), x.sge(0, 5000))
	w.run(time.Second)
	sent, received := 0, 0
	all := x.poll(t)
	if x.app != y.app {
		all = append(all, y.poll(t)...)
	}
	for _, c := range all {
		switch {
		case c.Status != 0:
			t.Errorf("completion %+v", c)
		case c.WRID == 20:
			sent++
		case c.WRID == 21:
			received++
		}
	}
	if sent != 1 || received != 1 || !bytes.Equal(y.mem[1<<20:1<<20+5000], x.mem[:5000]) {
		t.Errorf("%d sent, %d received, bytes equal: %v", sent, received, bytes.Equal(y.mem[1<<20:1<<20+5000], x.mem[:5000]))
	}
}
