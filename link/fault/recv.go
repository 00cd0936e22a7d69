package fault

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// inbound is the way in.
type inbound struct {
	held []*heldPacket
}

// heldPacket is a packet with memory of its own.
type heldPacket struct {
	hold
	packet wire.Packet
}

// Recv implements nic.Port.
func (p *Port) Recv(now clock.Time, packets []wire.Packet) int {
	p.releaseFrames(now)
	if len(p.rules) == 0 && len(p.in.held) == 0 {
		return p.inner.Recv(now, packets)
	}
	n := p.releasePackets(now, packets)
	for n < len(packets) {
		got := p.inner.Recv(now, packets[n:])
		full := got == len(packets)-n
		first := n
		for i := first; i < first+got; i++ {
			if r := p.find(Receive, packets[i].BTH().DestQP(), packets[i].BTH()); r == nil || !p.spoilPacket(now, &packets[i], r) {
				move(&packets[n], &packets[i])
				n++
				for _, h := range p.in.held {
					h.passed()
				}
			}
		}
		n += p.releasePackets(now, packets[n:])
		if !full {
			break
		}
		// The port within may have more, and who gets fewer packets than he has room for believes that there are none. To
		// ask again would end the life of those in hand.
		for i := first; i < n; i++ {
			if c := copyOf(&packets[i]); c != nil {
				move(&packets[i], c)
			}
		}
	}
	return n
}

// find returns the rule that applies to a packet.
func (p *Port) find(d Direction, qpn ib.QPN, h *wire.BTH) *rule {
	for _, r := range p.rules {
		if r.applies(d, qpn, h) {
			return r
		}
	}
	return nil
}

// spoilPacket does to a packet what the rule says. It returns false if the packet itself goes on.
func (p *Port) spoilPacket(now clock.Time, g *wire.Packet, r *rule) (gone bool) {
	switch r.Action {
	case Drop:
		return true
	case Duplicate:
		for range r.Copies {
			if c := copyOf(g); c != nil {
				p.in.held = append(p.in.held, &heldPacket{packet: *c})
			}
		}
		return false
	case Delay, Reorder:
		if c := copyOf(g); c != nil {
			p.in.held = append(p.in.held, &heldPacket{hold: r.hold(now), packet: *c})
		}
		return true
	}
	path := wire.Path{Source: g.Source, Dest: g.Dest, SourcePort: g.SourcePort, TrafficClass: g.TrafficClass, HopLimit: g.HopLimit}
	b, err := g.AppendTo(nil, 0)
	if err != nil {
		return true // payload of a local peer that is gone
	}
	h := &heldPacket{}
	if p.judge(&h.packet, r.spoil(b, &path), &path) {
		p.in.held = append(p.in.held, h)
	}
	return true
}

// copyOf returns a packet that refers to memory of its own, nil if the payload cannot be read.
func copyOf(g *wire.Packet) *wire.Packet {
	c := *g
	b := make([]byte, len(g.Header)+g.Len)
	c.Header = b[:copy(b, g.Header)]
	body := b[len(g.Header):]
	if dma.ReadPieces(body, g.Payload) != nil {
		return nil
	}
	c.SetPayload(body)
	return &c
}

// move makes dst the packet src. A packet that owns the description of its payload cannot just be assigned.
func move(dst, src *wire.Packet) {
	if dst == src {
		return
	}
	*dst = *src
	switch {
	case src.Len == 0:
		dst.SetPayload(nil)
	case len(src.Payload) == 1:
		if b, ok := src.Payload[0].Mem.(*wire.Buffer); ok {
			dst.SetPayload(b.Bytes(src.Payload[0].Off, src.Len))
		}
	}
}

// releasePackets gives out what is due, oldest first, as far as there is room.
func (p *Port) releasePackets(now clock.Time, packets []wire.Packet) (n int) {
	kept := p.in.held[:0]
	for _, h := range p.in.held {
		if n == len(packets) || !h.ready(now) {
			kept = append(kept, h)
			continue
		}
		move(&packets[n], &h.packet)
		n++
	}
	clear(p.in.held[len(kept):])
	p.in.held = kept
	return n
}
