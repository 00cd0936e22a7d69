package nic

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// handed is a packet of service op with a payload of pieces.
func handed(op wire.Opcode, local bool, payload ...wire.Piece) *wire.Packet {
	p := &wire.Packet{Opcode: op, Local: local, Header: make([]byte, op.HeaderLen())}
	p.Header[0] = byte(op)
	p.BTH().SetPSN(77)
	for _, piece := range payload {
		p.Len += piece.Len
	}
	p.Payload = payload
	return p
}

// What may change before it is looked at is copied; what may not is handed over as it is.
func TestLaneCopiesWhatMayChange(t *testing.T) {
	app := dma.NewEmbedded(bytes.Repeat([]byte{1}, 8192))
	buffer := &wire.Buffer{B: bytes.Repeat([]byte{1}, 8192)}
	piece := func(m wire.Memory, n int) wire.Piece { return wire.Piece{Mem: m, Off: 16, Len: n} }
	for _, c := range []struct {
		name   string
		p      *wire.Packet
		copied bool
	}{
		{"a reliable payload of an application", handed(wire.RCSendOnly, true, piece(app, 4096), piece(app, 100)), false},
		{"the same of XRC", handed(wire.XRCSendOnly, true, piece(app, 100)), false},
		{"an unreliable one", handed(wire.UCSendOnly, true, piece(app, 100)), true},
		{"a datagram", handed(wire.UDSendOnly, true, piece(app, 100)), true},
		{"inline data", handed(wire.RCSendOnly, true, piece(app, 8), piece(buffer, 100)), true},
		{"what came by the network", handed(wire.RCSendOnly, false, piece(buffer, 4096)), true},
		{"many pieces", handed(wire.RCSendOnly, true, slices.Repeat([]wire.Piece{piece(app, 10)}, wire.MaxPieces+1)...), true},
		{"nothing", handed(wire.RCAcknowledge, true), false},
	} {
		l := newLane(4)
		if !l.add(c.p) {
			t.Fatalf("%s: not taken", c.name)
		}
		want := make([]byte, c.p.Len)
		if err := dma.ReadPieces(want, c.p.Payload); err != nil {
			t.Fatal(err)
		}
		length := c.p.Len
		// The sender goes on: header and list are its own again, and so are buffers.
		clear(c.p.Header)
		clear(c.p.Payload)
		clear(buffer.B)
		if c.copied {
			_ = app.Write(make([]byte, 8192), 0)
		}
		if l.waits() != 1 {
			t.Fatalf("%s: %d wait", c.name, l.waits())
		}
		g := l.next()
		got := make([]byte, length)
		if g.Len != length || g.PSN() != 77 || dma.ReadPieces(got, g.Payload) != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, PSN %v, equal: %v", c.name, g.Len, g.PSN(), bytes.Equal(got, want))
		}
		l.done()
		fill := bytes.Repeat([]byte{1}, 8192)
		_ = app.Write(fill, 0)
		copy(buffer.B, fill)
	}
}

func TestLaneIsBounded(t *testing.T) {
	for _, shards := range []int{2, 4, 32} {
		l := newLane(shards)
		n := 0
		for ; l.room() > 0; n++ {
			p := handed(wire.RCAcknowledge, true)
			p.BTH().SetPSN(ib.PSN(n))
			if !l.add(p) {
				t.Fatal("room, and it does not take a packet")
			}
		}
		if n != len(l.parcels) || n < recvPackets || n > laneParcels {
			t.Errorf("%d shards: %d packets", shards, n)
		}
		if l.add(handed(wire.RCAcknowledge, true)) {
			t.Error("a packet beyond its room")
		}
		for i := range n {
			if got := l.next().PSN(); int(got) != i {
				t.Fatalf("packet %d is %v", i, got)
			}
			l.done()
		}
		if l.room() != n || l.waits() != 0 {
			t.Errorf("room for %d, %d wait", l.room(), l.waits())
		}
	}
	l := newLane(2)
	if l.add(handed(wire.UDSendOnly, false, wire.Piece{Mem: &wire.Buffer{B: make([]byte, 5000)}, Len: parcelBody + 1})) {
		t.Error("a payload beyond the largest path MTU")
	}
}

