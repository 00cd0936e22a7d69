package sim

import (
	"hash/crc32"
	"strconv"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// network carries packets, badly.
type network struct {
	w    *world
	dice *dice
	plan *NetworkPlan
	free []*packet

	latest clock.Time // of all packets
}

// packet is a datagram on its way.
type packet struct {
	wire.Datagram
	end     *endpoint // that sent it
	message int       // of a talker: the request that it belongs to
	id      uint16    // IPv4 identification that it really has
	spoilt  bool      // it is not what was sent, in a place that the ICRC covers
	forged  bool      // by the attacker
	altered bool      // a header is not what was sent, and the ICRC is right nevertheless
}

// port is how a device meets the network.
type port struct {
	node     *node
	inbox    []*packet // arrived
	lent     []*packet // given out by the last Recv
	counters nic.PortCounters
	single   *wire.Burst // of a run

	refuses clock.Time // until when frames are refused, which counts as lost
	failed  bool       // it takes nothing, until back
	ever    bool       // it has failed at some time
	back    clock.Time
}

var _ nic.Port = (*port)(nil)

// Send implements nic.Port. A port that is congested takes fewer frames.
func (p *port) Send(_ clock.Time, frames []wire.Frame) (sent int, err error) {
	net := p.node.w.net
	if p.node.port.failed {
		for i := range frames {
			// The device gives them up.
			if end := p.node.endpointOf(frames[i].QPN); end != nil {
				singles := p.apart(&frames[i])
				for k := range singles {
					end.look(&singles[k])
				}
				end.conn.losses++
			}
		}
		return 0, errPort
	}
	for i := range frames {
		if net.happens(net.plan.Congest) {
			return i, nil
		}
		if frames[i].Packets() > 1 {
			if err := p.sendRun(&frames[i]); err != nil {
				return i, err
			}
			continue
		}
		if err := net.accept(p.node, &frames[i]); err != nil {
			return i, &nic.FrameFault{Err: err}
		}
		p.counters.SentPackets.Add(1)
	}
	return len(frames), nil
}

// Recv implements nic.Port.
func (p *port) Recv(_ clock.Time, packets []wire.Packet) int {
	w := p.node.w
	w.net.free = append(w.net.free, p.lent...)
	p.lent = p.lent[:0]
	n, taken, received := 0, 0, 0
	for n < len(packets) && taken < len(p.inbox) {
		d := p.inbox[taken]
		p.lent = append(p.lent, d)
		taken++
		drop := wire.Parse(&packets[n], &d.Datagram)
		p.counters.Dropped[drop].Add(1)
		switch {
		case d.forged, d.altered:
		case drop == wire.Accepted && d.spoilt:
			w.accuse("a spoilt packet was accepted: %s", describe(d.Bytes))
		case drop != wire.Accepted && !d.spoilt:
			w.accuse("a good packet was dropped, %v: %s", drop, describe(d.Bytes))
		}
		if drop == wire.Accepted && d.end.talker != nil {
			d.end.peer.talker.arrive(d)
		} else if drop == wire.Accepted && !d.forged {
			d.end.peer.notePatience(&packets[n])
		}
		if drop == wire.Accepted {
			packets[n].Local = d.Source == p.node.gid && !d.forged // a device knows what it has sent itself
			received++
			if n == 0 || !p.join(&packets[n-1], &packets[n]) {
				n++
			}
		}
	}
	p.inbox = p.inbox[:copy(p.inbox, p.inbox[taken:])]
	p.counters.ReceivedPackets.Add(uint64(received))
	return n
}

// Descriptor implements nic.Port.
func (p *port) Descriptor() int { return -1 }

// Counters implements nic.Port.
func (p *port) Counters() *nic.PortCounters { return &p.counters }

// Close implements nic.Port.
func (p *port) Close() error { return nil }

// happens decides whether a fault does, while there are any.
func (n *network) happens(permille int) bool { return n.w.faults && n.dice.chance(permille) }

// accept takes a frame from a device, and looks at it as the oracle of the wire.
func (n *network) accept(from *node, f *wire.Frame) error {
	w := n.w
	end := from.endpointOf(f.QPN)
	if end == nil {
		w.accuse("%s sent a frame of queue pair %v, which it does not have", from.name, f.QPN)
		return nil
	}
	message := end.look(f)
	n.latest = w.now
	p := n.take()
	p.id = 0
	if n.dice.chance(300) {
		p.id = oneOf(n.dice, uint16(n.dice.below(64)), uint16(n.dice.r.Uint32())) // segments of a group have their index
	}
	b, err := f.AppendTo(p.Bytes[:0], p.id)
	if err != nil {
		return err
	}
	*p = packet{
		Datagram: wire.Datagram{
			Bytes: b, Source: f.Path.Source, Dest: f.Path.Dest, SourcePort: f.Path.SourcePort,
			TrafficClass: f.Path.TrafficClass, HopLimit: f.Path.HopLimit - 1,
		},
		end: end, message: message, id: p.id,
	}
	w.record(uint64(w.now), uint64(f.QPN), uint64(crc32.ChecksumIEEE(b)))
	w.attacker.record(p)
	n.carry(p)
	return nil
}

// carry decides the fate of a packet.
func (n *network) carry(p *packet) {
	from := p.end.app.node
	switch {
	case n.happens(n.plan.Loss):
		n.lose(p, "lost")
		return
	case p.end.talker != nil && !p.end.talker.isHeard():
		n.lose(p, "to an empty group")
		return
	case from.isCut(p.end.peer.app.node):
		n.lose(p, "cut off")
		return
	case n.w.faults && n.w.now.Before(from.port.refuses):
		from.port.counters.SendErrors.Add(1)
		n.lose(p, "refused")
		return
	}
	if n.happens(n.plan.Duplicate) {
		n.send(n.copy(p), n.dice.upTo(n.plan.Ghost), "again")
	}
	if n.happens(n.plan.Corrupt) {
		n.spoil(p)
		p.end.conn.losses++
	}
	if !p.spoilt && n.happens(n.plan.Rewrite) {
		n.rewrite(p)
	}
	late := time.Duration(0)
	if n.happens(n.plan.Reorder) {
		late = n.dice.upTo(n.plan.Late)
	}
	n.send(p, late, "")
}

func (n *network) lose(p *packet, note string) {
	p.end.conn.losses++
	n.witness(p, note, true)
	n.free = append(n.free, p)
}

// send lets a packet arrive.
func (n *network) send(p *packet, late time.Duration, note string) {
	if n.happens(n.plan.Mark) && p.TrafficClass&3 != 0 {
		p.TrafficClass |= 3 // congestion experienced
	}
	if p.spoilt {
		note = "spoilt"
	}
	if p.altered {
		note += " rewritten"
	}
	n.witness(p, note, false)
	to := n.w.hearer(p)
	if to == nil {
		n.w.accuse("a packet went to %v, where nobody is", p.Dest.Addr())
		return
	}
	p.IDKnown = p.spoilt || n.plan.IDKnown
	p.ID = 0
	if p.IDKnown {
		p.ID = p.id
	}
	at := n.w.now.Add(n.plan.Latency + n.dice.upTo(n.plan.Jitter) + late)
	n.w.events.push(event{at: at, node: to, packet: p})
}

// spoil changes a packet so that its ICRC must be wrong: up to three bits, which every CRC-32 sees, or its length. The
// ICRC does not cover byte 4 of the BTH.
func (n *network) spoil(p *packet) {
	if n.dice.chance(200) {
		p.spoilt = true
		p.Bytes = p.Bytes[:n.dice.below(len(p.Bytes))]
		return
	}
	bits := len(p.Bytes) * 8
	bit, stride := n.dice.below(bits), n.dice.between(1, 24)
	for range n.dice.between(1, 3) {
		if bit < bits && bit/8 != 4 {
			p.Bytes[bit/8] ^= 1 << (bit % 8)
			p.spoilt = true
		}
		bit += stride
	}
}

func (n *network) take() *packet {
	if last := len(n.free) - 1; last >= 0 {
		p := n.free[last]
		n.free = n.free[:last]
		return p
	}
	return &packet{}
}

func (n *network) copy(p *packet) *packet {
	c := n.take()
	b := append(c.Bytes[:0], p.Bytes...)
	*c = *p
	c.Bytes = b
	return c
}

// witness logs a packet that leaves.
func (n *network) witness(p *packet, note string, lost bool) {
	w := n.w
	if w.logs == nil {
		return
	}
	text := describe(p.Bytes)
	to := p.end.peer
	w.logf(p.end.name, "-> %s  %s %s", to.name, text, note)
	op := wire.Opcode(p.Bytes[0])
	s := trace.Step{Time: w.now, From: p.end.name, To: to.name, Label: op.String(), Note: note, Lost: lost}
	if len(p.Bytes) >= wire.BTHSize {
		s.PSN = (*wire.BTH)(p.Bytes).PSN()
		if h := wire.FindAETH(p.Bytes); h != nil {
			s.Meaning = h.Syndrome().String()
		}
	}
	w.logs.step(p.end.conn.index, s)
}

// describe says what a datagram is.
func describe(b []byte) string {
	if len(b) < wire.BTHSize {
		return "a stump"
	}
	op := wire.Opcode(b[0])
	h := (*wire.BTH)(b)
	text := op.String() + " psn " + h.PSN().String()
	if h.AckReq() {
		text += " ackreq"
	}
	if a := wire.FindAETH(b); a != nil {
		text += " " + a.Syndrome().String()
	}
	if n := len(b) - op.HeaderLen() - int(h.PadCount()) - wire.ICRCSize; n > 0 {
		text += " " + bytesText(n)
	}
	return text
}

func bytesText(n int) string { return strconv.Itoa(n) + " B" }
