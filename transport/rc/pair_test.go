package rc

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// pair is two engines and a network between them that loses, repeats and reorders. A model executes the requests of a in
// the order of posting; memory, receives and results have to agree with it (field bug B22 and its kind).
type pair struct {
	t      *testing.T
	rand   *rand.Rand
	a, b   *script
	flying []flight
	loss   int // percent
	late   int // percent of packets that are delayed beyond others
	// A READ whose response was lost is executed again, and may then see a WRITE posted behind it (IBA 10.8.3.3). Either
	// WRITEs are fenced, or they stay clear of what is read.
	fenced bool
	bound  transport.InFlight // of both sides
	runs   *rand.Rand         // the network takes runs, and this decides which are lost in part
	whole  int                // runs that were taken as a whole

	target  []byte   // what b's first 64 KiB are to be
	counter uint64   // what the atomics' 8 bytes are to be
	expect  []func() // checks of a's requests, in order of posting
	word    uint64   // what the 8 bytes of ATOMIC WRITEs are to be
	sends   []letter // messages that b is to receive
}

// letter is a message, or a WRITE with immediate, and the window of b whose key it gives back.
type letter struct {
	data   []byte // nil for a WRITE
	window *dma.Window
}

type flight struct {
	due clock.Time
	to  *script
	p   sentPacket
}

const (
	counterAt = 1 << 15 // of the atomics, in b's memory; WRITEs stay below
	wordAt    = counterAt + 8
	recvAt    = 1 << 16
	slotSize  = 4096
	slots     = 8
)

func newPair(t *testing.T, seed uint64) *pair {
	r := rand.New(rand.NewPCG(seed, 1))
	mtu := []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024}[r.IntN(3)]
	choose := func(from, to ib.PSN) func(*setup) {
		return func(c *setup) {
			c.attr.PathMTU, c.attr.SQPSN, c.attr.RQPSN = mtu, from, to
			c.attr.Timeout, c.attr.MinRNRTimer = 8, uint8(1+r.IntN(6))
			c.cfg.Limits.Window, c.cfg.Limits.AckEvery = 1+r.IntN(40), 1+r.IntN(8)
			c.attr.MaxRDAtomic, c.attr.MaxDestRDAtomic = 3, 3
		}
	}
	x, y := ib.NewPSN(0xfffff0+r.Uint32N(64)), ib.NewPSN(r.Uint32())
	p := &pair{t: t, rand: r, a: newScript(t, choose(x, y)), b: newScript(t, choose(y, x)), loss: r.IntN(9), late: r.IntN(20)}
	p.fenced = r.IntN(2) == 0
	extra := rand.New(rand.NewPCG(seed, 2))
	if extra.IntN(2) == 0 {
		p.bound.Limit = 1 + extra.IntN(8000)
	}
	for _, s := range []*script{p.a, p.b} {
		s.e.cfg.Outstanding.Enter(&p.bound)
		if extra.IntN(3) == 0 {
			s.e.SetRate(1e7 * uint64(1+extra.IntN(100)))
		}
		if extra.IntN(2) == 0 {
			s.e.cfg.Limits.Probe = time.Duration(1+extra.IntN(300)) * us
		}
	}
	if r := rand.New(rand.NewPCG(seed, 3)); r.IntN(2) == 0 {
		p.runs = r
		for _, s := range []*script{p.a, p.b} {
			s.path = runsPath
			s.e.path = runsPath
		}
	}
	p.a.budget = 600 + r.IntN(20000)
	p.target = append([]byte(nil), p.b.memory[:counterAt]...)
	p.counter = binary.NativeEndian.Uint64(p.b.memory[counterAt:])
	p.word = binary.NativeEndian.Uint64(p.b.memory[wordAt:])
	return p
}

// pour hands what a side has sent to the network.
func (p *pair) pour(from, to *script) {
	from.transmit()
	for _, f := range p.single(from.sent[from.seen:]) {
		for copies := 1 + p.rand.IntN(50)/49; copies > 0; copies-- {
			if p.rand.IntN(100) < p.loss {
				continue
			}
			due := from.now.Add(5 * us)
			if p.rand.IntN(100) < p.late {
				due = due.Add(time.Duration(p.rand.IntN(200)) * us)
			}
			p.flying = append(p.flying, flight{due, to, f})
		}
	}
	from.sent, from.seen = from.sent[:0], 0
}

// single takes some runs apart.
func (p *pair) single(sent []sentPacket) []sentPacket {
	if p.runs == nil {
		return sent
	}
	var all []sentPacket
	for _, f := range sent {
		if f.run == 1 || p.runs.IntN(2) == 0 {
			all = append(all, f)
			continue
		}
		var run wire.Packet
		f.make(&run)
		for i := range f.run {
			s := new(wire.Single).Of(&run, i)
			n := len(f.data) / f.run
			all = append(all, sentPacket{when: f.when, head: s.Header, data: f.data[i*n : (i+1)*n], run: 1})
		}
	}
	return all
}

