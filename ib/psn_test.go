package ib

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPSNOrderAtTheWrap(t *testing.T) {
	for _, c := range []struct {
		p, q PSN
		diff int32
	}{
		{0, 0, 0},
		{1, 0, 1},
		{0, 1, -1},
		{0, 0xffffff, 1},
		{0xffffff, 0, -1},
		{2, 0xfffffd, 5},
		{0x7fffff, 0, 1<<23 - 1},
		{0x800000, 0, -1 << 23},
		{0, 0x800000, -1 << 23},
		{0, 0x800001, 1<<23 - 1},
	} {
		if got := c.p.Diff(c.q); got != c.diff {
			t.Errorf("%v - %v = %d, want %d", c.p, c.q, got, c.diff)
		}
		if c.p.Before(c.q) != (c.diff < 0) || c.p.After(c.q) != (c.diff > 0) {
			t.Errorf("%v and %v: before %v, after %v", c.p, c.q, c.p.Before(c.q), c.p.After(c.q))
		}
	}
	if NewPSN(0xffffff).Next() != 0 || NewPSN(0x1000005) != 5 || PSN(0).Sub(1) != 0xffffff {
		t.Error("sequence numbers have 24 bits")
	}
}

// TestPSNExhaustive goes through every sequence number, with its neighbours and its opposite.
func TestPSNExhaustive(t *testing.T) {
	for v := uint32(0); v <= PSNMask; v++ {
		p := PSN(v)
		n := p.Next()
		if !n.After(p) || !p.Before(n) || n.Sub(1) != p || n > PSNMask || n.Diff(p) != 1 {
			t.Fatalf("%v and its next %v", p, n)
		}
		far := p.Add(1<<23 - 1)
		if !far.After(p) || !far.Next().Before(p) {
			t.Fatalf("%v: half of the space is ahead, half behind", p)
		}
	}
}

func TestPSNProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := NewPSN(rapid.Uint32().Draw(t, "p"))
		n := rapid.Uint32().Draw(t, "n")
		d := rapid.Int32Range(-1<<23, 1<<23-1).Draw(t, "d")
		if p.Add(n).Sub(n) != p {
			t.Fatal("Sub undoes Add")
		}
		if q := p.Add(uint32(d)); q.Diff(p) != d {
			t.Fatalf("%v is %d after %v, want %d", q, q.Diff(p), p, d)
		}
		q := NewPSN(rapid.Uint32().Draw(t, "q"))
		if p.Add(uint32(q.Diff(p))) != q {
			t.Fatalf("p + (q-p) = q for %v, %v", p, q)
		}
		if d != -1<<23 && p.Before(q) && q.Before(p) {
			t.Fatalf("%v and %v are before each other", p, q)
		}
	})
}
