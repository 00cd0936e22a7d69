package udp

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const (
	// recvMessages buffers of recvSize bytes take what one system call brings, each a datagram or many merged.
	recvMessages = 64
	recvSize     = 64 << 10
	// fewMessages is how many are asked for while they come merged, so that they stay in the processor's cache.
	fewMessages     = 8
	recvControlSize = 128
	// recvRounds bounds how often one Recv asks again when all that came was refused.
	recvRounds = 8
	maxReady   = 16
)

// reception is the way in.
type reception struct {
	sockets []*receiver
	turn    uint // which ready socket goes first
	events  [maxReady]unix.EpollEvent

	messages [recvMessages]message
	iovecs   [recvMessages]iovec
	from     [recvMessages]*receiver
	buffers  []byte
	names    []byte
	controls []byte

	ask         int // messages to ask for
	count, next int // messages received, and the one to be split next
	// What is left of the message being split, the length of its segments, and what they have in common.
	rest     []byte
	segment  int
	datagram wire.Datagram
}

func (in *reception) init() {
	in.ask = fewMessages
	in.buffers = make([]byte, recvMessages*recvSize)
	in.names = make([]byte, recvMessages*nameSize)
	in.controls = make([]byte, recvMessages*recvControlSize)
	for i := range in.messages {
		in.iovecs[i] = iovec{addressOf(in.buffers[i*recvSize:]), recvSize}
		in.messages[i] = message{
			name: addressOf(in.names[i*nameSize:]), control: addressOf(in.controls[i*recvControlSize:]),
			iov: addressOfIovecs(in.iovecs[i:]), iovLen: 1,
		}
	}
}

// Recv implements nic.Port. What does not fit into packets is kept for the next call.
func (p *Port) Recv(_ clock.Time, packets []wire.Packet) int {
	if len(packets) == 0 || p.closed {
		return 0
	}
	n := p.split(packets)
	// Buffers are received into again only while no packet that refers to them is given out.
	for round := 0; n == 0 && round < recvRounds; round++ {
		if !p.fill() {
			break
		}
		n = p.split(packets)
	}
	return n
}

// fill receives messages from whichever sockets have some.
func (p *Port) fill() bool {
	in := &p.in
	in.count, in.next = 0, 0
	if len(in.sockets) == 1 {
		p.fillFrom(in.sockets[0])
		in.adapt()
		return in.count > 0
	}
	n, errno := ready(p.epoll, in.events[:])
	if errno != 0 {
		return false
	}
	in.turn++
	for i := range n {
		fd := int(in.events[(uint(i)+in.turn)%uint(n)].Fd)
		for _, r := range in.sockets {
			if r.fd == fd {
				p.fillFrom(r)
			}
		}
	}
	in.adapt()
	return in.count > 0
}

// adapt decides how many messages to ask for next: many if as many as we asked for came and were single datagrams, few
// if they came merged.
func (in *reception) adapt() {
	if in.count == 0 {
		return
	}
	bytes := 0
	for i := range in.messages[:in.count] {
		bytes += int(in.messages[i].n)
	}
	switch mean := bytes / in.count; {
	case mean >= recvSize/4:
		in.ask = fewMessages
	case in.count >= fewMessages:
		in.ask = recvMessages
	}
}

func (p *Port) fillFrom(r *receiver) {
	in := &p.in
	free := in.messages[in.count:in.ask]
	if len(free) == 0 {
		return
	}
	for i := range free {
		free[i].nameLen, free[i].controlLen = nameSize, recvControlSize
	}
	n, errno := recvmmsg(r.fd, free)
	for errno == unix.EINTR {
		n, errno = recvmmsg(r.fd, free)
	}
	if errno != 0 {
		return
	}
	for range n {
		in.from[in.count] = r
		in.count++
	}
}

// split turns received messages into packets until packets are full or nothing is left.
func (p *Port) split(packets []wire.Packet) (n int) {
	in := &p.in
	d := &in.datagram
	var bytes uint64
	for n < len(packets) {
		if len(in.rest) == 0 {
			if in.next == in.count {
				break
			}
			p.open(in.next)
			in.next++
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

// open makes message i the one to be split.
func (p *Port) open(i int) {
	in := &p.in
	m, r := &in.messages[i], in.from[i]
	size := int(m.n)
	in.rest, in.segment = in.buffers[i*recvSize:i*recvSize+size], size
	d := &in.datagram
	*d = wire.Datagram{Dest: r.gid}
	name := in.names[i*nameSize : (i+1)*nameSize]
	d.SourcePort = binary.BigEndian.Uint16(name[2:])
	if r.addr.Is4() {
		d.Source = ib.GID{10: 0xff, 11: 0xff, 12: name[4], 13: name[5], 14: name[6], 15: name[7]}
	} else {
		d.Source = ib.GID(name[8:24])
	}
	if p.cfg.Accept != nil && !p.cfg.Accept(d.Source) {
		p.counters.Filtered.Add(1)
		in.rest = nil
	}
	control := in.controls[i*recvControlSize : (i+1)*recvControlSize]
	p.readControl(control[:min(m.controlLen, recvControlSize)], r)
	if size == 0 {
		p.counters.Dropped[wire.DropTooShort].Add(1)
	}
}

func (p *Port) readControl(b []byte, r *receiver) {
	d := &p.in.datagram
	for {
		level, typ, data, rest, ok := nextCmsg(b)
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
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL && len(data) >= 4:
			// The sum since the socket was made, as of when this datagram was queued.
			total := binary.NativeEndian.Uint32(data)
			if lost := total - r.drops; int32(lost) > 0 {
				p.counters.SocketDrops.Add(uint64(lost))
				r.drops = total
			}
		}
	}
}
