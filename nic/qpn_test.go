package nic

import (
	"math/rand/v2"
	"testing"

	"github.com/softnic/softnicd/ib"
)

func TestQPNPermutation(t *testing.T) {
	for _, width := range []uint{24, 23, 22, 19} {
		p := newQPNPermutation(width, rand.New(rand.NewPCG(1, 2)).Uint64)
		seen := make([]bool, 1<<width)
		for v := uint32(0); v < 1<<width; v += 37 {
			n := p.forward(v)
			if n >= 1<<width || seen[n] {
				t.Fatalf("%d bits: %#x maps to %#x, which is out of range or taken", width, v, n)
			}
			seen[n] = true
			if p.inverse(n) != v {
				t.Fatalf("%d bits: %#x maps to %#x and back to %#x", width, v, n, p.inverse(n))
			}
		}
	}
}

func TestQPNumbers(t *testing.T) {
	for _, shards := range []int{1, 4, 7} {
		for shard := range shards {
			numbers(t, shard, shards)
		}
	}
}

func numbers(t *testing.T, shard, shards int) {
	const capacity = 100
	table := newQPTable(capacity, shard, shards, rand.New(rand.NewPCG(3, 4)).Uint64)
	last := map[ib.QPN]int{}
	var live []*QP
	var stale []ib.QPN
	for i := range 60000 / shards {
		if len(live) == capacity {
			if _, ok := table.take(); ok {
				t.Fatal("a number beyond the capacity")
			}
		}
		if len(live) == capacity || len(live) > 0 && i%3 == 0 {
			q := live[i%len(live)]
			live[i%len(live)] = live[len(live)-1]
			live = live[:len(live)-1]
			table.hide(q)
			table.put(q.qpn)
			stale = append(stale, q.qpn)
			continue
		}
		n, ok := table.take()
		if !ok {
			t.Fatalf("no number with %d in use", len(live))
		}
		if n <= ib.GSI || n >= ib.MulticastQPN {
			t.Fatalf("number %s is reserved", n)
		}
		if ShardOf(n, shards) != shard {
			t.Fatalf("number %s is of shard %d, not of %d of %d", n, ShardOf(n, shards), shard, shards)
		}
		if at, ok := last[n]; ok {
			t.Fatalf("number %s was used at %d and again at %d", n, at, i)
		}
		last[n] = i
		q := &QP{qpn: n}
		table.publish(q)
		live = append(live, q)
		if table.find(n) != q {
			t.Fatalf("number %s does not find its queue pair", n)
		}
	}
	for _, n := range stale {
		if q := table.find(n); q != nil {
			t.Fatalf("number %s was given back and finds %s", n, q.qpn)
		}
	}
}

func TestFindAllocatesNothing(t *testing.T) {
	table := newQPTable(16, 0, 1, rand.New(rand.NewPCG(3, 4)).Uint64)
	n, _ := table.take()
	table.publish(&QP{qpn: n})
	if a := testing.AllocsPerRun(1000, func() { table.find(n) }); a != 0 {
		t.Errorf("%v allocations", a)
	}
}
