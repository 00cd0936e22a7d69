package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// pair is a connection as a test sees it: one side asks, the other is asked.
type pair struct {
	t             *testing.T
	asker, asked  side
	asks, answers endpoint
	attr          attr
	wrid          uint64
	seed          int
}

// calm are the attributes of a connection that waits for a slow machine: 0.54 s before a retry.
var calm = attr{mtu: 4096, timeout: 17, retry: 7, rnrRetry: 7, rnrTimer: 12}

// connect makes a queue pair at both sides.
func (p *pair) connect(kind string, shared bool, a attr) {
	p.t.Helper()
	var err error
	if p.asks, err = p.asker.make(kind, false); err != nil {
		p.t.Fatal(err)
	}
	if p.answers, err = p.asked.make(kind, shared); err != nil {
		p.t.Fatal(err)
	}
	p.attr = a
	there := a
	a.sqPSN, a.rqPSN = verbs.RandomPSN(), verbs.RandomPSN()
	there.sqPSN, there.rqPSN = a.rqPSN, a.sqPSN
	p.must(p.asked.connect(p.asks, there))
	p.must(p.asker.connect(p.answers, a))
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// ask posts a request about the beginning of both halves.
func (p *pair) ask(w work) {
	p.t.Helper()
	p.wrid++
	w.WRID = p.wrid
	if w.Remote == 0 {
		w.Remote = p.answers.Addr + target
	}
	if w.RKey == 0 {
		w.RKey = p.answers.RKey
	}
	p.must(p.asker.post(w))
}

// ends waits for the end of the last request.
func (p *pair) ends(want ib.WCStatus) {
	p.t.Helper()
	c, err := p.asker.poll(1, patience)
	p.must(err)
	if len(c) != 1 || c[0].WRID != p.wrid || c[0].Status != want {
		p.t.Fatalf("completions %+v, want %v of request %d", c, want, p.wrid)
	}
}

// received waits for a receive.
func (p *pair) received(bytes int) completion {
	p.t.Helper()
	c, err := p.asked.poll(1, patience)
	p.must(err)
	if len(c) != 1 || c[0].WRID != 900 || c[0].Status != ib.WCSuccess || c[0].Bytes != bytes {
		p.t.Fatalf("receives %+v, want one of %d bytes", c, bytes)
	}
	return c[0]
}

// prepare fills n bytes of one side, and empties those of the other.
func (p *pair) prepare(from side, at int, to side, there, n int) {
	p.t.Helper()
	p.seed++
	p.must(from.fill(at, n, fmt.Sprintf("%s %d", p.t.Name(), p.seed)))
	p.must(to.clear(there, n))
}

// same compares n bytes of both sides.
func (p *pair) same(at, there, n int) {
	p.t.Helper()
	a, err := p.asker.sum(at, n)
	p.must(err)
	b, err := p.asked.sum(there, n)
	p.must(err)
	if a != b {
		p.t.Fatalf("%d bytes are not the same at both sides", n)
	}
}

func (p *pair) send(n int) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n)
	p.must(p.asked.recv(1, target, n, 0))
	p.ask(work{Op: "SEND", Length: n})
	p.ends(ib.WCSuccess)
	p.received(n)
	p.same(0, target, n)
}

func (p *pair) sendImm(n int) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n)
	p.must(p.asked.recv(1, target, n, 0))
	p.ask(work{Op: "SEND_WITH_IMM", Length: n, Imm: 0x01020304})
	p.ends(ib.WCSuccess)
	if c := p.received(n); c.Imm != 0x01020304 {
		p.t.Fatalf("immediate %#x", c.Imm)
	}
	p.same(0, target, n)
}

func (p *pair) write(n int) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n)
	p.ask(work{Op: "RDMA_WRITE", Length: n})
	p.ends(ib.WCSuccess)
	p.same(0, target, n)
}

func (p *pair) writeImm(n int) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n)
	p.must(p.asked.recv(1, target, 0, 0))
	p.ask(work{Op: "RDMA_WRITE_WITH_IMM", Length: n, Imm: 0xa0b0c0d0})
	p.ends(ib.WCSuccess)
	if c := p.received(n); c.Imm != 0xa0b0c0d0 {
		p.t.Fatalf("immediate %#x", c.Imm)
	}
	p.same(0, target, n)
}

func (p *pair) read(n int) {
	p.t.Helper()
	p.prepare(p.asked, target, p.asker, 0, n)
	p.ask(work{Op: "RDMA_READ", Length: n})
	p.ends(ib.WCSuccess)
	p.same(0, target, n)
}

// atomics are a FETCH ADD, a swap that compares and one that does not.
func (p *pair) atomics() {
	p.t.Helper()
	p.must(p.asked.setWord(target, 1000))
	for _, step := range []struct {
		op           string
		add, swap    uint64
		before, then uint64
	}{
		{"ATOMIC_FETCH_AND_ADD", 5, 0, 1000, 1005},
		{"ATOMIC_CMP_AND_SWP", 1005, 0x1122334455667788, 1005, 0x1122334455667788},
		{"ATOMIC_CMP_AND_SWP", 1, 2, 0x1122334455667788, 0x1122334455667788},
		{"ATOMIC_FETCH_AND_ADD", 1, 0, 0x1122334455667788, 0x1122334455667789},
	} {
		p.ask(work{Op: step.op, Length: 8, Add: step.add, Swap: step.swap})
		p.ends(ib.WCSuccess)
		before, err := p.asker.word(0)
		p.must(err)
		then, err := p.asked.word(target)
		p.must(err)
		if before != step.before || then != step.then {
			p.t.Fatalf("%s: returned %#x, left %#x; want %#x and %#x", step.op, before, then, step.before, step.then)
		}
	}
}

