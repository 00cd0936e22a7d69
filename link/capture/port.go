package capture

import (
	"strconv"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
)

// Port is a port whose traffic is captured. It is used by the goroutine that uses the port within.
type Port struct {
	nic.Port
	file    *File
	iface   int
	isLocal func(ib.GID) bool

	payload []byte // of UDP
	block   block
	path    wire.Path
}

var _ nic.Port = (*Port)(nil)

// Wrap captures what passes port, on an interface of that name. isLocal, which may be nil, says which destinations are
// the device itself: their packets are noted so, and appear once, when they are sent.
func (f *File) Wrap(name string, port nic.Port, isLocal func(ib.GID) bool) (*Port, error) {
	i, err := f.addInterface(name)
	if err != nil {
		return nil, err
	}
	if isLocal == nil {
		isLocal = func(ib.GID) bool { return false }
	}
	const room = 5000 // a frame of the largest MTU; larger ones make it grow
	return &Port{
		Port: port, file: f, iface: i, isLocal: isLocal, payload: make([]byte, 0, room),
		block: block{iface: i, data: make([]byte, 0, room), comment: make([]byte, 0, 32)},
	}, nil
}

// Send implements nic.Port. Only what the port took is captured.
func (p *Port) Send(now clock.Time, frames []wire.Frame) (sent int, err error) {
	at := p.file.stamp(now) // before: the answer may be captured while we are still here
	sent, err = p.Port.Send(now, frames)
	for i := range frames[:sent] {
		f := &frames[i]
		b, err := f.AppendTo(p.payload[:0], 0)
		if err != nil {
			// The memory went away after the frame was sent.
			p.file.drop(p.iface)
			continue
		}
		p.payload = b
		p.record(at, f.Path, Outbound, f.QPN, p.isLocal(f.Path.Dest))
	}
	return sent, err
}

// Recv implements nic.Port.
func (p *Port) Recv(now clock.Time, packets []wire.Packet) int {
	n := p.Port.Recv(now, packets)
	at := now
	if n > 0 {
		at = p.file.stamp(now)
	}
	for i := range packets[:n] {
		g := &packets[i]
		if g.Local {
			continue
		}
		b, err := g.AppendTo(p.payload[:0], 0)
		if err != nil {
			p.file.drop(p.iface)
			continue
		}
		p.payload = b
		p.path = wire.Path{Source: g.Source, Dest: g.Dest, SourcePort: g.SourcePort, TrafficClass: g.TrafficClass,
			HopLimit: g.HopLimit}
		p.record(at, &p.path, Inbound, g.BTH().DestQP(), false)
	}
	return n
}

// stamp is the time of what passes now.
func (f *File) stamp(now clock.Time) clock.Time {
	if f.live == nil {
		return now
	}
	return f.live()
}

// Deadline is that of the port within.
func (p *Port) Deadline() clock.Time { return nic.PortDeadline(p.Port) }

// record queues the datagram in payload. qpn is the queue pair at this end.
func (p *Port) record(now clock.Time, path *wire.Path, d Direction, qpn ib.QPN, local bool) {
	b := &p.block
	b.time, b.direction = now, d
	b.data = wire.AppendEthernet(b.data[:0], path, 0, p.payload)
	b.comment = strconv.AppendUint(append(b.comment[:0], "qp 0x"...), uint64(qpn), 16)
	if local {
		b.comment = append(b.comment, " local"...)
	}
	p.file.add(b)
}
