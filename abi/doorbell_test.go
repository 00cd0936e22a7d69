package abi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softnic/softnicd/internal/explore"
)

func newBell(t testing.TB) *Doorbell {
	t.Helper()
	d, err := NewDoorbell(make([]byte, DoorbellSize))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNewDoorbellRefuses(t *testing.T) {
	if _, err := NewDoorbell(make([]byte, DoorbellSize-8)); err == nil {
		t.Error("a short page is accepted")
	}
	if _, err := NewDoorbell(make([]byte, DoorbellSize+8)[4:]); err == nil {
		t.Error("an unaligned page is accepted")
	}
}

func TestEverySlot(t *testing.T) {
	d := newBell(t)
	dst := make([]uint32, 0, 8)
	for slot := uint32(0); slot < MaxQPSlots; slot++ {
		if slot%61 != 0 && slot < MaxQPSlots-64 { // all bits of all levels, in a fraction of the time
			continue
		}
		d.Ring(slot)
		d.Ring(slot)
		if !d.Pending() {
			t.Fatalf("slot %d is not pending", slot)
		}
		if got := d.Take(dst); len(got) != 1 || got[0] != slot || d.Pending() {
			t.Fatalf("slot %d: took %v", slot, got)
		}
	}
	d.Ring(MaxQPSlots)
	d.Ring(1<<32 - 1)
	if got := d.Take(dst); len(got) != 0 || d.Pending() {
		t.Errorf("slots that do not exist ring: %v", got)
	}
}

// Several shards take from one page: each what is rung in its range, and nothing of the others.
func TestParts(t *testing.T) {
	for _, shards := range []int{1, 2, 3, 4, 7, MaxShards} {
		page := make([]byte, DoorbellSize)
		ringer, err := NewDoorbell(page)
		if err != nil {
			t.Fatal(err)
		}
		var parts []*Doorbell
		next := uint32(0)
		for i := range shards {
			p, err := NewDoorbellPart(page, i, shards)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
			first, n := SlotRange(i, shards)
			if first != next || n == 0 || first+n > MaxQPSlots {
				t.Fatalf("%d shards: shard %d has %d slots from %d on", shards, i, n, first)
			}
			next = first + n
			ringer.Ring(first)
			ringer.Ring(first + n - 1)
		}
		for i := shards - 1; i >= 0; i-- {
			first, n := SlotRange(i, shards)
			if got := parts[i].Take(make([]uint32, 0, 8)); !slices.Equal(got, []uint32{first, first + n - 1}) {
				t.Errorf("%d shards: shard %d took %v", shards, i, got)
			}
			if parts[i].Pending() {
				t.Errorf("%d shards: shard %d has more", shards, i)
			}
		}
	}
	if _, err := NewDoorbellPart(make([]byte, 8), 0, 2); err == nil {
		t.Error("a short page is accepted")
	}
}

// Take stops at the capacity of dst and goes on there; nothing comes twice, nothing is left.
func TestTakeInPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, room := range []int{1, 2, 7, 64, 1000} {
		d := newBell(t)
		var want, got []uint32
		for range 500 {
			want = append(want, rng.Uint32N(MaxQPSlots))
			d.Ring(want[len(want)-1])
		}
		slices.Sort(want)
		want = slices.Compact(want)
		for calls := 0; d.Pending(); calls++ {
			got = append(got, d.Take(make([]uint32, 0, room))...)
			if calls > 2*MaxQPSlots {
				t.Fatal("no end")
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("room %d: took %d slots, %d rang", room, len(got), len(want))
		}
	}
	if d := newBell(t); len(d.Take(nil)) != 0 {
		t.Error("took something without room")
	}
}

// One that rings all the time does not keep the others waiting.
func TestTakeIsFair(t *testing.T) {
	for _, other := range []uint32{1, 64, 64 * 64, MaxQPSlots - 1} {
		d := newBell(t)
		d.Ring(0)
		d.Ring(other)
		for turn := 0; ; turn++ {
			got := d.Take(make([]uint32, 0, 1))
			if slices.Contains(got, other) {
				break
			}
			if turn > 2 {
				t.Fatalf("slot %d starves", other)
			}
			d.Ring(0)
		}
	}
}

// A page full of bits without slots below them costs a bounded time a call, and a real slot is still found.
func TestHostilePage(t *testing.T) {
	d := newBell(t)
	for i := range 1 + 64 + 7 {
		d.mem.q[i] = ^uint64(0)
	}
	touches := 0
	d.step = func(uint32, bool) { touches++ }
	d.mem.q[offBellLeaf/8+4095] = 1 << 63
	for call := 0; ; call++ {
		touches = 0
		got := d.Take(make([]uint32, 0, 8))
		if touches > takeBudget+2 {
			t.Fatalf("%d touches in one call", touches)
		}
		if len(got) == 1 && got[0] == MaxQPSlots-1 {
			break
		}
		if call > 100 || len(got) != 0 || !d.Pending() {
			t.Fatalf("call %d: took %v", call, got)
		}
	}
}

// Ringers post and ring while the daemon takes, through every order of their touches of the page: when the daemon has
// found nothing pending after the last ring, it has seen every post.
func TestNoOrderLosesARing(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots [][]uint32 // each ringer's
		takes int
		room  int
	}{
		{"one ringer", [][]uint32{{5}}, 3, 8},
		{"one ringer, twice", [][]uint32{{5, 5}}, 2, 8},
		{"one ringer, room for one", [][]uint32{{5, 6}}, 2, 1},
		{"two on one slot", [][]uint32{{5}, {5}}, 2, 8},
		{"two on one leaf", [][]uint32{{5}, {6}}, 2, 8},
		{"two under one middle word", [][]uint32{{5}, {64}}, 2, 8},
		{"two under the top", [][]uint32{{5}, {4096}}, 2, 8},
	} {
		orders, err := explore.All(func(w *explore.World) []func() {
			d, _ := NewDoorbell(make([]byte, DoorbellSize))
			posted, seen := map[uint32]int{}, map[uint32]int{}
			ringing := len(c.slots)
			taker := len(c.slots)
			d.step = func(word uint32, write bool) { w.Step(taker, fmt.Sprint(word), write) }
			var bodies []func()
			for i, slots := range c.slots {
				ringer := &Doorbell{mem: d.mem, step: func(word uint32, write bool) { w.Step(i, fmt.Sprint(word), write) }}
				bodies = append(bodies, func() {
					for _, slot := range slots {
						w.Step(i, fmt.Sprint("post", slot), true)
						posted[slot]++
						ringer.Ring(slot)
					}
					w.Step(i, "ringing", true)
					ringing--
				})
			}
			take := func() {
				for _, slot := range d.Take(make([]uint32, 0, c.room)) {
					w.Step(taker, fmt.Sprint("post", slot), false)
					seen[slot] = posted[slot] // the ring itself, after its bit was taken
				}
			}
			bodies = append(bodies, func() {
				for range c.takes {
					take()
				}
				w.Wait(taker, "ringing", func() bool { return ringing == 0 })
				for d.Pending() {
					take()
				}
				for _, slots := range c.slots {
					for _, slot := range slots {
						if seen[slot] != posted[slot] {
							w.Failf("slot %d: %d posts, %d seen", slot, posted[slot], seen[slot])
						}
					}
				}
			})
			return bodies
		})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		t.Logf("%s: %d orders", c.name, orders)
	}
}