// window has the asked side bind a window, through which the asker writes and which it invalidates.
func (p *pair) window() {
	p.t.Helper()
	key, err := p.asked.bind(target, 4096)
	p.must(err)
	p.prepare(p.asker, 0, p.asked, target, 64)
	p.ask(work{Op: "RDMA_WRITE", Length: 64, RKey: key})
	p.ends(ib.WCSuccess)
	p.same(0, target, 64)
	p.must(p.asked.recv(1, target, 64, 0))
	p.ask(work{Op: "SEND_WITH_INV", Length: 8, Imm: uint32(key)})
	p.ends(ib.WCSuccess)
	if c := p.received(8); c.Imm != uint32(key) {
		p.t.Fatalf("invalidated %#x, not %#x", c.Imm, key)
	}
	p.ask(work{Op: "RDMA_WRITE", Length: 64, RKey: key})
	p.ends(ib.WCRemAccessErr)
	p.must(p.asked.unbind())
}

// datagrams sends n bytes and looks at where they say they come from.
func (p *pair) datagram(n int, imm uint32) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n+ib.GRHSize)
	p.must(p.asked.recv(1, target, n+ib.GRHSize, 0))
	w := work{Op: "SEND", Length: n}
	if imm != 0 {
		w.Op, w.Imm = "SEND_WITH_IMM", imm
	}
	p.ask(w)
	p.ends(ib.WCSuccess)
	if c := p.received(n + ib.GRHSize); c.Source != p.asks.QPN || imm != 0 && c.Imm != imm {
		p.t.Fatalf("datagram %+v, want one from %v", c, p.asks.QPN)
	}
	p.same(0, target+ib.GRHSize, n)
}

// sizes around packets of a path MTU.
func sizes(mtu int) []int { return []int{0, 1, 3, 64, mtu - 1, mtu, mtu + 1, 3*mtu + 7, 64<<10 + 5} }

// directions runs a test with either side asking.
func directions(t *testing.T, o *ours, p *theirs, f func(*pair)) {
	t.Run("we ask", func(t *testing.T) { f(&pair{t: t, asker: o, asked: p}) })
	t.Run("rxe asks", func(t *testing.T) { f(&pair{t: t, asker: p, asked: o}) })
}

// TestOperations has every operation of every service, over both links and in both families, either side asking.
func TestOperations(t *testing.T) {
	m := theMachine(t)
	for _, link := range []string{"udp", "raw"} {
		t.Run(link, func(t *testing.T) {
			d := startDaemon(t, m, "--link", link)
			for _, family := range []string{"v4", "v6"} {
				t.Run(family, func(t *testing.T) {
					// What CI runs has each link once and each family once.
					if (link == "udp") != (family == "v4") {
						full(t)
					}
					o, p := newOurs(t, d, family == "v6"), newTheirs(t, m, family == "v6")
					directions(t, o, p, operations)
				})
			}
		})
	}
}

func operations(p *pair) {
	t := p.t
	step := func(name string, f func()) {
		if t.Failed() {
			return
		}
		began := time.Now()
		f()
		t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond))
	}
	mtus := []int{4096, 1024}
	for _, mtu := range mtus {
		a := calm
		a.mtu = mtu
		n := sizes(mtu)
		large := []int{1 << 20, 8 << 20}
		if !*everything {
			n, large = []int{0, 1, mtu + 1}, nil
			if mtu == 4096 {
				large = []int{1 << 20}
			}
		}
		p.connect("rc", false, a)
		for _, op := range []struct {
			name  string
			run   func(int)
			sizes []int
		}{
			{"SEND", p.send, slices.Concat(n, large)},
			{"SEND_IMM", p.sendImm, n},
			{"WRITE", p.write, slices.Concat(n, large)},
			{"WRITE_IMM", p.writeImm, n},
			{"READ", p.read, slices.Concat(n, large)},
		} {
			step(fmt.Sprintf("%s, path MTU %d", op.name, mtu), func() {
				for _, n := range op.sizes {
					op.run(n)
				}
			})
		}
		if mtu != mtus[0] && !*everything {
			continue
		}
		step("atomics", p.atomics)
		step("window and SEND_INV", p.window)
		p.connect("rc", true, a)
		step("SRQ", func() {
			for _, n := range n {
				p.send(n)
			}
		})
		p.connect("uc", false, a)
		step("UC", func() {
			for _, n := range n {
				p.send(n)
				p.write2(n)
			}
			p.sendImm(5)
			p.writeImm(2*mtu + 1)
		})
		p.connect("ud", false, a)
		step("UD", func() {
			for _, n := range slices.DeleteFunc(slices.Clone(n), func(n int) bool { return n > mtu }) {
				p.datagram(n, 0)
			}
			p.datagram(16, 0x01020304)
		})
	}
}

// write2 is a WRITE whose end the asker cannot know: a WRITE with immediate behind it tells.
func (p *pair) write2(n int) {
	p.t.Helper()
	p.prepare(p.asker, 0, p.asked, target, n)
	p.must(p.asked.recv(1, target, 0, 0))
	p.ask(work{Op: "RDMA_WRITE", Length: n})
	p.ends(ib.WCSuccess)
	p.ask(work{Op: "RDMA_WRITE_WITH_IMM", Imm: 1})
	p.ends(ib.WCSuccess)
	p.received(0)
	p.same(0, target, n)
}
