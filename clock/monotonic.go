package clock

import "time"

var origin = time.Now()

// Monotonic reads the host's monotonic clock: nanoseconds since the process started.
func Monotonic() Time { return Time(time.Since(origin)) }