// make makes the packet that is received.
func (p *sentPacket) make(to *wire.Packet) {
	to.Opcode, to.Header = p.bth().Opcode(), append([]byte(nil), p.head...)
	to.SetPayload(p.data)
	to.SetRun(p.run)
}

// step goes to the next thing that happens, and reports whether anything does.
func (p *pair) step() bool {
	p.pour(p.a, p.b)
	p.pour(p.b, p.a)
	slices.SortStableFunc(p.flying, func(x, y flight) int { return int(x.due - y.due) })
	next := min(p.a.e.Deadline(), p.b.e.Deadline())
	if len(p.flying) > 0 && p.flying[0].due <= next {
		f := p.flying[0]
		p.flying = p.flying[1:]
		p.a.now, p.b.now = f.due, f.due
		var made wire.Packet
		f.p.make(&made)
		if f.to.take(&made) && f.p.run > 1 {
			p.whole++
		}
		return true
	}
	if next == clock.Never {
		return false
	}
	p.a.now, p.b.now = next, next
	p.a.e.Expire(next)
	p.b.e.Expire(next)
	return true
}

// post posts one request at random and tells the model.
func (p *pair) post(i int) {
	n := p.rand.IntN(slotSize)
	if p.rand.IntN(4) == 0 {
		n = p.rand.IntN(4)
	}
	from, at := p.rand.IntN(1<<15-slotSize), p.rand.IntN(counterAt-slotSize)
	data := pattern(from, n)
	place := 1<<16 + i%slots*slotSize // where answers go
	list := []ib.SGE{sge(uint64(from), uint32(n))}
	if n > 2 {
		cut := 1 + p.rand.IntN(n-1)
		list = []ib.SGE{sge(uint64(from), uint32(cut)), {}, sge(uint64(from+cut), uint32(n-cut))}
	}
	r := transport.Request{Flags: ib.SendSignaled, SGE: list, RKey: p.b.mr.RKey, Remote: base + uint64(at)}
	if p.rand.IntN(5) == 0 {
		r.Flags |= ib.SendFence
	}
	op := p.rand.IntN(10)
	writes := op == 1 || op == 2 || op == 3
	switch {
	case writes && p.fenced:
		r.Flags |= ib.SendFence
	case !p.fenced && (writes || op == 4):
		at %= counterAt/2 - slotSize
		if writes {
			at += counterAt / 2
		}
		r.Remote = base + uint64(at)
	}
	check := func() {}
	switch op {
	case 0:
		r.Opcode = ib.WRSend
		p.sends = append(p.sends, letter{data: data})
	case 1:
		r.Opcode, r.Imm = ib.WRRDMAWriteWithImm, uint32(i)
		copy(p.target[at:], data)
		p.sends = append(p.sends, letter{})
	case 2, 3:
		r.Opcode = ib.WRRDMAWrite
		copy(p.target[at:], data)
	case 4:
		r.Opcode = ib.WRRDMARead
		r.SGE = []ib.SGE{sge(uint64(place), uint32(n/3)), sge(uint64(place+n/3), uint32(n-n/3))}
		want := append([]byte(nil), p.target[at:at+n]...)
		check = func() {
			if !bytes.Equal(p.a.memory[place:place+n], want) {
				p.t.Errorf("READ %d brought something else", i)
			}
		}
	case 5:
		r.Opcode, r.Swap, r.Remote = ib.WRAtomicFetchAdd, p.rand.Uint64(), base+counterAt
		r.SGE = []ib.SGE{sge(uint64(place), 8)}
		want := p.counter
		p.counter += r.Swap
		if p.rand.IntN(2) == 0 {
			r.Opcode, r.Compare = ib.WRAtomicCmpAndSwp, want
			p.counter = r.Swap
		}
		check = func() {
			if got := binary.NativeEndian.Uint64(p.a.memory[place:]); got != want {
				p.t.Errorf("atomic %d returned %#x, want %#x", i, got, want)
			}
		}
	case 6:
		p.word = p.rand.Uint64()
		r.Opcode, r.Swap, r.SGE, r.Remote = ib.WRAtomicWrite, p.word, nil, base+wordAt
	case 7:
		r.Opcode, r.SGE, r.Length, r.Flush.Placement = ib.WRFlush, nil, uint64(n), ib.FlushGlobal
	case 8:
		w := p.lend()
		r.Opcode, r.Imm = ib.WRSendWithInv, uint32(w.RKey())
		p.sends = append(p.sends, letter{data, w})
	case 9:
		// Bound twice or invalidated twice would be an error.
		bind := p.a.bind(7, uint64(from), uint64(n)+1)
		bind.Flags = r.Flags
		bind.RKey = bind.RKey&^ib.KeyVariant | ib.RKey(i)&ib.KeyVariant
		p.a.post(bind)
		p.expect = append(p.expect, check)
		r = localInv(bind.RKey)
	}
	p.a.post(r)
	p.expect = append(p.expect, check)
}

