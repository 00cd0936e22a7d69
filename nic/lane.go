package nic

import (
	"sync/atomic"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// A packet belongs to the shard of the queue pair that it is for. Most arrive there: the network's port steers them, and
// what a queue pair sends to another of its own shard goes by way of that shard's port. The rest reaches a wrong shard,
// which hands it over: a packet for a queue pair of the same device on another shard, a datagram that the kernel merged
// with others, or steered wrongly, and those to groups, which are for several.
//
// From each shard to each other there is a lane, into which one puts and out of which one takes, without a lock.

// lane is packets on their way from one shard to another.
type lane struct {
	parcels []parcel // as many as a power of two

	_      [cacheLine]byte
	put    atomic.Uint32 // the sender's: how many were ever put
	seen   uint32        // taken, when the sender last looked
	bodies []byte        // for copies of payload, parcelBody for each parcel; nil until there is one to be made
	_      [cacheLine]byte
	// taken is the receiver's. It moves when the packet has been dealt with, so that the lane is empty only when nothing that
	// was in it is used any more.
	taken atomic.Uint32
	_     [cacheLine]byte
}

const cacheLine = 64

// parcel is a packet, with copies of what may not stay where it is.
type parcel struct {
	packet wire.Packet
	head   [wire.MaxHeader]byte
	pieces [wire.MaxPieces]wire.Piece // a run has to stay where it is: taken apart it might find no room
}

const (
	// parcelBody is the longest payload that can be copied: that of a packet of the largest path MTU.
	parcelBody = 4096
	// laneParcels is how long lanes are together that lead to one shard. A lane holds the packets of one Recv at least.
	laneParcels = 1024
)

func newLane(shards int) *lane {
	n := recvPackets
	for 2*n*shards <= laneParcels {
		n *= 2
	}
	return &lane{parcels: make([]parcel, n)}
}

// body returns room for a copy of the payload of the i-th parcel. A device of 32 shards has a thousand lanes, few of which ever
// hold a copy: their bodies are a quarter of a gigabyte, and so each lane has its own from the first copy on.
func (l *lane) body(i uint32) []byte {
	if l.bodies == nil {
		l.bodies = make([]byte, len(l.parcels)*parcelBody)
	}
	return l.bodies[i*parcelBody:][:parcelBody:parcelBody]
}

// room returns for how many packets there is room. It is the sender's, as is add.
func (l *lane) room() int {
	n := uint32(len(l.parcels))
	if l.put.Load()-l.seen > n-recvPackets {
		l.seen = l.taken.Load()
	}
	return int(n - (l.put.Load() - l.seen))
}

// add puts a packet into the lane. It returns false if there is no room, or if its payload cannot be read any more.
func (l *lane) add(p *wire.Packet) bool {
	if l.room() == 0 {
		return false
	}
	at := l.put.Load()
	i := at & uint32(len(l.parcels)-1)
	c := &l.parcels[i]
	c.packet = *p
	c.packet.Header = c.head[:copy(c.head[:], p.Header)]
	if stays(p) {
		c.packet.Payload = c.pieces[:copy(c.pieces[:], p.Payload)]
	} else {
		if p.Len > parcelBody {
			return false
		}
		body := l.body(i)[:p.Len]
		if dma.ReadPieces(body, p.Payload) != nil {
			return false
		}
		c.packet.SetPayload(body)
	}
	l.put.Store(at + 1)
	return true
}

// stays reports whether the payload of p may stay where it is: it is memory of applications, named by a reliable service,
// whose requests do not end before their payload has arrived; and whoever unmaps it waits until the lanes hold no older
// packet (Device.Grace). Buffers are reused by their owners.
func stays(p *wire.Packet) bool {
	if s := p.Opcode.Service(); !p.Local || s == wire.ServiceUC || s == wire.ServiceUD || len(p.Payload) > wire.MaxPieces {
		return false
	}
	for i := range p.Payload {
		if _, buffer := p.Payload[i].Mem.(*wire.Buffer); buffer {
			return false
		}
	}
	return true
}

// waits returns how many packets wait. It is the receiver's, as are next and done.
func (l *lane) waits() int { return int(l.put.Load() - l.taken.Load()) }

// next returns the oldest packet that waits.
func (l *lane) next() *wire.Packet {
	return &l.parcels[l.taken.Load()&uint32(len(l.parcels)-1)].packet
}

// done says that the oldest packet has been dealt with.
func (l *lane) done() { l.taken.Store(l.taken.Load() + 1) }

// roads are the lanes of a shard; there are none where it is the only one.
type roads struct {
	to, from []*lane // by shard, nil for itself
	rang     uint32  // shards, as bits, that were given packets and are to be woken
	stalled  bool    // the port was left alone, since another shard had no room
	insist   bool    // it is not: what finds no room is lost
	handed   atomic.Uint64
	spilt    atomic.Uint64 // lost for want of room, or of their payload
}

// connect makes the lanes between shards.
func connect(shards []*shard) {
	if len(shards) == 1 {
		return
	}
	for _, s := range shards {
		s.roads.to, s.roads.from = make([]*lane, len(shards)), make([]*lane, len(shards))
	}
	for i, s := range shards {
		for j, o := range shards {
			if i != j {
				l := newLane(len(shards))
				s.roads.to[j], o.roads.from[i] = l, l
			}
		}
	}
}

// clearance returns how many packets may be received, so that whichever shard they are for has room for them. A port is
// left alone while a shard that is behind has no room: what is local must not be lost, and waits where it is.
func (s *shard) clearance() int {
	n := recvPackets
	if s.roads.insist {
		return n
	}
	for _, l := range s.roads.to {
		if l != nil {
			n = min(n, l.room())
		}
	}
	return n
}

// elsewhere hands a packet over if it is another shard's, and reports so.
func (s *shard) elsewhere(p *wire.Packet) bool {
	if s.roads.to == nil {
		return false
	}
	n := p.BTH().DestQP()
	to := ShardOf(n, len(s.roads.to))
	if to == s.index || n == ib.MulticastQPN {
		return false
	}
	if p.Packets() > 1 && !stays(p) {
		for i := range p.Packets() {
			s.hand(s.single.Of(p, i), to)
		}
		return true
	}
	s.hand(p, to)
	return true
}

// hand puts a packet into the lane to a shard, which is woken by wakeOthers. What finds no room is lost.
func (s *shard) hand(p *wire.Packet, to int) {
	defer s.containHand(p.BTH().DestQP(), to)
	if !s.roads.to[to].add(p) {
		s.roads.spilt.Add(1)
		return
	}
	s.roads.handed.Add(1)
	s.roads.rang |= 1 << to
}

// containHand is deferred around what concerns a packet for a queue pair of another shard: a panic is that queue pair's.
func (s *shard) containHand(n ib.QPN, to int) {
	r := recover()
	if r == nil {
		return
	}
	s.roads.spilt.Add(1)
	o := s.dev.shards[to]
	o.post(func(now clock.Time) {
		if q := o.table.find(n); q != nil {
			o.fell(now, q, r)
			return
		}
		s.dev.log.Error("internal error: panic in handing over a packet", "qpn", n, "panic", r)
	})
}

// wakeOthers wakes the shards that were given packets.
func (s *shard) wakeOthers() {
	for i := 0; s.roads.rang != 0; i++ {
		if s.roads.rang&(1<<i) != 0 {
			s.roads.rang &^= 1 << i
			s.dev.shards[i].wake()
		}
	}
}

// accept takes the packets that other shards have handed over, from each at most limit, and returns how many.
func (s *shard) accept(now clock.Time, limit int) (n int) {
	s.inBatch = true
	for _, l := range s.roads.from {
		if l == nil {
			continue
		}
		for range min(limit, l.waits()) {
			if n == 0 {
				s.stamp = s.time()
			}
			n++
			p := l.next()
			switch {
			case p.BTH().DestQP() == ib.MulticastQPN:
				s.deliver(now, p, nil)
			case p.Packets() > 1:
				s.takeRun(now, p)
			default:
				s.take(now, p)
			}
			l.done()
		}
	}
	s.endBatch()
	return n
}

// vacant reports whether nothing is on its way to this shard.
func (s *shard) vacant() bool {
	for _, l := range s.roads.from {
		if l != nil && l.waits() > 0 {
			return false
		}
	}
	return true
}