// Lanes have memory for copies only when one is to be made, and then all that they need.
func TestLaneBodies(t *testing.T) {
	l := newLane(32)
	app, buffer := dma.NewEmbedded(make([]byte, 8)), &wire.Buffer{B: make([]byte, 8)}
	put := func(m wire.Memory) {
		p := handed(wire.RCSendOnly, true, wire.Piece{Mem: m, Len: 8})
		for range 2 * len(l.parcels) {
			if !l.add(p) {
				t.Fatal("not taken")
			}
			l.done()
		}
	}
	if put(app); l.bodies != nil {
		t.Error("memory for copies of what stays where it is")
	}
	put(buffer)
	p := handed(wire.RCSendOnly, true, wire.Piece{Mem: buffer, Len: 8})
	if n := testing.AllocsPerRun(2*len(l.parcels), func() { l.add(p); l.done() }); n != 0 {
		t.Errorf("a copy costs %v allocations", n)
	}
}

// newLoops makes a device of several shards, the port of each of which brings back what it sends. So whatever goes from one
// shard to another arrives at the wrong one.
func newLoops(t testing.TB, shards int, edit func(*Config)) (*world, *host) {
	t.Helper()
	h := newHost(t, "softnic0", "127.0.0.1", newCable(512), func(c *Config) {
		for range shards {
			c.Ports = append(c.Ports, newCable(512))
		}
		c.Port = nil
		if edit != nil {
			edit(c)
		}
	})
	return &world{devs: []*Device{h.dev}}, h
}

// A queue pair of each shard talks to one of each other, and itself.
func TestHandover(t *testing.T) {
	for _, shards := range []int{2, 3, 4} {
		w, h := newLoops(t, shards, nil)
		pairs, used := shards*shards, map[int]bool{}
		for i := range pairs {
			x, y := h.newQP(t, nil), h.newQP(t, nil)
			if i%shards == 0 {
				h.newQP(t, nil) // the next pair is of other shards
			}
			x.connect(t, y)
			y.connect(t, x)
			used[x.qp.Shard()] = true
			if got := ShardOf(x.qp.QPN(), shards); got != x.qp.Shard() {
				t.Errorf("queue pair %v of shard %d has a number of %d", x.qp.QPN(), x.qp.Shard(), got)
			}
			exchange(t, w, x, y)
		}
		if len(used) != shards {
			t.Errorf("shards %v", used)
		}
		if n := h.counter("rx_shard_handovers"); n == 0 {
			t.Error("nothing was handed over")
		}
		if n := h.counter("rx_shard_handover_drops"); n != 0 {
			t.Errorf("%d packets were lost", n)
		}
		h.dev.Close()
		h.checkEmpty(t)
	}
}

