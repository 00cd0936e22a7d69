package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// base is the kernel's monotonic clock at origin, so that other processes of the host can read the same clock. It is read
// first: what lies between makes our clock late by a moment, and no time of ours comes from the future.
var (
	base   = kernel()
	origin = time.Now()
)

// Monotonic reads the host's monotonic clock: nanoseconds of CLOCK_MONOTONIC, which all processes of a host share (but for
// those in a time namespace of their own).
func Monotonic() Time { return base.Add(time.Since(origin)) }

func kernel() Time {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return Time(t.Nano())
}
