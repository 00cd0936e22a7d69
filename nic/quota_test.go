package nic

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
)

func TestQuotas(t *testing.T) {
	l := DefaultLimits()
	g := newLedger(&l)
	a, err := g.open(1000, false)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := g.open(1000, false)
	other, _ := g.open(1001, false)
	owner, _ := g.open(0, true)

	if err := a.charge(resQPs, 512); err != nil {
		t.Fatal(err)
	}
	if err := a.charge(resQPs, 1); !errors.Is(err, syscall.EDQUOT) || !strings.Contains(err.Error(), "512 queue pairs for each context") {
		t.Errorf("QP 513 of a context: %v", err)
	}
	if err := b.charge(resQPs, 512); err != nil {
		t.Fatal(err)
	}
	c, _ := g.open(1000, false)
	if err := c.charge(resQPs, 1); !errors.Is(err, syscall.EDQUOT) || !strings.Contains(err.Error(), "1024 queue pairs for each user") {
		t.Errorf("QP 1025 of a user: %v", err)
	}
	if err := other.charge(resQPs, 1); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := owner.charge(resQPs, uint64(l.MaxQP)-1025); err != nil {
		t.Errorf("the owner: %v", err)
	}
	if err := owner.charge(resQPs, 1); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("one more than the device has: %v", err)
	}
	if err := owner.charge(resMemory, unlimited); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("all the memory there is: %v", err)
	}
}

// Whatever is charged and refused, what was charged and given back sums to nothing.
func TestLedgerSumsToZero(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	l := DefaultLimits()
	g := newLedger(&l)
	type entry struct {
		p *purse
		r resource
		n uint64
	}
	var done []entry
	for range 20000 {
		switch {
		case r.IntN(50) == 0:
			if p, err := g.open(uint64(r.IntN(5)), r.IntN(5) == 0); err == nil {
				done = append(done, entry{p, resContexts, 1})
			}
		case len(done) > 0 && r.IntN(2) == 0:
			i := r.IntN(len(done))
			done[i].p.uncharge(done[i].r, done[i].n)
			done[i] = done[len(done)-1]
			done = done[:len(done)-1]
		case len(done) > 0:
			e := entry{done[r.IntN(len(done))].p, resource(r.IntN(int(numResources)-1) + 1), uint64(r.IntN(100))}
			if e.p.used[resContexts] > 0 && e.p.charge(e.r, e.n) == nil {
				done = append(done, e)
			}
		}
	}
	for _, e := range done {
		e.p.uncharge(e.r, e.n)
	}
	if g.used != ([numResources]uint64{}) || len(g.tenants) != 0 {
		t.Errorf("left: %v, %d tenants", g.used, len(g.tenants))
	}
}
