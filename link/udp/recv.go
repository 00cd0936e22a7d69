package udp

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// recvSize is that of the longest group.
const recvSize = 64 << 10

// Recv implements nic.Port.
func (p *Port) Recv(now clock.Time, packets []wire.Packet) int {
	if len(packets) == 0 || p.closed {
		return 0
	}
	return p.in.Recv(now, p.epoll, packets)
}

// GiveRuns is what nic.GiveRuns asks.
func (p *Port) GiveRuns() { p.in.GiveRuns() }

// open makes a message the one to be split.
func (p *Port) open(r *batch.Received) {
	d, name := &p.in.Datagram, r.Name
	*d = wire.Datagram{Dest: r.Socket.GID}
	d.SourcePort = binary.BigEndian.Uint16(name[2:])
	if r.Socket.Addr.Is4() {
		d.Source = ib.GID{10: 0xff, 11: 0xff, 12: name[4], 13: name[5], 14: name[6], 15: name[7]}
	} else {
		d.Source = ib.GID(name[8:24])
	}
	segment := p.readControl(r.Control, r.Socket)
	if p.cfg.Accept != nil && !p.cfg.Accept(d.Source) {
		p.counters.Filtered.Add(1)
		return
	}
	if len(r.Bytes) == 0 {
		p.counters.Dropped[wire.DropTooShort].Add(1)
		return
	}
	if segment == 0 {
		segment = len(r.Bytes)
	}
	p.in.Begin(r.Bytes, segment)
}

// readControl notes what is known about a message, and returns the length of its segments, 0 of a single datagram.
func (p *Port) readControl(b []byte, s *batch.Socket) (segment int) {
	d := &p.in.Datagram
	for {
		level, typ, data, rest, ok := batch.NextControl(b)
		if !ok {
			return segment
		}
		b = rest
		switch {
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(data) >= 4:
			if n := int(int32(binary.NativeEndian.Uint32(data))); n > 0 {
				segment = n
			}
		case level == unix.IPPROTO_IP && typ == unix.IP_TOS && len(data) >= 1:
			d.TrafficClass = data[0]
		case level == unix.IPPROTO_IP && typ == unix.IP_TTL && len(data) >= 4,
			level == unix.IPPROTO_IPV6 && typ == unix.IPV6_HOPLIMIT && len(data) >= 4:
			d.HopLimit = uint8(binary.NativeEndian.Uint32(data))
		case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS && len(data) >= 4:
			d.TrafficClass = uint8(binary.NativeEndian.Uint32(data))
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL:
			s.CountDrops(&p.counters, data)
		}
	}
}
