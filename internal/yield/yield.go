// Package yield lets other threads have the processor.
package yield

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread gives the processor to another thread that wants it (sched_yield), and comes back when that has had its turn: after half a
// microsecond if there is none, after some milliseconds where the other one computes.
//
// The Go scheduler is not told. Where a change of the process takes 6 us, a turn is longer than the 20 us after which sysmon takes
// the processor of Go's scheduler from a goroutine in a system call: it wakes a thread for it, the goroutine must then be given
// another, and sysmon looks again 20 us later, all of it beside those who are waited for. So whoever calls this again and again
// calls [runtime.Gosched] now and then.
func Thread() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
