package batch

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/wire"
)

const (
	// recvRounds bounds how often one Recv asks again when all that came was refused.
	recvRounds = 8
	// joinedPackets bounds the packets of the runs of one Recv.
	joinedPackets = 128
)

// splitter makes packets of a message, which is a datagram or a group of them that the kernel merged.
type splitter struct {
	rest    []byte // what is left of it
	segment int    // length of its datagrams
	first   uint16 // identification of the first
	next    uint16 // and of the next
	step    uint16 // from one to the next
	joiner  *wire.Joiner
}

// GiveRuns is what nic.GiveRuns asks.
func (in *Inbox) GiveRuns() { in.joiner = wire.NewJoiner(joinedPackets) }

// Recv does what nic.Port has it do. What does not fit into packets is kept for the next call.
func (in *Inbox) Recv(now clock.Time, epoll int, packets []wire.Packet) int {
	n := in.split(packets)
	// Buffers are received into again only while no packet that refers to them is given out.
	for round := 0; n == 0 && round < recvRounds; round++ {
		if !in.Fill(now, epoll) {
			break
		}
		n = in.split(packets)
	}
	return n
}

// Begin makes a message the one to be split: in.Datagram is what all its datagrams have in common, with the identification of
// the first. Each but the last is segment bytes long.
func (in *Inbox) Begin(payload []byte, segment int) {
	in.rest, in.segment, in.first, in.next, in.step = payload, segment, in.Datagram.ID, in.Datagram.ID, 1
	in.Datagram.Merged = true // or alone, where it makes no difference
}

// split turns messages into packets until packets are full, those of runs counted, or nothing is left.
func (in *Inbox) split(packets []wire.Packet) (n int) {
	if in.joiner != nil {
		in.joiner.Reset()
	}
	var bytes, came int
	for came < len(packets) {
		if len(in.rest) == 0 {
			r := in.Next()
			if r == nil {
				break
			}
			in.open(r)
			continue
		}
		p := &packets[n]
		length := in.take()
		if drop := in.judge(p); drop != wire.Accepted {
			in.counters.Dropped[drop].Add(1)
			continue
		}
		run := in.join(p, len(packets)-came)
		n++
		came += run
		bytes += run * length
	}
	if n > 0 {
		in.counters.ReceivedPackets.Add(uint64(came))
		in.counters.ReceivedBytes.Add(uint64(bytes))
	}
	return n
}

// take makes the next datagram of the message in.Datagram, and returns its length.
func (in *Inbox) take() int {
	length := min(in.segment, len(in.rest))
	in.Datagram.Bytes, in.rest = in.rest[:length:length], in.rest[length:]
	in.Datagram.ID = in.next
	return length
}

// judge parses in.Datagram. The identifications of a group count from that of the first, if the kernel was left to split it, or
// if it was merged from datagrams that did so. The kernel merges datagrams of one constant identification too.
func (in *Inbox) judge(p *wire.Packet) wire.Drop {
	d := &in.Datagram
	drop := wire.Parse(p, d)
	if drop == wire.DropICRC && d.IDKnown && d.ID != in.first {
		counted := d.ID
		d.ID = in.first
		if drop = wire.Parse(p, d); drop == wire.Accepted {
			in.step = 0
		} else {
			d.ID = counted
		}
	}
	in.next = d.ID + in.step // which wire.Parse may have found
	p.SL = in.SL
	return drop
}

// join makes a run of p and those that follow it in the message, if it may, and returns how many they are.
func (in *Inbox) join(p *wire.Packet, limit int) (n int) {
	for n = 1; in.joiner != nil && n < limit && len(in.rest) >= in.segment; n++ {
		rest := in.rest
		in.take()
		if !in.joiner.Join(p, &in.Datagram) {
			in.rest = rest
			break
		}
		in.next = in.Datagram.ID + in.step
	}
	return n
}
