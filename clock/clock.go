// Package clock is time as a value. Engines are told the time; nothing below [Monotonic] reads a clock.
//
//	deadline := now.Add(67 * time.Millisecond)
//	if !deadline.After(now) { ... }
package clock

import "time"

// Time is nanoseconds on some monotonic clock; its zero is the clock's own.
type Time int64

// Never is later than every time: the deadline of someone who waits for nothing.
const Never Time = 1<<63 - 1

// Add returns t+d. Never stays Never.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	return t + Time(d)
}

// Sub returns the duration t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// After reports whether t is later than u.
func (t Time) After(u Time) bool { return t > u }

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool { return t < u }

// Source tells the time.
type Source func() Time