// lend binds a window of b's, for a to give back.
func (p *pair) lend() *dma.Window {
	w := &dma.Window{Domain: p.b.pd, Type: ib.MWType2}
	if err := p.b.table.InsertWindow(w); err != nil {
		p.t.Fatal(err)
	}
	b := dma.Bind{Key: w.RKey(), LKey: p.b.mr.LKey, Addr: base, Length: 8, Access: ib.AccessRemoteRead}
	if v := p.b.table.Bind(p.b.pd, localQPN, &b); v != dma.OK {
		p.t.Fatal(v)
	}
	return w
}

// back says that the receive which gave w back says so, and that the key is dead.
func (p *pair) back(c *completed, w *dma.Window) {
	if c.detail.Flags != ib.WCWithInv || ib.RKey(c.detail.Imm) != w.RKey() {
		p.t.Fatalf("receive %d: %+v, want the key %#x back", c.wrid, c.detail, uint32(w.RKey()))
	}
	if v := p.b.table.Usable(p.b.pd, localQPN, w.RKey(), 0); v != dma.BadKey {
		p.t.Fatalf("receive %d: the key can still be used: %v", c.wrid, v)
	}
	p.b.table.RemoveWindow(w)
}

// collect checks what has completed, and lets the receiver post more, but not always.
func (p *pair) collect() {
	for _, c := range p.a.qp.sendDone {
		if c.status != ib.WCSuccess {
			p.t.Fatalf("send %d ended with %d", c.wrid, c.status)
		}
		p.expect[0]()
		p.expect = p.expect[1:]
	}
	p.a.qp.sendDone = nil
	for _, c := range p.b.qp.recvDone {
		if c.status != ib.WCSuccess || len(p.sends) == 0 {
			p.t.Fatalf("receive %d ended with %d", c.wrid, c.status)
		}
		want := p.sends[0]
		p.sends = p.sends[1:]
		at, data := recvAt+int(c.wrid-1001)%slots*slotSize, want.data
		if data != nil && (int(c.detail.ByteLen) != len(data) || !bytes.Equal(p.b.memory[at:at+len(data)], data)) {
			p.t.Fatalf("receive %d holds something else", c.wrid)
		}
		if want.window != nil {
			p.back(&c, want.window)
		}
	}
	p.b.qp.recvDone = nil
	for int(p.b.qp.postedRecvs-p.b.qp.endedRecvs) < slots-1 && p.rand.IntN(3) == 0 {
		p.b.postRecv(recvAt+uint64(p.b.qp.postedRecvs)%slots*slotSize, slotSize)
	}
}

var pairSeeds = flag.Int("pair.seeds", 150, "how many bad networks TestPairOverABadNetwork tries")

// Field bugs B1 and B22: two engines over a bad network: everything happens once, in order, with the right bytes.
func TestPairOverABadNetwork(t *testing.T) {
	whole := 0
	for seed := range *pairSeeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p := newPair(t, uint64(seed))
			const requests = 60
			posted, steps := 0, 0
			for done := false; !done; steps++ {
				if steps > 200000 {
					t.Fatalf("no end: %d requests open", len(p.expect))
				}
				for posted < requests && len(p.expect) < slots && p.rand.IntN(4) == 0 {
					p.post(posted)
					posted++
				}
				happened := p.step()
				p.collect()
				done = posted == requests && len(p.expect) == 0 && len(p.flying) == 0 && !happened
			}
			if len(p.sends) != 0 || !bytes.Equal(p.b.memory[:counterAt], p.target) ||
				binary.NativeEndian.Uint64(p.b.memory[counterAt:]) != p.counter ||
				binary.NativeEndian.Uint64(p.b.memory[wordAt:]) != p.word {
				t.Fatal("the memories differ")
			}
			if n := p.bound.Used(); n != 0 {
				t.Fatalf("%d bytes count as outstanding at the end", n)
			}
			whole += p.whole
		})
	}
	if *pairSeeds > 20 && whole == 0 && !t.Failed() {
		t.Error("no run was taken as a whole")
	}
	t.Logf("%d runs were taken as a whole", whole)
}
