package raw

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const (
	// recvSize takes the longest IP packet with what stands in front.
	recvSize = 64<<10 + 64
	// recvRounds bounds how often one Recv asks again when all that came was refused.
	recvRounds = 8
)

// reception is the way in.
type reception struct {
	batch.Inbox
	headers headers
	// What is left of the group being split, the length of its segments, and what they have in common.
	rest     []byte
	segment  int
	datagram wire.Datagram
	sl       uint8
	base     uint16 // identification in the header of the group
	index    uint16 // of the next segment
}

// Recv implements nic.Port. What does not fit into packets is kept for the next call.
func (p *Port) Recv(now clock.Time, packets []wire.Packet) int {
	if len(packets) == 0 || p.closed {
		return 0
	}
	if p.resolver != nil && p.resolver.told() {
		p.out.now = now
		p.out.release()
	}
	if p.sendOnly {
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

// split turns received frames into packets until packets are full or nothing is left.
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
		if drop := in.judge(&packets[n]); drop != wire.Accepted {
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

// judge parses a segment. The identifications of a group count from that of the first, if the kernel was left to split it,
// or if it was merged from datagrams that did so. The kernel merges datagrams of one constant identification too.
func (in *reception) judge(packet *wire.Packet) wire.Drop {
	d := &in.datagram
	d.ID = in.base + in.index
	drop := wire.Parse(packet, d)
	if drop == wire.DropICRC && d.IDKnown && in.index > 0 {
		d.ID = in.base
		drop = wire.Parse(packet, d)
	}
	packet.SL = in.sl
	in.index++
	return drop
}

// open makes a frame the one to be split.
func (p *Port) open(r *batch.Received) {
	in := &p.in
	in.rest = nil
	tci := p.readControl(r)
	if r.Truncated || len(r.Bytes) < virtioHeader {
		p.counters.Dropped[wire.DropIP].Add(1)
		return
	}
	virtio, frame := r.Bytes[:virtioHeader], r.Bytes[virtioHeader:]
	payload, ok := in.headers.read(frame, p.cfg.Port, &in.datagram)
	// What never left the host has no checksum yet, and a group that the kernel merged has one of its own making.
	if ok && virtio[0]&(virtioNeedsCsum|virtioDataValid) == 0 && virtio[1] == 0 {
		ok = in.headers.checked(&in.datagram)
	}
	if !ok {
		p.counters.Dropped[wire.DropIP].Add(1)
		return
	}
	if p.cfg.Accept != nil && !p.cfg.Accept(in.datagram.Source) {
		p.counters.Filtered.Add(1)
		return
	}
	if len(payload) == 0 {
		p.counters.Dropped[wire.DropTooShort].Add(1)
		return
	}
	if in.headers.tagged {
		tci = uint16(in.headers.tag.Priority) << 13
	}
	in.sl = uint8(tci >> 13)
	in.datagram.Merged = true // or alone, where it makes no difference
	in.rest, in.segment, in.base, in.index = payload, len(payload), in.datagram.ID, 0
	if virtio[1]&^virtioGSOECN == virtioGSOUDP {
		if n := int(binary.NativeEndian.Uint16(virtio[4:])); n > 0 {
			in.segment = n
		}
	}
}

// readControl counts what the kernel dropped, and returns the VLAN tag that it took off the frame, 0 if there was none.
func (p *Port) readControl(r *batch.Received) (tci uint16) {
	b := r.Control
	for {
		level, typ, data, rest, ok := batch.NextControl(b)
		if !ok {
			return tci
		}
		b = rest
		switch {
		case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL:
			r.Socket.CountDrops(&p.counters, data)
		case level == unix.SOL_PACKET && typ == unix.PACKET_AUXDATA && len(data) >= sizeofAuxdata:
			// struct tpacket_auxdata (linux/if_packet.h): status 0, vlan_tci 16.
			if binary.NativeEndian.Uint32(data)&unix.TP_STATUS_VLAN_VALID != 0 {
				tci = binary.NativeEndian.Uint16(data[16:])
			}
		}
	}
}

const sizeofAuxdata = 20
