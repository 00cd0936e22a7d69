package sim

import (
	"hash/crc32"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// attacker forges packets: with the addresses, queue pair numbers and keys of real connections, and good ICRCs. It cannot
// see the wire as it sends, so that it has to guess packet sequence numbers, and here it never guesses right: no response
// of it is within what its victim waits for, no request has the number that its victim expects. Who guesses right wins,
// for RoCEv2 has no authentication. Everybody else must achieve nothing: no completion, no byte, no end of a queue pair.
//
// It also sends again, long after, what it once recorded. That is the network's privilege too, but not so late.
type attacker struct {
	w        *world
	dice     *dice
	left     int
	burst    *wire.Burst
	body     wire.Buffer
	recorded []*packet
}

func newAttacker(w *world, packets int) *attacker {
	a := &attacker{w: w, dice: newDice(w.plan.Seed, streamAttacker), left: packets, burst: wire.NewBurst(1)}
	a.body.B = make([]byte, ib.MTU4096.Bytes()+64)
	return a
}

// forgery is a kind of packet that an attacker makes. It returns the opcode and puts the rest into the header.
type forgery struct {
	name string
	op   func(d *dice) wire.Opcode
	fill func(a *attacker, to *endpoint, h []byte)
}

func opOf(ops ...wire.Opcode) func(*dice) wire.Opcode {
	return func(d *dice) wire.Opcode { return oneOf(d, ops...) }
}

// Responses, which go to a requester.
var forgedResponses = []forgery{
	{"an ACK", opOf(wire.RCAcknowledge), func(a *attacker, _ *endpoint, h []byte) {
		wire.FindAETH(h).SetSyndrome(wire.Syndrome(a.dice.below(32)))
	}},
	{"a NAK", opOf(wire.RCAcknowledge), func(a *attacker, _ *endpoint, h []byte) {
		wire.FindAETH(h).SetSyndrome(wire.NakSequence + wire.Syndrome(a.dice.below(5)))
	}},
	{"an RNR NAK", opOf(wire.RCAcknowledge), func(a *attacker, _ *endpoint, h []byte) {
		wire.FindAETH(h).SetSyndrome(wire.RNRNak(uint8(a.dice.below(32))))
	}},
	{"a reserved syndrome", opOf(wire.RCAcknowledge, wire.RCReadResponseOnly), func(a *attacker, _ *endpoint, h []byte) {
		wire.FindAETH(h).SetSyndrome(wire.Syndrome(a.dice.between(0x40, 0xff)))
	}},
	{"a READ response", opOf(wire.RCReadResponseFirst, wire.RCReadResponseMiddle, wire.RCReadResponseLast, wire.RCReadResponseOnly),
		func(*attacker, *endpoint, []byte) {}},
	{"an atomic's result", opOf(wire.RCAtomicAcknowledge), func(a *attacker, _ *endpoint, h []byte) {
		wire.FindAtomicAckETH(h).SetOriginal(a.dice.r.Uint64())
	}},
}

// Requests, which go to a responder: for memory that is there, under the right key.
var forgedRequests = []forgery{
	{"a SEND", opOf(wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly, wire.RCSendLastImm, wire.RCSendOnlyImm,
		wire.RCSendOnlyInv, wire.RCSendLastInv), func(*attacker, *endpoint, []byte) {}},
	{"a WRITE", opOf(wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly, wire.RCWriteLastImm, wire.RCWriteOnlyImm),
		func(*attacker, *endpoint, []byte) {}},
	{"a READ", opOf(wire.RCReadRequest), func(*attacker, *endpoint, []byte) {}},
	{"an atomic", opOf(wire.RCCompareSwap, wire.RCFetchAdd), func(*attacker, *endpoint, []byte) {}},
	{"an ATOMIC WRITE or a FLUSH", opOf(wire.RCAtomicWrite, wire.RCFlush), func(*attacker, *endpoint, []byte) {}},
}

// record keeps some of the packets that go by.
func (a *attacker) record(p *packet) {
	const kept = 32
	if a.left == 0 || !a.dice.chance(300) {
		return
	}
	c := a.w.net.copy(p)
	if len(a.recorded) < kept {
		a.recorded = append(a.recorded, c)
		return
	}
	// What is old stays for longer than chance has it.
	i := a.dice.between(kept/4, kept-1)
	a.w.net.free = append(a.w.net.free, a.recorded[i])
	a.recorded[i] = c
}

// strike sends a packet, sometimes. What is forged arrives at once and before all others, so that what is known of its
// victim now is true when it is judged.
func (a *attacker) strike() {
	if a.left == 0 || !a.w.faults || !a.dice.chance(50) {
		return
	}
	a.left--
	c := oneOf(a.dice, a.w.conns...)
	to := oneOf(a.dice, c.ends[:]...)
	if to.app.gone() || to.peer.app.gone() {
		return
	}
	switch a.dice.below(8) {
	case 0, 1:
		if len(a.recorded) > 0 {
			p := a.w.net.copy(oneOf(a.dice, a.recorded...))
			p.forged = true
			a.w.census["replayed packets"]++
			a.announce(p, p.end.peer, "a packet of long ago")
			n := p.end.peer.app.node
			at := n.steer(p)
			at.inbox = append(at.inbox, p)
			n.wake(a.w.now.Add(n.dice.upTo(a.w.plan.Lag)))
		}
	case 2:
		// Nobody listens to strangers, so that these may guess right.
		f := oneOf(a.dice, append(forgedRequests[:len(forgedRequests):len(forgedRequests)], forgedResponses...)...)
		a.forge(&f, to, a.near(to), oneOf(a.dice, ofStranger, toNobody, ofPartition, ofService))
	case 3, 4:
		f := oneOf(a.dice, forgedRequests...)
		a.forge(&f, to, a.unexpected(to), genuine)
	default:
		f := oneOf(a.dice, forgedResponses...)
		a.forge(&f, to, a.unasked(to), genuine)
	}
}

// disguise is what of a forgery is wrong besides its number.
type disguise uint8

const (
	genuine     disguise = iota
	ofStranger           // another source
	toNobody             // a queue pair number that is nobody's
	ofPartition          // another partition
	ofService            // another transport service
)

// near is a number that the victim is likely to believe.
func (a *attacker) near(to *endpoint) ib.PSN {
	attr, _, _ := to.app.ctx.QueryQP(to.qp)
	return oneOf(a.dice, attr.RQPSN, attr.SQPSN.Sub(1), to.oldest())
}

// unexpected is a number of a request that the victim does not expect: of one to come, or of one that has ended. Of a READ
// under way a part could be asked for again, in a way that its requester did not mean: that is a right guess, too.
func (a *attacker) unexpected(to *endpoint) ib.PSN {
	attr, _, _ := to.app.ctx.QueryQP(to.qp)
	switch {
	case a.w.tamper.Lucky:
		return attr.RQPSN
	case a.dice.chance(500):
		old := to.peer.oldest()
		if old.After(attr.RQPSN) {
			old = attr.RQPSN // what is behind was flushed, and the victim still waits for it
		}
		return old.Sub(a.distance())
	}
	return attr.RQPSN.Add(a.distance())
}

// unasked is a number of a response to nothing: answered long ago, or not used yet.
func (a *attacker) unasked(to *endpoint) ib.PSN {
	attr, _, _ := to.app.ctx.QueryQP(to.qp)
	if a.w.tamper.Lucky {
		return attr.SQPSN.Sub(1)
	}
	if a.dice.chance(500) {
		return to.oldest().Sub(a.distance())
	}
	return attr.SQPSN.Add(a.distance() - 1)
}

// distance is 1 or more, mostly little.
func (a *attacker) distance() uint32 {
	return uint32(a.dice.between(1, oneOf(a.dice, 1, 4, 64, 1<<22)))
}

// oldest is not after the oldest number for which this end waits for an answer.
func (e *endpoint) oldest() ib.PSN {
	n := min(int(e.block.SendDone()), e.posted)
	return e.numberOf(n)
}

// forge makes a packet to an end, as if its peer had sent it.
func (a *attacker) forge(f *forgery, to *endpoint, psn ib.PSN, how disguise) {
	d := a.dice
	a.burst.Consume(a.burst.Len())
	frame := a.burst.Next()
	op := f.op(d) | wire.Opcode(to.service())
	h := frame.SetHeader(op)
	path := wire.Path{Source: to.peer.app.node.gid, Dest: to.app.node.gid, SourcePort: uint16(d.r.Uint32()), HopLimit: 64}
	frame.Path = &path
	bth := frame.BTH()
	bth.SetPKey(ib.DefaultPKey)
	bth.SetDestQP(to.qp.QPN())
	bth.SetPSN(psn)
	bth.SetAckReq(d.chance(500))
	bth.SetSolicited(d.chance(200))
	switch how {
	case ofStranger:
		path.Source[15] += byte(d.between(100, 200))
	case toNobody:
		n := to.qp.QPN() ^ ib.QPN(1<<d.below(24))
		if n == 0 || n == ib.MulticastQPN || to.app.node.endpointOf(n) != nil {
			return
		}
		bth.SetDestQP(n)
	case ofPartition:
		bth.SetPKey(ib.DefaultPKey ^ 1<<d.below(15))
	}
	a.aim(to, h)
	f.fill(a, to, h)
	if n := a.payload(to, op); n > 0 {
		d.fill(a.body.B[:n])
		frame.Add(&a.body, 0, n)
	}
	if how == ofService {
		bth.SetOpcode(bth.Opcode() ^ oneOf(d, wire.Opcode(0x20), 0xa0))
	}
	if how == genuine && d.chance(50) {
		bth.SetPadCount(uint8(d.below(4)))
	}
	p := a.w.net.take()
	b, err := frame.AppendTo(p.Bytes[:0], 0)
	if err != nil {
		a.w.failf("%v", err)
	}
	*p = packet{
		Datagram: wire.Datagram{Bytes: b, Source: path.Source, Dest: path.Dest, SourcePort: path.SourcePort, HopLimit: 63},
		end:      to.peer, forged: true,
	}
	a.deliver(p, to, f.name)
}

// aim lets a request go for memory that is really there.
func (a *attacker) aim(to *endpoint, h []byte) {
	d, t := a.dice, to.target
	at := t.base + uint64(d.below(len(t.mem)))
	key := t.mr.RKey()
	if r := wire.FindRETH(h); r != nil {
		r.SetVA(at)
		r.SetRKey(key)
		r.SetLength(uint32(d.below(to.conn.plan.MTU.Bytes() * 2)))
	}
	if r := wire.FindAtomicETH(h); r != nil {
		r.SetVA(at &^ 7)
		r.SetRKey(key)
		r.SetSwapAdd(d.r.Uint64())
	}
	if r := wire.FindIETH(h); r != nil {
		r.SetRKey(key)
	}
	if x := wire.FindXRCETH(h); x != nil && to.role == target {
		x.SetSRQN(to.pool.srq.Number())
	}
	if r := wire.FindFETH(h); r != nil {
		r.SetPlacement(1)
	}
}

func (a *attacker) payload(to *endpoint, op wire.Opcode) int {
	mtu := to.conn.plan.MTU.Bytes()
	switch op.Payload() {
	case wire.PayloadNone:
		return 0
	case wire.PayloadFull:
		return mtu
	}
	if op&0x1f == wire.RCAtomicWrite {
		return 8
	}
	return a.dice.below(mtu + 1)
}

func (a *attacker) announce(p *packet, to *endpoint, what string) {
	w := a.w
	w.record(uint64(w.now), uint64(crc32.ChecksumIEEE(p.Bytes)))
	to.conn.losses++
	if w.logs != nil {
		w.logf("attacker", "to %s: %s, %s", to.name, what, describe(p.Bytes))
	}
}

// deliver lets a forged packet arrive before everything else that waits at the victim's port.
func (a *attacker) deliver(p *packet, to *endpoint, what string) {
	a.announce(p, to, what)
	a.w.census["forged packets"]++
	n := to.app.node
	at := n.steer(p)
	at.inbox = append(at.inbox, nil)
	copy(at.inbox[1:], at.inbox)
	at.inbox[0] = p
	n.wake(a.w.now.Add(n.dice.upTo(a.w.plan.Lag)))
}
