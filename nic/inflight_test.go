package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// bounded are queue pairs of two devices that have a bound.
type bounded struct {
	w         *world
	a, b      *host
	xs, ys    []*endpoint
	completed []int
}

// newBounded makes n pairs of queue pairs on devices that have a bound.
func newBounded(t *testing.T, bound, n int) *bounded {
	t.Helper()
	w, a, b := newPair(t, func(c *Config) { c.Limits.InFlight = bound })
	v := &bounded{w: w, a: a, b: b, completed: make([]int, n)}
	for range n {
		x, y := a.newQP(t, nil), b.newQP(t, nil)
		x.connect(t, y)
		y.connect(t, x)
		v.xs, v.ys = append(v.xs, x), append(v.ys, y)
	}
	return v
}

func (v *bounded) post(x *endpoint, op ib.WROpcode, n int) {
	peer := v.a
	if x.app == &v.a.app {
		peer = v.b
	}
	x.postSend(abi.SendWQE{WRID: 1, Opcode: uint8(op), Flags: uint8(ib.SendSignaled), RKey: uint32(peer.mr.RKey()), RemoteAddr: 0x10000},
		x.sge(1<<20, n))
}

// Many queue pairs share the bound: what is outstanding stays near it, everybody gets a fair part, and everything ends.
func TestInFlightIsBoundedAndShared(t *testing.T) {
	const bound, pairs, size, each = 256 << 10, 40, 100 << 10, 10
	v := newBounded(t, bound, pairs)
	for _, x := range v.xs {
		for range each {
			v.post(x, ib.WRRDMAWrite, size)
		}
	}
	byQPN := map[uint32]int{}
	for i, x := range v.xs {
		byQPN[uint32(x.qp.QPN())] = i
	}
	most, total, unfair := 0, 0, 0
	for round := 0; total < pairs*each; round++ {
		if round > 1<<20 {
			t.Fatalf("%d of %d messages completed", total, pairs*each)
		}
		v.a.dev.Step(v.w.now)
		most = max(most, v.a.dev.shards[0].inFlight.Used())
		v.b.dev.Step(v.w.now)
		v.w.now += 1000
		for _, c := range v.a.poll(t) {
			if c.Status != 0 {
				t.Fatalf("completion %+v", c)
			}
			v.completed[byQPN[c.QPN]]++
			total++
		}
		first, last := each, 0
		for _, n := range v.completed {
			first, last = min(first, n), max(last, n)
		}
		unfair = max(unfair, last-first)
	}
	// Each may begin with one packet beyond it, and the last to enter may exceed it by what one call sends.
	if limit := bound + pairs*5000 + burstBytes; most > limit {
		t.Errorf("%d bytes outstanding, the bound is %d", most, bound)
	}
	if unfair > 2 {
		t.Errorf("one queue pair was %d messages of %d ahead of another", unfair, each)
	}
	if n := v.a.dev.shards[0].inFlight.Used(); n != 0 || !v.a.dev.shards[0].waiting.empty() {
		t.Errorf("%d bytes outstanding at the end", n)
	}
	if n := v.a.counter("retransmissions"); n != 0 {
		t.Errorf("%d packets sent again", n)
	}
}

// Two devices that read from each other under a bound smaller than one READ do not wait for each other.
func TestReadsBothWaysUnderABound(t *testing.T) {
	v := newBounded(t, 1, 8)
	for i := range v.xs {
		v.post(v.xs[i], ib.WRRDMARead, 300<<10)
		v.post(v.ys[i], ib.WRRDMARead, 300<<10)
		v.post(v.xs[i], ib.WRRDMAWrite, 100<<10)
		v.post(v.ys[i], ib.WRRDMAWrite, 100<<10)
	}
	v.w.run(time.Second)
	for _, h := range []*host{v.a, v.b} {
		got := h.poll(t)
		if len(got) != 16 {
			t.Errorf("%s: %d of 16 completed", h.dev.Name(), len(got))
		}
		for _, c := range got {
			if c.Status != 0 {
				t.Errorf("%s: %+v", h.dev.Name(), c)
			}
		}
		if n := h.dev.shards[0].inFlight.Used(); n != 0 {
			t.Errorf("%s: %d bytes outstanding at the end", h.dev.Name(), n)
		}
	}
}

// A peer that is gone does not hold the bound against others, and what is destroyed leaves nothing in it.
func TestInFlightIsGivenBack(t *testing.T) {
	v := newBounded(t, 64<<10, 3)
	v.b.port.stuck = true
	for range 4 {
		v.post(v.xs[0], ib.WRRDMAWrite, 200<<10)
		v.post(v.xs[1], ib.WRRDMAWrite, 200<<10)
	}
	for range 20 {
		v.a.dev.Step(v.w.now)
	}
	s := v.a.dev.shards[0]
	if s.inFlight.Room() > 0 || s.waiting.empty() {
		t.Fatalf("room for %d, nobody waits: %v", s.inFlight.Room(), s.waiting.empty())
	}
	if err := v.a.ctx.DestroyQP(v.xs[0].qp); err != nil {
		t.Fatal(err)
	}
	v.xs[1].modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	if n := s.inFlight.Used(); n != 0 {
		t.Errorf("%d bytes outstanding", n)
	}
	v.b.port.stuck = false
	v.post(v.xs[2], ib.WRRDMAWrite, 200<<10)
	v.w.run(time.Second)
	ok := 0
	for _, c := range v.a.poll(t) {
		if c.QPN == uint32(v.xs[2].qp.QPN()) && c.Status == 0 {
			ok++
		}
	}
	if ok != 1 || !s.waiting.empty() {
		t.Errorf("%d completions of the third", ok)
	}
}
