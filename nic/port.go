package nic

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/wire"
)

// Port is how a device meets its network: sockets (link/udp, link/raw), the device itself (link/local), or a simulated
// network (test/sim). One shard uses a port, from one goroutine.
type Port interface {
	// Send transmits frames, oldest first, and returns how many it took; the rest stay first in the caller's burst. A
	// frame that the network loses counts as taken: recovery is the transport's business. The error tells why not all
	// were taken: nil when the port is only congested, a *FrameFault when frames[sent] names memory that cannot be
	// read (the caller reports it to the engine and drops the frame), anything else for a port that has failed.
	Send(now clock.Time, frames []wire.Frame) (sent int, err error)
	// Recv fills in packets that were received and judged, and returns how many. They are valid until the next Recv.
	// What was malformed has been counted and dropped.
	Recv(now clock.Time, packets []wire.Packet) int
	// Descriptor is readable when Recv has something, for a shard that wants to sleep; -1 if there is nothing to wait
	// for. It may be readable for a moment more.
	Descriptor() int
	// Counters are the port's own: what it dropped, by kind.
	Counters() *PortCounters
	Close() error
}

// PortDeadline returns when Recv of the port is to be called even if nothing came: clock.Never for ordinary ports. One
// that holds packets back, as link/fault does, tells by a method Deadline.
func PortDeadline(p Port) clock.Time {
	if d, ok := p.(interface{ Deadline() clock.Time }); ok {
		return d.Deadline()
	}
	return clock.Never
}

// Ordinary ports know single packets alone. The following is what others may say, by methods of these names.

// LongestRun returns of how many packets a run may consist that a port takes along a path, each of size bytes behind the UDP
// header; 0: it takes none.
func LongestRun(port Port, path *wire.Path, size int) int {
	if p, ok := port.(interface{ LongestRun(*wire.Path, int) int }); ok {
		return p.LongestRun(path, size)
	}
	return 0
}

// GiveRuns asks a port to make runs of the packets that it received. Each packet of a run counts in Recv: no more come than were
// asked for.
func GiveRuns(port Port) {
	if p, ok := port.(interface{ GiveRuns() }); ok {
		p.GiveRuns()
	}
}

// StaysHere reports whether packets along a path never leave the device. What a port gives out of those may be runs, asked for
// or not.
func StaysHere(port Port, path *wire.Path) bool {
	p, ok := port.(interface{ StaysHere(*wire.Path) bool })
	return ok && p.StaysHere(path)
}

// SendApart sends a run packet by packet by a port that does not take it as it is; single has room for its packets. What of it
// a congested port does not take is lost, unless that is all.
func SendApart(port Port, now clock.Time, run *wire.Frame, single *wire.Burst) (taken bool, err error) {
	single.Split(run)
	n, err := port.Send(now, single.Frames())
	single.Consume(single.Len())
	return n > 0 && err == nil, err
}

// FrameFault says that the payload of a frame could not be read: its owner unmapped it, say.
type FrameFault struct{ Err error }

func (e *FrameFault) Error() string { return "payload of a frame: " + e.Err.Error() }

// Unwrap returns the memory fault.
func (e *FrameFault) Unwrap() error { return e.Err }
