package udp

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const (
	recvSize = 64 << 10
	// recvRounds bounds how often one Recv asks again when all that came was refused.
	recvRounds = 8
)

// reception is the way in.
type reception struct {
	batch.Inbox
	// What is left of the message being split, the length of its segments, and what they have in common.
	rest     []byte
	segment  int
	datagram wire.Datagram
}

// Recv implements nic.Port. What does not fit into packets is kept for the next call.
func (p *Port) Recv(_ clock.Time, packets []wire.Packet) int {
	if len(packets) == 0 || p.closed {
		return 0
	}
	n := p.split(packets)
	// Buffers are received into again only while no packet that refers to them is given out.
	for round := 0; n == 0 && round < recvRounds; round++ {
		if !p.in.Fill(p.epoll) {
			break
		}
		n = p.split(packets)
	}
	return n
}

// split turns received messages into packets until packets are full or nothing is left.
func (p *Port) split(packets []wire.Packet) (n int) {
	in := &p.in
	d := &in.datagram
	var bytes uint64
	for n < len(packets) {
		if len(in.rest) == 0 {
			r, ok := in.Next()
			if !ok {
				break
			}
			p.open(&r)
			continue
		}
		length := min(in.segment, len(in.rest))
		d.Bytes, in.rest = in.rest[:length:length], in.rest[length:]
		drop := wire.Parse(&packets[n], d)
		// The kernel numbers the segments of a group one after another.
		d.ID++
		if drop != wire.Accepted {
			p.counters.Dropped[drop].Add(1)
			continue
		}
		n++
		bytes += uint64(length)
	}
	if n > 0 {
		p.counters.ReceivedPackets.Add(uint64(n))
		p.counters.ReceivedBytes.Add(bytes)
	}
	return n
}

// open makes a message the one to be split.
func (p *Port) open(r *batch.Received) {
	in := &p.in
	in.rest, in.segment = r.Bytes, len(r.Bytes)
	d, name := &in.datagram, r.Name
	*d = wire.Datagram{Dest: r.Socket.GID, Merged: true}
	d.SourcePort = binary.BigEndian.Uint16(name[2:])
	if r.Socket.Addr.Is4() {
		d.Source = ib.GID{10: 0xff, 11: 0xff, 12: name[4], 13: name[5], 14: name[6], 15: name[7]}
	} else {
		d.Source = ib.GID(name[8:24])
	}
	if p.cfg.Accept != nil && !p.cfg.Accept(d.Source) {
		p.counters.Filtered.Add(1)
		in.rest = nil
	}
	p.readControl(r.Control, r.Socket)
	if len(r.Bytes) == 0 {
		p.counters.Dropped[wire.DropTooShort].Add(1)
	}
}

func (p *Port) readControl(b []byte, s *batch.Socket) {
	d := &p.in.datagram
	for {
		level, typ, data, rest, ok := batch.NextControl(b)
		if !ok {
			return
		}
		b = rest
		switch {
		case level == unix.IPPROTO_UDP && typ == unix.UDP_GRO && len(data) >= 4:
			if n := int(int32(binary.NativeEndian.Uint32(data))); n > 0 {
				p.in.segment = n
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
