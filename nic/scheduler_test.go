package nic

import (
	"math/rand/v2"
	"testing"
)

// load is a flow with a supply of messages, as an engine with work for the scheduler.
type load struct {
	flow
	packet int // bytes of a packet
	queued int // bytes that wait; negative: always more
	sent   int
	served int // turns
}

// serve lets l send up to allowance, finishing the packet that exceeds it, as engines do.
func (l *load) serve(allowance int) (bytes int, more bool) {
	l.served++
	for bytes < allowance && l.queued != 0 {
		n := l.packet
		if l.queued > 0 {
			n = min(n, l.queued)
			l.queued -= n
		}
		bytes += n
	}
	l.sent += bytes
	return bytes, l.queued != 0
}

type schedulerTest struct {
	scheduler
	loads map[*flow]*load
}

func newSchedulerTest() *schedulerTest { return &schedulerTest{loads: map[*flow]*load{}} }

func (s *schedulerTest) load(t *tenant, packet, queued int) *load {
	l := &load{flow: flow{tenant: t}, packet: packet, queued: queued}
	s.loads[&l.flow] = l
	s.add(&l.flow)
	return l
}

// run serves about n bytes.
func (s *schedulerTest) run(n int) {
	for n > 0 {
		l, bytes := s.turn()
		if l == nil {
			return
		}
		n -= max(bytes, 1)
	}
}

func (s *schedulerTest) turn() (*load, int) {
	f, allowance := s.next()
	if f == nil {
		return nil, 0
	}
	l := s.loads[f]
	bytes, more := l.serve(allowance)
	s.charge(f, bytes, more)
	return l, bytes
}

// 64 queue pairs of one tenant with 1 MiB messages against one queue pair of another: half each.
func TestSchedulerDividesByTenant(t *testing.T) {
	s := newSchedulerTest()
	many, one := &tenant{id: 1}, &tenant{id: 2}
	var crowd []*load
	for range 64 {
		crowd = append(crowd, s.load(many, 4096+20, -1))
	}
	lone := s.load(one, 1024+20, -1)
	s.run(256 << 20)
	sum := 0
	for _, l := range crowd {
		sum += l.sent
	}
	if share := float64(lone.sent) / float64(lone.sent+sum); share < 0.475 || share > 0.525 {
		t.Errorf("the lone queue pair got %.1f %% of the bytes, want half within 5 %%", 100*share)
	}
	for i, l := range crowd {
		if share := float64(l.sent) / float64(sum) * 64; share < 0.9 || share > 1.1 {
			t.Errorf("queue pair %d of 64 got %.2f of its fair share", i, share)
		}
	}
}

// A tenant that now and then sends 64 bytes waits for a quantum of the other at the most, however many queue pairs that
// other has.
func TestSchedulerLoneSmallSender(t *testing.T) {
	s := newSchedulerTest()
	many, one := &tenant{id: 1}, &tenant{id: 2}
	for range 64 {
		s.load(many, 4096+20, -1)
	}
	s.run(1 << 20)
	small := s.load(one, 64+20, 64+20)
	for range 1000 {
		waited := 0
		for small.queued != 0 {
			l, n := s.turn()
			if l != small {
				waited += n
			}
		}
		if limit := tenantQuantum + 4096 + 20; waited > limit {
			t.Fatalf("a 64 byte message waited for %d bytes of another tenant, want at most %d", waited, limit)
		}
		s.run(rand.IntN(1 << 18))
		small.queued = 64 + 20
		s.add(&small.flow)
	}
}

// Whatever comes and goes, everybody who has work is served within a bounded number of bytes, and the lists are right.
func TestSchedulerNobodyStarves(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newSchedulerTest()
		tenants := make([]*tenant, 5)
		for i := range tenants {
			tenants[i] = &tenant{id: uint64(i)}
		}
		var loads []*load
		waiting := map[*load]int{} // bytes of others since it was ready
		for range 40 {
			loads = append(loads, s.load(tenants[r.IntN(len(tenants))], 64+r.IntN(4096), r.IntN(1<<20)))
		}
		// The most that can go between two turns of a flow: a quantum and a packet of all in its tenant, for each of
		// which every other tenant has one.
		limit := 40 * 5 * (tenantQuantum + 8192)
		for range 20000 {
			l := loads[r.IntN(len(loads))]
			switch r.IntN(4) {
			case 0:
				l.queued += r.IntN(1 << 18)
				s.add(&l.flow)
			case 1:
				if r.IntN(10) == 0 {
					s.remove(&l.flow)
					l.queued = 0
					delete(waiting, l)
				}
			}
			got, n := s.turn()
			if got == nil {
				continue
			}
			delete(waiting, got)
			for _, l := range loads {
				if l != got && l.links.in {
					if waiting[l] += n; waiting[l] > limit {
						t.Fatalf("seed %d: a flow waited for %d bytes", seed, waiting[l])
					}
				}
			}
			if got.links.in != (got.queued != 0) {
				t.Fatalf("seed %d: in list %v with %d bytes queued", seed, got.links.in, got.queued)
			}
		}
		ready := 0
		for _, l := range loads {
			if l.links.in {
				ready++
			}
		}
		if ready != s.ready {
			t.Fatalf("seed %d: %d flows in lists, counted %d", seed, ready, s.ready)
		}
	}
}

// A flow that leaves with a debt comes back with it; one that leaves with a credit comes back without.
func TestSchedulerDebtIsKeptCreditIsNot(t *testing.T) {
	s := newSchedulerTest()
	a := &tenant{id: 1}
	l := s.load(a, 100<<10, 100<<10)
	s.turn()
	if want := flowQuantum - 100<<10; l.deficit != want || a.deficit != want {
		t.Errorf("deficits after sending too much: %d and %d, want %d", l.deficit, a.deficit, want)
	}
	m := s.load(&tenant{id: 2}, 10, 10)
	s.turn()
	if m.deficit != 0 || m.tenant.deficit != 0 {
		t.Errorf("deficits of who left early: %d and %d, want none", m.deficit, m.tenant.deficit)
	}
}

func TestSchedulerAllocatesNothing(t *testing.T) {
	s := newSchedulerTest()
	l := s.load(&tenant{id: 1}, 64, 64)
	m := s.load(&tenant{id: 2}, 64, -1)
	_ = m
	if n := testing.AllocsPerRun(1000, func() {
		s.turn()
		s.turn()
		l.queued = 64
		s.add(&l.flow)
	}); n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
}

// Who owes more than a quantum waits for as many rounds, and is served then.
func TestSchedulerDebtOfSeveralQuanta(t *testing.T) {
	s := newSchedulerTest()
	big := s.load(&tenant{id: 1}, 300<<10, -1)
	small := s.load(&tenant{id: 2}, 1000, -1)
	s.run(64 << 20)
	if share := float64(big.sent) / float64(big.sent+small.sent); share < 0.47 || share > 0.53 {
		t.Errorf("packets of 300 KiB got %.2f of the bytes, want half", share)
	}
	// The same between queue pairs of one tenant.
	s = newSchedulerTest()
	one := &tenant{id: 1}
	big, small = s.load(one, 300<<10, -1), s.load(one, 1000, -1)
	s.run(64 << 20)
	if share := float64(big.sent) / float64(big.sent+small.sent); share < 0.47 || share > 0.53 {
		t.Errorf("packets of 300 KiB got %.2f of their tenant's bytes, want half", share)
	}
}
