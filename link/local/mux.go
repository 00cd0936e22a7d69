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
	asked         clock.Time    // the network, last
	came          clock.Time    // local packets, last
	rest          time.Duration // for which the network is left alone; 0 if it had something
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
		if !toLocal && m.tooLong(&frames[sent]) {
			// The path was local when the run was made.
			if taken, err := nic.SendApart(m.remote, now, &frames[sent], m.single); !taken {
				return sent, err
			}
			sent++
			continue
		}
		end := sent + 1
		for end < len(frames) && (frames[end].Path == path || m.isLocal(frames[end].Path.Dest) == toLocal) &&
			(toLocal || !m.tooLong(&frames[end])) {
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

// tooLong reports whether the remote port does not take a frame as it is.
func (m *mux) tooLong(f *wire.Frame) bool {
	n := f.Packets()
	return n > 1 && n > nic.LongestRun(m.remote, f.Path, f.PacketLen())
}

// LongestRun is that of the port that packets along the path go to.
func (m *mux) LongestRun(path *wire.Path, size int) int {
	if m.isLocal(path.Dest) {
		return nic.LongestRun(m.local, path, size)
	}
	return nic.LongestRun(m.remote, path, size)
}

// GiveRuns is for the remote port: the local one gives what it took.
func (m *mux) GiveRuns() { nic.GiveRuns(m.remote) }

// StaysHere reports whether packets along the path go to the local port.
func (m *mux) StaysHere(path *wire.Path) bool { return m.isLocal(path.Dest) }

// Recv implements nic.Port. The ports take turns in being first. Each is asked at most once, since asking again would
// end the life of the packets it gave.
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

// While there is local traffic, a network that had nothing is left alone, at first for the shorter time, and if it goes on
// having nothing for up to the longer: looking is a system call, and those were a seventh of what local WRITEs took. Without
// local traffic it is asked in every call, and a shard that sleeps is woken by the descriptor.
const (
	shortRest = 6 * time.Microsecond
	longRest  = 48 * time.Microsecond
)

func (m *mux) ask(port nic.Port, now clock.Time, packets []wire.Packet) int {
	if port != m.remote {
		n := port.Recv(now, packets)
		if n > 0 {
			m.came = now
		}
		return n
	}
	if m.again().After(now) {
		return 0
	}
	n := port.Recv(now, packets)
	m.asked = now
	if m.rest = max(min(2*m.rest, longRest), shortRest); n > 0 {
		m.rest = 0
	}
	return n
}

// again is until when the network is left alone.
func (m *mux) again() clock.Time { return min(m.asked, m.came).Add(m.rest) }

// Descriptor implements nic.Port.
func (m *mux) Descriptor() int { return m.remote.Descriptor() }

// Counters implements nic.Port.
func (m *mux) Counters() *nic.PortCounters {
	m.counters.SetSum(m.local.Counters(), m.remote.Counters())
	return &m.counters
}

// Deadline is the earlier of the two ports', or when a network that is left alone is asked again.
func (m *mux) Deadline() clock.Time {
	t := min(nic.PortDeadline(m.local), nic.PortDeadline(m.remote))
	if again := m.again(); again.After(m.asked) {
		t = min(t, again)
	}
	return t
}

// Close implements nic.Port.
func (m *mux) Close() error { return errors.Join(m.local.Close(), m.remote.Close()) }
