package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// dice is a stream of random decisions. Each part of a world has its own, so that another decision in one part leaves
// the others as they were.
type dice struct{ r *rand.Rand }

func newDice(seed, stream uint64) *dice { return &dice{rand.New(rand.NewPCG(seed, stream))} }

// below returns a number in [0, n).
func (d *dice) below(n int) int { return d.r.IntN(n) }

// between returns a number in [low, high].
func (d *dice) between(low, high int) int { return low + d.r.IntN(high-low+1) }

// chance is true so many times in 1000.
func (d *dice) chance(permille int) bool { return permille > 0 && d.r.IntN(1000) < permille }

// upTo returns a duration in [0, t].
func (d *dice) upTo(t time.Duration) time.Duration { return time.Duration(d.r.Int64N(int64(t) + 1)) }

// Read fills b, as the random source of a device does.
func (d *dice) Read(b []byte) (int, error) {
	d.fill(b)
	return len(b), nil
}

func (d *dice) fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, d.r.Uint64())
	}
	for i := range b {
		b[i] = byte(d.r.Uint32())
	}
}

// oneOf returns one of the choices.
func oneOf[T any](d *dice, choices ...T) T { return choices[d.below(len(choices))] }
