package nic

import (
	"errors"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/yield"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

const never = clock.Never

// How much a shard does in one round before it looks at everything else again. A lone sender of 64 bytes beside 64 queue
// pairs that saturate a local port has its completion after 19 us with a burst of 96 KiB, 25 us with 128 KiB, 14 us with
// 64 KiB, which costs the others a tenth of their throughput.
const (
	burstFrames = 128
	burstBytes  = 96 << 10
	// What leaves by the network leaves in groups of at most 64 KiB. This is two whole ones of full packets, BTH and ICRC
	// included, at a path MTU of 4096, since a group costs the kernel 3 us whether it is full or not.
	groupsBytes  = 2 * 15 * (4096 + 16)
	recvPackets  = 64
	bellSlots    = 256
	flushedBytes = 64 // what a call counts at least that moved nothing and wants another
	// stall is a gap between rounds after which the port is emptied before timers fire: what they wait for may have
	// arrived long ago.
	stall = time.Millisecond
	// drainPackets bounds that, and quiesce. A local ring holds fewer.
	drainPackets = 1 << 16
)

// shard is the part of a device that moves data. Everything in it belongs to the goroutine that turns it; others hand it
// commands by do.
type shard struct {
	dev   *Device
	index int
	port  Port
	now   clock.Time // of this round
	hush  clock.Time // until when the port is left alone
	// stamp is the time for completions: read when their cause was seen, since a round may have begun, on a busy machine,
	// long before the request was even posted.
	stamp clock.Time

	table    *qpTable
	sched    scheduler
	inFlight transport.InFlight
	waiting  ring[*waiter] // for room in flight
	timers   timers
	tenants  map[uint64]*tenant
	groups   map[ib.GID]*group // the device's
	parts    []*part           // of contexts; see bells.go for their order
	asked    clock.Time        // when all of them were asked for rings
	near     int               // where among the first the next goes that rings
	overruns []*CQ             // that died since the last look
	held     []*CQ             // that hold an event back
	inBatch  bool              // packets that arrived together are being dealt with
	touched  []*QP             // by those packets, whose deadlines are set when all are dealt with
	locked   *CQ               // that stays locked meanwhile; nil for none

	burst   *wire.Burst
	settled int // frames of the burst that are whole
	// delivered is how many messages from the network this round has told applications of.
	delivered int
	told      *QP       // whose application was told of a message last, until eagerly
	reply     replyWait // for a reply to what hearAnswer heard
	moment    func()    // yields the processor; tests do something else
	packets   []wire.Packet
	slots     []uint32 // rung

	// Private copies, here so that they need not be allocated.
	looped  wire.Packet // a datagram to a group, on its way to our own
	single  wire.Single // a packet of a run
	sendWQE abi.SendWQE
	recvWQE abi.RecvWQE
	cqe     abi.CQE

	tally
	drops    drops
	informed informed

	roads roads
	in    inbox
	wait  sleeper
}

func newShard(d *Device, index int, port Port, random func() uint64) (*shard, error) {
	s := &shard{
		dev:      d,
		index:    index,
		port:     port,
		inFlight: transport.InFlight{Limit: d.limits.share(len(d.cfg.Ports))},
		table:    newQPTable(int(d.limits.MaxQP), index, len(d.cfg.Ports), random),
		tenants:  make(map[uint64]*tenant),
		groups:   make(map[ib.GID]*group),
		burst:    wire.NewBurst(burstFrames),
		packets:  make([]wire.Packet, recvPackets),
		touched:  make([]*QP, 0, recvPackets),
		slots:    make([]uint32, 0, bellSlots),
		moment:   yield.Thread,
		wait:     newSleeper(),
	}
	GiveRuns(port)
	if !d.cfg.Manual {
		if err := s.wait.open(port.Descriptor()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// round does everything there is to do once, in the order in which one thing makes work for the next, and reports whether
// there was anything.
func (s *shard) round(now clock.Time) (busy bool) {
	gap := now.Sub(s.now)
	s.now = now
	busy = s.commands(now)
	busy = s.doorbells(false) || busy
	limit := recvPackets
	if gap > stall {
		limit = drainPackets
	}
	busy = s.accept(now, limit) > 0 || busy
	s.delivered = 0
	received := s.receive(now, limit)
	busy = received > 0 || busy
	if s.delivered > 0 {
		s.reply.end(true)
	}
	heard, swift := false, false
	// A message by itself, or with the acknowledgement of what it answers.
	if received <= 2 && s.delivered == 1 && s.sched.ready == 1 && !s.dev.cfg.Manual {
		heard, swift = s.hearAnswer()
	}
	busy = s.expire(now) || busy
	busy = s.transmit(now) || busy
	if swift && s.sched.ready == 0 && s.burst.Len() == 0 {
		s.hush = s.time().Add(hush)
	}
	if heard {
		s.reply.begin(s.time())
	}
	if !busy && len(s.parts) > nearBells {
		busy = s.doorbells(true)
	}
	return busy
}

// next returns when the next round has something to do if nothing arrives.
func (s *shard) next() clock.Time {
	if s.sched.ready > 0 {
		return s.now
	}
	t := min(s.timers.next(), PortDeadline(s.port))
	if s.burst.Len() > 0 {
		t = min(t, s.now.Add(congestionPause))
	}
	for _, q := range s.held {
		t = min(t, q.queue.Deadline())
	}
	return t
}

// congestionPause is how long a port that took nothing is left alone by a shard that has nothing else to do.
const congestionPause = 100 * time.Microsecond

// receive takes packets from the port until it has none or limit is reached, and returns how many there were. It stops
// where another shard has no room for what there may be.
func (s *shard) receive(now clock.Time, limit int) (n int) {
	if s.hush.After(now) {
		return 0
	}
	for n < limit {
		room := s.clearance()
		if s.roads.stalled = room == 0; s.roads.stalled {
			break
		}
		got := s.port.Recv(now, s.packets[:room])
		if got == 0 {
			break
		}
		s.stamp = s.time()
		came := s.deal(now, s.packets[:got])
		n += came
		s.wakeOthers()
		if came <= 2 && s.delivered == 1 && limit <= recvPackets {
			break // what hearAnswer is for: nothing else comes, usually, and looking costs a system call
		}
	}
	return n
}

// deal hands packets that arrived together to their queue pairs, or to other shards, and returns how many there are:
// a run of this device's own counts as one.
func (s *shard) deal(now clock.Time, packets []wire.Packet) (n int) {
	s.inBatch = true
	for i := range packets {
		p := &packets[i]
		n++
		if !p.Local {
			n += p.Packets() - 1
		}
		if s.elsewhere(p) {
			continue
		}
		if p.Packets() > 1 {
			s.takeRun(now, p)
			continue
		}
		s.take(now, p)
	}
	s.endBatch()
	return n
}

// take hands a packet to the queue pair that it is for.
func (s *shard) take(now clock.Time, p *wire.Packet) {
	if p.BTH().DestQP() == ib.MulticastQPN {
		s.arrived(now, p)
		return
	}
	q, r := s.judge(p)
	if r != accepted {
		s.drops.count(r)
		return
	}
	if p.Opcode == wire.CNP {
		s.notified(now, q, p)
		return
	}
	if p.TrafficClass&ecnMask == ecnCE {
		s.marked(now, q, p)
	}
	s.after(q, s.engineReceive(now, q, p))
}

// takeRun hands a run of packets over as a whole, if nothing is unusual about it, and otherwise one by one.
func (s *shard) takeRun(now clock.Time, p *wire.Packet) {
	if q, r := s.judge(p); r == accepted && p.TrafficClass&ecnMask != ecnCE {
		if active, taken := s.engineReceiveRun(now, q, p); taken {
			s.after(q, active)
			return
		}
	}
	for i := range p.Packets() {
		s.take(now, s.single.Of(p, i))
	}
}

// expire fires the deadlines that are due.
func (s *shard) expire(now clock.Time) (busy bool) {
	// An engine that wants to be called again at the same time gets its turn in the next round.
	for range s.timers.n + 1 {
		q := s.timers.due(now)
		if q == nil {
			break
		}
		busy = true
		s.stamp = s.time()
		s.after(q, s.engineExpire(now, q))
	}
	for i := len(s.held) - 1; i >= 0; i-- {
		q := s.held[i]
		if t := q.queue.Deadline(); t != never && t.After(now) {
			continue
		}
		s.dropHeld(q)
		if q.queue.Deadline() != never {
			busy = true
			if err := guarded(func() { q.queue.Expire(now) }); err != nil {
				s.kill(q.ctx, err.Error())
			}
		}
		if q.queue.Deadline() != never {
			s.noteHeld(q) // another shard posted meanwhile
		}
	}
	return busy
}

// transmit fills the burst from the queue pairs that have something, in the scheduler's order, and hands it to the port.
func (s *shard) transmit(now clock.Time) (busy bool) {
	if s.sched.ready > 0 {
		s.stamp = s.time()
	}
	network := false
	for budget := burstBytes; budget > 0 && !s.burst.Full(); {
		f, allowance := s.sched.next()
		if f == nil {
			break
		}
		busy = true
		q := f.qp
		before := s.burst.Len()
		s.settled = before
		state := q.state
		if q.congestion.dcqcn.limited {
			q.congestion.pace(now)
		}
		s.inFlight.Refused = false
		ease := q.ease()
		if ease == 1 && !network {
			network = true
			budget += groupsBytes - burstBytes
		}
		bytes, more := s.engineTransmit(now, q, min(allowance, budget)*ease)
		q.congestion.dcqcn.count(bytes)
		bytes = (bytes + ease - 1) / ease
		s.await(q)
		more = more || q.state != state // it failed on the way and has work to flush
		if more && bytes <= 0 {
			bytes = flushedBytes
		}
		s.sched.charge(f, bytes, more)
		budget -= bytes
		if (q.srq != nil || q.xrc != nil) && !more {
			s.lastWQE(q)
		}
		s.sent(now, q, before)
		s.after(q, false)
	}
	return s.send(now) || busy
}

// ease is how many bytes of q count as one, since what is divided among queue pairs is the shard's time: bytes that go as runs
// inside the device take less than half as much of it as others.
func (q *QP) ease() int {
	if q.path != nil && q.local && q.path.MaxRun > 1 {
		return 2
	}
	return 1
}

// after is what follows every call of an engine: the queue pair is scheduled if it has something to send, its deadline
// entered, and what the call brought to light about the application takes effect.
func (s *shard) after(q *QP, active bool) {
	s.settled = s.burst.Len()
	s.admit()
	if q.dead {
		return
	}
	if active {
		s.sched.add(&q.flow)
	}
	switch {
	case !s.inBatch:
		s.setTimer(q)
	case !q.touched:
		q.touched = true
		s.touched = append(s.touched, q)
	}
	if q.doomed {
		q.doomed = false
		s.fail(q, ib.EventQPFatal)
	}
	if len(s.overruns) > 0 {
		s.settleOverruns()
	}
}

// setTimer asks the engine when it wants to be called.
func (s *shard) setTimer(q *QP) {
	if t := s.engineDeadline(s.now, q); t != never && !q.dead {
		s.timers.set(q, t)
	}
}

// send hands the burst to the port and reports whether it took anything. What it did not take stays first.
func (s *shard) send(now clock.Time) (took bool) {
	for {
		frames := s.burst.Sendable()
		if len(frames) == 0 {
			break
		}
		sent, err := s.port.Send(now, frames)
		if sent > 0 {
			took = true
			s.burst.Consume(sent)
		}
		if err == nil && sent < len(frames) {
			break // the port is congested
		}
		if err == nil {
			continue
		}
		var fault *FrameFault
		if !errors.As(err, &fault) {
			s.portFailed(err)
			break
		}
		took = true
		f := &s.burst.Frames()[0]
		qpn, cookie := f.QPN, f.Cookie
		s.burst.Consume(1)
		s.settled = s.burst.Len()
		if q := s.table.find(qpn); q != nil {
			s.after(q, s.engineFaulted(now, q, cookie))
		}
	}
	s.settled = s.burst.Len()
	return took
}

// portFailed gives up what waits for a port that does not work: it is lost as on a broken link. The port counts as down
// until its link comes up again.
func (s *shard) portFailed(err error) {
	s.lost += uint64(s.burst.Len())
	s.burst.Consume(s.burst.Len())
	if s.dev.portFailed.CompareAndSwap(false, true) {
		s.dev.log.Error("the port has failed", "error", err)
		s.dev.publishPort()
		s.dev.raise(ib.EventPortErr)
	}
}

// quiescePatience is how often quiesce tries a port that takes nothing, a pause apart.
const (
	quiescePatience = 50
	quiescePause    = 100 * time.Microsecond
)

// quiesce returns when no frame that was made before refers to memory of applications any more: those of the burst are
// sent, those in the port's local ring received. Nothing new is sent meanwhile, so there is an end to it. What a
// congested port refuses for some milliseconds is lost.
func (s *shard) quiesce(now clock.Time) {
	if s.wait.stop {
		return // the port is closed, and contexts quiesced before that
	}
	defer func() { s.roads.insist = false }()
	for tries, total := 0, 0; ; {
		took := s.send(now)
		n := s.receive(now, recvPackets) + s.accept(now, recvPackets)
		total += n
		switch {
		case n == 0 && s.burst.Len() == 0 && !s.roads.stalled, total > drainPackets:
			return
		case n > 0 || took:
			tries = 0
		case tries == quiescePatience:
			s.lost += uint64(s.burst.Len())
			s.burst.Consume(s.burst.Len())
			s.settled = 0
			s.roads.insist = true
		default:
			tries++
			if !s.dev.cfg.Manual {
				time.Sleep(quiescePause)
			}
		}
	}
}

// empty takes what other shards have handed over so far.
func (s *shard) empty(now clock.Time) {
	if !s.wait.stop {
		s.accept(now, laneParcels)
	}
}

// idle reports whether nothing is left to send.
func (s *shard) idle() (idle bool) {
	s.do(func(clock.Time) {
		idle = s.sched.ready == 0 && s.burst.Len() == 0 && s.vacant() && s.timers.next().After(s.now)
	})
	return idle
}
