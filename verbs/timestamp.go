package verbs

import (
	"time"

	"golang.org/x/sys/unix"
)

// RawClock reads the clock of completion timestamps as it is now (ibv_query_rt_values_ex): nanoseconds of the host's
// CLOCK_MONOTONIC. It costs no request to the daemon.
func (c *Context) RawClock() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// WallClock returns the time of day of a completion's timestamp, by the host's clock as it is set now. Of timestamp 0,
// which a failed work request has, it is the zero time.
func (c *Context) WallClock(timestamp int64) time.Time {
	if timestamp == 0 {
		return time.Time{}
	}
	ago := c.RawClock() - timestamp
	return time.Now().Round(0).Add(-time.Duration(ago))
}
