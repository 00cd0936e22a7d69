package nic

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
)

// Queue pairs that share receives over a network that loses packets: every message arrives once, in the order of its queue
// pair and with its bytes, receives are taken in the order of posting, and what failing queue pairs leave behind serves the
// others. The queue is resized and its event armed meanwhile.
func TestSRQOverABadNetwork(t *testing.T) {
	for seed := range uint64(30) {
		soak(t, seed)
	}
}

const soakSlot = 4096 // bytes of a receive

func soak(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 79))
	la, lb := newLinks(10e9/8, 10*time.Microsecond, float64(r.IntN(40))/1000)
	on := func(p Port) func(*Config) { return func(c *Config) { c.Port, c.Limits.InFlight = p, 1+r.IntN(200000) } }
	a := newHost(t, "softnic0", "10.0.0.1", la.cable, on(la))
	b := newHost(t, "softnic1", "10.0.0.2", lb.cable, on(lb))
	w := &world{devs: []*Device{a.dev, b.dev}}
	p := b.newSRQ(t, 16, nil)
	const pairs, messages = 5, 40
	xs, ys := connected(t, a, b, p, pairs)
	broken := r.IntN(pairs) // goes to the error state half-way
	index := map[uint32]int{}
	for i := range ys {
		index[uint32(ys[i].qp.QPN())] = i
	}
	sent, got := make([]int, pairs), make([]int, pairs)
	ended := map[uint64]bool{}
	post := func() {
		if p.posted-p.block.RecvTaken() < min(p.block.Layout().RecvDepth, 200) {
			// Places in memory come round only when the queue is long past them.
			p.post(uint64(p.posted), p.sge(int(p.posted%512)*soakSlot, soakSlot))
		}
	}
	collect := func() {
		for _, c := range b.poll(t) {
			i, ok := index[c.QPN]
			if !ok || ended[c.WRID] || uint32(c.WRID) >= p.block.RecvTaken() {
				t.Fatalf("seed %d: receive %+v has ended already, or was never taken", seed, c)
			}
			ended[c.WRID] = true
			if ib.WCStatus(c.Status) == ib.WCWRFlushErr && i == broken {
				continue
			}
			mem := b.mem[int(c.WRID%512)*soakSlot:]
			if c.Status != 0 || binary.LittleEndian.Uint32(mem) != uint32(i) || binary.LittleEndian.Uint32(mem[4:]) != uint32(got[i]) ||
				c.ByteLen != soakLength(i, got[i]) {
				t.Fatalf("seed %d: receive %+v of queue pair %d, message %d: holds %x", seed, c, i, got[i], mem[:8])
			}
			got[i]++
		}
		a.poll(t)
	}
	for round := 0; ; round++ {
		if round > 20000 {
			t.Fatalf("seed %d: sent %v, got %v", seed, sent, got)
		}
		for range r.IntN(8) {
			post()
		}
		i := r.IntN(pairs)
		if x := xs[i]; sent[i] < messages && x.block.State() == ib.StateRTS && x.sends-x.block.SendDone() < 16 {
			// Sixteen at a time, each with bytes of its own.
			off := (i*16 + sent[i]%16) * soakSlot
			binary.LittleEndian.PutUint32(a.mem[off:], uint32(i))
			binary.LittleEndian.PutUint32(a.mem[off+4:], uint32(sent[i]))
			x.postSend(sendWQE(1), x.sge(off, int(soakLength(i, sent[i]))))
			sent[i]++
		}
		switch r.IntN(40) {
		case 0:
			_ = p.resize(1+r.Uint32N(64), nil)
		case 1:
			_ = b.ctx.ModifySRQ(p.srq, &ib.SRQAttr{SRQLimit: r.Uint32N(8)}, ib.SRQAttrLimit, nil)
		}
		if got[broken] > messages/2 && ys[broken].block.State() == ib.StateRTS {
			ys[broken].modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
		}
		w.run(time.Duration(r.IntN(300)) * time.Microsecond)
		collect()
		done := true
		for i := range got {
			done = done && (got[i] == messages || i == broken && ys[i].block.State() == ib.StateErr)
		}
		if done {
			break
		}
	}
	w.run(time.Millisecond)
	collect()
	// What was taken has ended, all of it.
	if n := p.block.RecvTaken(); len(ended) != int(n) {
		t.Errorf("seed %d: %d receives taken, %d ended", seed, n, len(ended))
	}
	last := 0
	for _, e := range b.take() {
		if e.typ == ib.EventQPLastWQEReached {
			last++
		}
	}
	if last != 1 {
		t.Errorf("seed %d: %d times QP_LAST_WQE_REACHED, want once", seed, last)
	}
}

// soakLength is the length of a message.
func soakLength(pair, n int) uint32 { return 8 + uint32(pair*977+n*331)%(soakSlot-8) }
