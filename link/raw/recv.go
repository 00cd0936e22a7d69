package raw

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// recvSize takes the longest IP packet with what stands in front.
const recvSize = 64<<10 + 64

// reception is the way in.
type reception struct {
	batch.Inbox
	headers headers
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
	return p.in.Recv(now, p.epoll, packets)
}

// GiveRuns is what nic.GiveRuns asks.
func (p *Port) GiveRuns() { p.in.GiveRuns() }

// open makes a frame the one to be split.
func (p *Port) open(r *batch.Received) {
	in := &p.in
	tci := p.readControl(r)
	if r.Truncated || len(r.Bytes) < virtioHeader {
		p.counters.Dropped[wire.DropIP].Add(1)
		return
	}
	virtio, frame := r.Bytes[:virtioHeader], r.Bytes[virtioHeader:]
	payload, ok := in.headers.read(frame, p.cfg.Port, &in.Datagram)
	// What never left the host has no checksum yet, and a group that the kernel merged has one of its own making.
	if ok && virtio[0]&(virtioNeedsCsum|virtioDataValid) == 0 && virtio[1] == 0 {
		ok = in.headers.checked(&in.Datagram)
	}
	if !ok {
		p.counters.Dropped[wire.DropIP].Add(1)
		return
	}
	if p.cfg.Accept != nil && !p.cfg.Accept(in.Datagram.Source) {
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
	in.SL = uint8(tci >> 13)
	segment := len(payload)
	if virtio[1]&^virtioGSOECN == virtioGSOUDP {
		if n := int(binary.NativeEndian.Uint16(virtio[4:])); n > 0 {
			segment = n
		}
	}
	in.Begin(payload, segment)
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
