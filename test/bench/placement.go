package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

// What passes from one processor to another takes three times as long where the two share no cache, and a hypervisor moves a
// virtual machine's processors from one such place to another within seconds. A path measured here and its yardstick there
// compare nothing, so bench asks where the processors are before, between and after the two.

// nearest is how much a cache line may cost to be taken back between processors that share a cache, in nanoseconds. It is about 7
// there, and from 25 on elsewhere.
const nearest = 15

// distance is where the processors were during a round.
type distance int

const (
	near  distance = iota // they shared a cache
	far                   // they did not
	moved                 // either: the round says nothing
)

func (d distance) String() string {
	return [...]string{"processors near", "processors far apart", "processors moved"}[d]
}

// distanceOf judges by what takingBack said at several times.
func distanceOf(taken ...float64) distance {
	d := moved
	for i, v := range taken {
		at := near
		if v > nearest {
			at = far
		}
		if i > 0 && at != d {
			return moved
		}
		d = at
	}
	return d
}

// series are what a row's rounds gave in one of these.
type series struct{ path, against []float64 }

// measured is the rounds of a row, by where the processors were.
type measured [moved + 1]series

// best returns the place that the row is about: near, if at least as many rounds were there as far apart. Rounds during which the
// processors moved stand in only where there are no others.
func (m *measured) best() distance {
	switch n, f := len(m[near].path), len(m[far].path); {
	case n == 0 && f == 0:
		return moved
	case n >= f:
		return near
	default:
		return far
	}
}

// cacheLine returns the nanoseconds in which a cache line goes to another thread and comes back.
func cacheLine(length time.Duration) float64 {
	var word atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for i := int64(1); ; i += 2 {
			for n := 0; ; n++ {
				v := word.Load()
				if v < 0 {
					return
				}
				if v == i {
					break
				}
			}
			word.CompareAndSwap(i, i+1)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, rounds := time.Now(), int64(0)
	for time.Since(began) < length {
		for range 100 {
			word.Store(2*rounds + 1)
			for word.Load() != 2*rounds+2 {
			}
			rounds++
		}
	}
	took := time.Since(began)
	word.Store(-1)
	<-done
	return float64(took.Nanoseconds()) / float64(rounds)
}

// takingBack returns the nanoseconds that a cache line costs to be written which another thread has just read: what a kernel pays
// whose buffers go to and fro between a sender and a receiver. It tells apart what the round trip of one line does not.
func takingBack(length time.Duration) float64 {
	const slots, size = 4, 64 << 10
	var ring [slots][]byte
	for i := range ring {
		ring[i] = make([]byte, size)
	}
	from, to := make([]byte, size), make([]byte, size)
	var put, got atomic.Int64 // slots ever filled and emptied; a negative put ends it
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for n := int64(0); ; n++ {
			for put.Load() == n {
			}
			if put.Load() < 0 {
				return
			}
			copy(to, ring[n%slots])
			got.Store(n + 1)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var wrote time.Duration
	n := int64(0)
	for began := time.Now(); time.Since(began) < length; n++ {
		for n-got.Load() == slots {
		}
		start := time.Now()
		copy(ring[n%slots], from)
		wrote += time.Since(start)
		put.Store(n + 1)
	}
	for got.Load() != n {
	}
	put.Store(-1)
	<-done
	return float64(wrote.Nanoseconds()) / float64(n*size/64)
}