// Two shards take from one page while their slots ring: neither loses what the other takes.
func TestNoOrderLosesARingOfParts(t *testing.T) {
	_, upper := SlotRange(1, 2)
	orders, err := explore.All(func(w *explore.World) []func() {
		page := make([]byte, DoorbellSize)
		posted, seen := map[uint32]int{}, map[uint32]int{}
		slots := []uint32{5, upper + 5}
		ringing := len(slots)
		var bodies []func()
		for i, slot := range slots {
			ringer, _ := NewDoorbell(page)
			ringer.step = func(word uint32, write bool) { w.Step(i, fmt.Sprint(word), write) }
			bodies = append(bodies, func() {
				w.Step(i, fmt.Sprint("post", slot), true)
				posted[slot]++
				ringer.Ring(slot)
				w.Step(i, "ringing", true)
				ringing--
			})
		}
		for i, slot := range slots {
			taker := len(slots) + i
			d, _ := NewDoorbellPart(page, i, 2)
			d.step = func(word uint32, write bool) { w.Step(taker, fmt.Sprint(word), write) }
			take := func() {
				for _, got := range d.Take(make([]uint32, 0, 8)) {
					w.Step(taker, fmt.Sprint("post", got), false)
					seen[got] = posted[got]
				}
			}
			bodies = append(bodies, func() {
				take()
				w.Wait(taker, "ringing", func() bool { return ringing == 0 })
				for d.Pending() {
					take()
				}
				if seen[slot] != posted[slot] {
					w.Failf("slot %d: %d posts, %d seen", slot, posted[slot], seen[slot])
				}
			})
		}
		return bodies
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d orders", orders)
}

func BenchmarkRingTake(b *testing.B) {
	d := newBell(b)
	dst := make([]uint32, 0, 8)
	b.Run("Ring again", func(b *testing.B) {
		for range b.N {
			d.Ring(77)
		}
	})
	b.Run("Ring and take", func(b *testing.B) {
		for range b.N {
			d.Ring(77)
			d.Take(dst)
		}
	})
	b.Run("Pending", func(b *testing.B) {
		for range b.N {
			d.Pending()
		}
	})
}
