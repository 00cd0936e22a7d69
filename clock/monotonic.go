package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

var (
	origin = time.Now()
	// base is the kernel's monotonic clock at origin, so that other processes of the host can read the same clock.
	base = kernel()
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
