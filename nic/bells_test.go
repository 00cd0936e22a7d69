package nic

import (
	"testing"

	"github.com/softnic/softnicd/clock"
)

// crowded is a shard with more contexts than it asks in each round, and a function that rings a part's first slot.
func crowded(t *testing.T) (s *shard, ring func(*part)) {
	_, a, _ := newPair(t, nil)
	apps := map[*Context]*app{a.ctx: &a.app}
	for range 3 * nearBells {
		o := &app{}
		o.open(t, a.dev, ContextConfig{Tenant: 1000, Owner: true}, a.addr)
		apps[o.ctx] = o
	}
	s = a.dev.shards[0]
	s.doorbells(true)
	return s, func(p *part) { apps[p.ctx].bell.Ring(p.first) }
}

// Every ring is found: of who rang lately at once, of others in time while the shard is busy, and by one that is about to sleep.
func TestBellsOfManyContexts(t *testing.T) {
	s, ring := crowded(t)
	now := s.now + 1
	for range 5 * len(s.parts) {
		far := s.parts[len(s.parts)-1]
		s.now = now
		s.doorbells(true)
		ring(far)
		if s.doorbells(false) {
			t.Fatal("all contexts are asked in every round")
		}
		if s.now = now.Add(bellsEvery); !s.doorbells(false) {
			t.Fatalf("after %v the ring of a context is not found", bellsEvery)
		}
		// It is near now.
		if ring(far); !s.doorbells(false) {
			t.Fatal("who rang last is not asked first")
		}
		now = now.Add(2 * bellsEvery)
	}
	for _, p := range append([]*part(nil), s.parts...) {
		s.doorbells(true)
		ring(p)
		if !s.round(now) {
			t.Fatal("a round that found nothing else did not ask all")
		}
		if s.round(now) {
			t.Fatal("a ring was found twice")
		}
	}
}

// Contexts whose pages are gone, one near and one far, end, and the others are asked all the same.
func TestBellsOfFailedContexts(t *testing.T) {
	s, ring := crowded(t)
	for _, i := range []int{0, len(s.parts) - 2} {
		s.parts[i].ctx.dead.Store(true)
		ring(s.parts[i])
	}
	last := s.parts[len(s.parts)-1]
	if s.doorbells(true) {
		t.Error("a context that has failed was asked")
	}
	if ring(last); !s.doorbells(true) {
		t.Error("a context behind one that has failed was not asked")
	}
}

func TestBellsAllocateNothing(t *testing.T) {
	s, ring := crowded(t)
	if n := testing.AllocsPerRun(100, func() {
		ring(s.parts[len(s.parts)-1])
		ring(s.parts[0])
		s.doorbells(true)
		s.doorbells(false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a round costs in the company of many contexts that do not ring.
func BenchmarkBells(b *testing.B) {
	for name, contexts := range map[string]int{"8": nearBells, "100": 100} {
		b.Run(name, func(b *testing.B) {
			h := newHost(b, "softnic0", "10.0.0.1", newCable(16), func(c *Config) { c.Limits.MaxMR = 256 })
			for range contexts - 1 {
				(&app{}).open(b, h.dev, ContextConfig{Tenant: 1000, Owner: true}, h.addr)
			}
			s := h.dev.shards[0]
			for i := 0; b.Loop(); i++ {
				s.now = clock.Time(2000 * i) // a round takes some microseconds
				s.doorbells(false)
			}
		})
	}
}