func TestHandoverAllocatesNothing(t *testing.T) {
	w, h := newLoops(t, 2, nil)
	x, y := h.newQP(t, nil), h.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	if x.qp.Shard() == y.qp.Shard() {
		t.Fatal("one shard")
	}
	wqe := sendWQE(1)
	wqe.Opcode, wqe.RKey, wqe.RemoteAddr = uint8(ib.WRRDMAWrite), uint32(y.mr.RKey()), 0x10000
	list := []ib.SGE{x.sge(1<<20, 20000)}
	var c [16]abi.CQE
	if n := testing.AllocsPerRun(100, func() {
		x.block.PutSend(x.sends, &wqe, list)
		x.sends++
		x.block.PublishSend(x.sends)
		x.bell.Ring(x.qp.Slot())
		w.run(10 * time.Millisecond)
		if n, _ := x.cqr.Poll(c[:]); n != 1 || c[0].Status != 0 {
			panic("test: no completion")
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// A shard leaves its port alone while another has no room, and nothing is lost; but who waits for a grace point does not
// wait for that for ever.
func TestShardWithoutRoom(t *testing.T) {
	for _, grace := range []bool{false, true} {
		w, h := newLoops(t, 2, func(c *Config) { c.Limits.AckFloor = time.Hour })
		s, other := h.dev.shards[0], h.dev.shards[1]
		x, y := h.newQP(t, nil), h.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		if x.qp.Shard() != 0 || y.qp.Shard() != 1 {
			t.Fatalf("shards %d and %d", x.qp.Shard(), y.qp.Shard())
		}
		lane := s.roads.to[1]
		for lane.room() > 0 {
			lane.add(handed(wire.RCAcknowledge, true)) // for nobody
		}
		w.now = w.now.Add(time.Second)
		x.postSend(abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(y.mr.RKey()),
			RemoteAddr: 0x10000}, x.sge(0, 5000))
		for range 3 {
			if _, busy := s.step(w.now); !busy {
				t.Fatal("it may sleep, with packets at its port")
			}
		}
		if !s.roads.stalled || s.roads.spilt.Load() != 0 {
			t.Fatalf("stalled %v, %d lost", s.roads.stalled, s.roads.spilt.Load())
		}
		if grace {
			s.do(s.quiesce)
			if s.roads.spilt.Load() == 0 || s.roads.insist {
				t.Errorf("%d lost at a grace point", s.roads.spilt.Load())
			}
			continue
		}
		other.step(w.now)
		w.run(time.Millisecond)
		if all := h.poll(t); len(all) != 1 || all[0].Status != 0 {
			t.Errorf("completions %+v", all)
		}
		if s.roads.spilt.Load() != 0 {
			t.Errorf("%d lost", s.roads.spilt.Load())
		}
	}
}

// Behind a grace point the lanes hold nothing older, whatever was at a port, in a burst or in a lane before.
func TestGraceEmptiesLanes(t *testing.T) {
	w, h := newLoops(t, 2, nil)
	x, y := h.newQP(t, nil), h.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	for _, e := range []*endpoint{x, y} {
		s, other := e.qp.shard, x.qp.shard
		if e == x {
			other = y.qp.shard
		}
		if s == other {
			t.Fatal("one shard")
		}
		w.now = w.now.Add(time.Millisecond)
		e.postSend(abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(e.mr.RKey()),
			RemoteAddr: 0x10000}, e.sge(0, 5000))
		s.step(w.now) // it has sent, and nobody has received
		h.dev.Grace()
		if !s.vacant() || !other.vacant() {
			t.Errorf("something is on its way from shard %d", s.index)
		}
		if n := s.roads.handed.Load(); n == 0 {
			t.Errorf("shard %d has handed over %d packets", s.index, n)
		}
		w.run(time.Millisecond)
		if all := h.poll(t); len(all) != 1 || all[0].Status != 0 {
			t.Errorf("completions %+v", all)
		}
	}
}

// A context that fails on one shard fails on all.
func TestContextFailsOnAllShards(t *testing.T) {
	const shards = 4
	w, h := newLoops(t, shards, nil)
	h.dev.newEngine = func(q *QP) transport.Engine { return &shaky{Engine: h.dev.newRC(q)} }
	var all []*endpoint
	for range 2 * shards {
		x, y := h.newQP(t, nil), h.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		all = append(all, x, y)
	}
	for _, e := range []*endpoint{all[0], all[2]} {
		shake(e, "Transmit")
		e.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend)})
	}
	w.run(time.Second)
	if got := h.take(); !slices.Contains(got, event{ib.EventDeviceFatal, 0}) {
		t.Errorf("events %v", got)
	}
	for i, e := range all {
		if !e.qp.dead || e.block.State() != ib.StateErr {
			t.Errorf("queue pair %d of shard %d: dead %v, state %v", i, e.qp.Shard(), e.qp.dead, e.block.State())
		}
	}
	if _, err := h.ctx.AllocPD(); errno(err) != syscall.EIO {
		t.Errorf("alloc pd: %v", err)
	}
	h.dev.Close()
	h.checkEmpty(t)
}

