package local

import (
	"errors"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// mux is two ports as one.
type mux struct {
	local, remote nic.Port
	isLocal       func(ib.GID) bool
	counters      nic.PortCounters
	single        *wire.Burst // packets of a run that the remote port does not take
	localFirst    bool
	quiet         bool // the network had nothing when it was last asked
	skips         int  // calls for which it is left alone
	asked         clock.Time
}

// Mux makes one port of two: frames to addresses that are local, in the eyes of isLocal, go to the one, others to the
// other. A shard that sleeps waits for the remote one. The counters are sums, as of the call to Counters.
func Mux(local, remote nic.Port, isLocal func(ib.GID) bool) nic.Port {
	return &mux{local: local, remote: remote, isLocal: isLocal, single: wire.NewBurst(wire.MaxRun)}
}

// Send implements nic.Port: run by run, so that what was taken is a beginning of the burst. Frames behind one that a full
// port does not take wait with it.
func (m *mux) Send(now clock.Time, frames []wire.Frame) (sent int, err error) {
	for sent < len(frames) {
		path := frames[sent].Path
		toLocal := m.isLocal(path.Dest)
		if !toLocal && frames[sent].Packets() > 1 && !nic.TakesRuns(m.remote, path) {
			if taken, err := m.apart(now, &frames[sent]); !taken {
				return sent, err
			}
			sent++
			continue
		}
		end := sent + 1
		for end < len(frames) && (frames[end].Path == path || m.isLocal(frames[end].Path.Dest) == toLocal) &&
			(toLocal || frames[end].Packets() == 1) {
			path = frames[end].Path
			end++
		}
		port := m.remote
		if toLocal {
			port = m.local
		}
		n, err := port.Send(now, frames[sent:end])
		sent += n
		if err != nil || sent < end {
			return sent, err
		}
	}
	return sent, nil
}

// TakesRuns reports whether the port does that packets along the path go to.
func (m *mux) TakesRuns(path *wire.Path) bool {
	if m.isLocal(path.Dest) {
		return nic.TakesRuns(m.local, path)
	}
	return nic.TakesRuns(m.remote, path)
}

// apart sends a run packet by packet along a path that was local when the run was made, and is no longer. What of it a
// congested port does not take is lost, unless that is all.
func (m *mux) apart(now clock.Time, run *wire.Frame) (taken bool, err error) {
	m.single.Split(run, 0)
	n, err := m.remote.Send(now, m.single.Frames())
	m.single.Consume(m.single.Len())
	return n > 0 && err == nil, err
}

// Recv implements nic.Port. The ports take turns in being first. Each is asked at most once, since asking again would
// end the life of the packets it gave. What the network has may wait for a few calls that bring local packets; a shard
// that sleeps learns of it by the descriptor.
func (m *mux) Recv(now clock.Time, packets []wire.Packet) int {
	first, second := m.remote, m.local
	if m.localFirst {
		first, second = second, first
	}
	m.localFirst = !m.localFirst
	n := m.ask(first, now, packets)
	if n < len(packets) {
		n += m.ask(second, now, packets[n:])
	}
	return n
}

// While there is local traffic, a network that had nothing is left alone for so many calls, but not for longer than the
// time: looking is a system call, and those were a fifth of what local WRITEs took.
const (
	remoteSkips = 4
	remoteRest  = 20 * time.Microsecond
)

func (m *mux) ask(port nic.Port, now clock.Time, packets []wire.Packet) int {
	if port != m.remote {
		n := port.Recv(now, packets)
		if n > 0 && m.quiet {
			m.skips, m.quiet = remoteSkips, false
		}
		return n
	}
	if m.skips > 0 && now.Sub(m.asked) < remoteRest {
		m.skips--
		return 0
	}
	n := port.Recv(now, packets)
	m.skips, m.quiet, m.asked = 0, n == 0, now
	return n
}

// Descriptor implements nic.Port.
func (m *mux) Descriptor() int { return m.remote.Descriptor() }

// Counters implements nic.Port.
func (m *mux) Counters() *nic.PortCounters {
	m.counters.SetSum(m.local.Counters(), m.remote.Counters())
	return &m.counters
}

// Deadline is the earlier of the two ports'.
func (m *mux) Deadline() clock.Time {
	return min(nic.PortDeadline(m.local), nic.PortDeadline(m.remote))
}

// Close implements nic.Port.
func (m *mux) Close() error { return errors.Join(m.local.Close(), m.remote.Close()) }