// A completion queue that overruns takes its queue pairs on all shards with it, and tells once.
func TestOverrunOnAllShards(t *testing.T) {
	const shards = 4
	w, h := newLoops(t, shards, nil)
	small, _ := h.newCQ(t, 64)
	var all []*endpoint
	for range shards {
		x, y := h.newQP(t, func(c *QPConfig) { c.SendCQ = small }), h.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		h.newQP(t, nil) // an odd number, so that the next pair lies on other shards
		all = append(all, x)
	}
	used := map[int]bool{}
	for range 3 {
		for _, x := range all {
			used[x.qp.Shard()] = true
			for range 10 {
				x.postSend(abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(x.mr.RKey()), RemoteAddr: 0x10000}, x.sge(0, 8))
			}
		}
		w.run(time.Millisecond)
	}
	if len(used) < 2 {
		t.Fatalf("shards %v", used)
	}
	events := h.take()
	count := func(want ib.EventType) (n int) {
		for _, e := range events {
			if e.typ == want {
				n++
			}
		}
		return n
	}
	if count(ib.EventCQErr) != 1 || count(ib.EventQPFatal) != len(all) {
		t.Errorf("events %v", events)
	}
	for _, x := range all {
		if x.qp.state != ib.StateErr {
			t.Errorf("queue pair of shard %d: %v", x.qp.Shard(), x.qp.state)
		}
	}
}

// An event that is held back is in the list of one shard, whichever posts; and it comes although that one drops it while
// another holds it back again.
func TestHeldEventHasOneShard(t *testing.T) {
	w, h := newLoops(t, 2, nil)
	s, o := h.dev.shards[0], h.dev.shards[1]
	s.noteHeld(h.cq)
	o.noteHeld(h.cq)
	if len(s.held) != 1 || len(o.held) != 0 {
		t.Fatalf("%d and %d held", len(s.held), len(o.held))
	}
	o.dropHeld(h.cq) // not his
	w.run(time.Millisecond)
	if len(s.held) != 0 || h.cq.held.Load() != nil {
		t.Error("nothing is held back, and it is still in the list")
	}
	o.noteHeld(h.cq)
	if len(o.held) != 1 {
		t.Error("another shard cannot hold it")
	}
}

func TestShardsAreBounded(t *testing.T) {
	ports := make([]Port, abi.MaxShards+1)
	for i := range ports {
		ports[i] = newCable(1)
	}
	if _, err := New(Config{Ports: ports, Limits: smallLimits(), Manual: true}); errno(err) != syscall.EINVAL {
		t.Errorf("%d shards: %v", len(ports), err)
	}
	if _, err := New(Config{Limits: smallLimits(), Manual: true}); errno(err) != syscall.EINVAL {
		t.Errorf("no port: %v", err)
	}
}

// A panic in the copying of a packet is that of the queue pair that it is for.
func TestPanicOfAHandover(t *testing.T) {
	w, h := newLoops(t, 2, nil)
	x, y := h.newQP(t, nil), h.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	for _, to := range []ib.QPN{y.qp.QPN(), y.qp.QPN() + 2} { // the other is nobody's
		p := handed(wire.RCSendOnly, false, wire.Piece{Mem: brittle{}, Len: 8})
		p.BTH().SetDestQP(to)
		x.qp.shard.hand(p, 1)
	}
	w.run(time.Millisecond)
	if got, want := h.take(), []event{{ib.EventQPFatal, 7}}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if y.block.State() != ib.StateErr || x.block.State() != ib.StateRTS {
		t.Errorf("states %v and %v", x.block.State(), y.block.State())
	}
	if n := h.counter("rx_shard_handover_drops"); n != 2 {
		t.Errorf("%d packets were lost", n)
	}
	if !strings.Contains(h.log.String(), "handing over") {
		t.Errorf("log %q", h.log.String())
	}
}

// brittle is memory over which the device falls.
type brittle struct{}

func (brittle) Bytes(uint64, int) []byte   { panic("a mistake in the device") }
func (brittle) Read([]byte, uint64) error  { panic("a mistake in the device") }
func (brittle) Write([]byte, uint64) error { panic("a mistake in the device") }
