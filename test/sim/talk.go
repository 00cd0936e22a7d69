package sim

import (
	"slices"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// talker is one end of a talk over an unreliable service, an application of its own: one context, one completion queue, one
// queue pair. What it says may be lost, come twice or in another order, as the network has it. What has to be right
// nevertheless: see hearing.go.
type talker struct {
	w    *world
	node *node
	peer *talker
	plan *TalkPlan
	side *TalkerPlan
	dice *dice
	name string
	end  *endpoint // what the network takes it for

	ctx    *nic.Context
	bell   *abi.Doorbell
	page   []byte
	pd     *nic.PD
	cq     *nic.CQ
	reader *cq.Reader
	queue  []byte
	qp     *nic.QP
	block  *abi.QPBlock
	rings  []byte
	ah     *nic.AH // UD

	arena                *arena
	source, sink, target *area // target: a slot for each WRITE of the peer, its own for good

	script   []request
	start    ib.PSN
	fresh    ib.PSN // of the next packet
	left     int    // requests of which all packets have left
	posted   int
	ended    int
	nextSend clock.Time

	receives []receive
	ready    int
	taken    int
	flushed  int // of these
	nextRecv clock.Time

	arrivals []arrival // the ends of messages that came, in that order
	heard    int       // arrivals that are not before what was received last
	next     clock.Time
	closed   bool // it was taken to the error state
	dead     bool
	change
}

// buildTalks makes the talks of the plan.
func (w *world) buildTalks() {
	for i := range w.plan.Talks {
		p := &w.plan.Talks[i]
		var ends [2]*talker
		for side := range ends {
			ends[side] = newTalker(w, p, i, side)
		}
		ends[0].peer, ends[1].peer = ends[1], ends[0]
		ends[0].end.peer, ends[1].end.peer = ends[1].end, ends[0].end
		for _, t := range ends {
			t.create()
			t.node.talkers = append(t.node.talkers, t)
		}
		for _, t := range ends {
			if t.plan.Service == ib.QPTypeUD {
				way := t.way()
				t.ah = must(w, func() (*nic.AH, error) { return t.ctx.CreateAH(t.pd, &way) })
			}
			t.join()
			t.connect()
			t.postReceives()
			t.wake(w.now)
		}
		w.talkers = append(w.talkers, ends[:]...)
	}
}

func newTalker(w *world, p *TalkPlan, index, side int) *talker {
	d := newDice(w.plan.Seed, uint64(streamTalker+2*index+side))
	t := &talker{
		w: w, node: w.nodes[p.Device[side]], plan: p, side: &p.Side[side], dice: d,
		name: endpointName(len(w.conns)+index, side), next: clock.Never, start: ib.NewPSN(d.r.Uint32()),
		script: slices.Clone(p.Side[side].Script),
	}
	if d.chance(500) {
		t.start = ib.PSN(0).Sub(uint32(d.between(0, 20)))
	}
	t.fresh = t.start
	t.end = &endpoint{
		talker: t, name: t.name, app: &application{w: w, node: t.node, name: t.name},
		conn: &connection{index: len(w.conns) + index, plan: &ConnectionPlan{}},
	}
	return t
}

// create makes context, queues and memory.
func (t *talker) create() {
	w := t.w
	t.page = make([]byte, abi.DoorbellSize)
	t.bell = must(w, func() (*abi.Doorbell, error) { return abi.NewDoorbell(t.page) })
	t.ctx = must(w, func() (*nic.Context, error) {
		return t.node.dev.OpenContext(nic.ContextConfig{Owner: true, Doorbell: t.page, Async: t.event})
	})
	t.pd = must(w, t.ctx.AllocPD)
	sends, recvs := uint32(t.side.Depth), uint32(len(t.side.Receives))
	capacity := abi.RoundQPCap(ib.QPCap{
		MaxSendWR: sends, MaxRecvWR: recvs, MaxSendSGE: uint32(t.side.SGEs), MaxRecvSGE: uint32(t.side.SGEs), MaxInlineData: inlineBytes,
	})
	entries := capacity.MaxSendWR + capacity.MaxRecvWR
	t.queue = make([]byte, abi.CQBlockSize(abi.CQCapacity(entries)))
	t.cq = must(w, func() (*nic.CQ, error) {
		return t.ctx.CreateCQ(nic.CQConfig{Block: t.queue, Entries: entries, Notifier: t})
	})
	t.reader = must(w, func() (*cq.Reader, error) { return cq.NewReader(t.queue, t.cq.Capacity()) })
	t.qp = must(w, func() (*nic.QP, error) {
		return t.ctx.CreateQP(nic.QPConfig{
			PD: t.pd, Type: t.plan.Service, SendCQ: t.cq, RecvCQ: t.cq, Cap: capacity,
			Block: func(l abi.QPLayout) (b []byte, err error) {
				t.rings = make([]byte, l.Size())
				t.block, err = abi.NewQPBlock(t.rings, l)
				return t.rings, err
			},
		})
	})
	t.createMemory(int(recvs))
}

func (t *talker) createMemory(recvs int) {
	n, sends, writes := t.plan.MaxBytes, t.side.Depth+1, 0
	for i := range t.peer.script {
		if t.peer.script[i].isWrite() {
			writes++
		}
	}
	long := n + ib.GRHSize
	t.arena = newArena(canary + areaSize(0, sends, n) + areaSize(0, recvs, long) + areaSize(1, writes, n))
	t.source, t.sink = t.arena.carve(t.dice, 0, sends, n), t.arena.carve(t.dice, 0, recvs, long)
	t.target = t.arena.carve(t.dice, 1, writes, n)
	for _, r := range []struct {
		area   *area
		access ib.AccessFlags
	}{{t.source, 0}, {t.sink, ib.AccessLocalWrite}, {t.target, ib.AccessLocalWrite | ib.AccessRemoteWrite}} {
		if err := t.arena.register(t.ctx, t.pd, r.area, r.access); err != nil {
			t.w.failf("%v", err)
		}
	}
	for _, n := range t.side.Receives {
		t.receives = append(t.receives, receive{length: n})
	}
}

// talkKey is the Q_Key of all who talk by datagrams.
const talkKey = 0x51317

// way is the way to the peer.
func (t *talker) way() ib.AHAttr {
	to, _ := t.destination()
	return ib.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: to, TrafficClass: uint8(oneOf(t.dice, 0, 2, 106))}}
}

func (t *talker) modify(a ib.QPAttr, mask ib.QPAttrMask) {
	if err := t.ctx.ModifyQP(t.qp, &a, mask|ib.QPAttrState); err != nil {
		t.w.failf("%s: %v", t.name, err)
	}
	t.node.wake(t.w.now)
}

// connect takes the queue pair to RTS.
func (t *talker) connect() {
	const first = ib.QPAttrPKeyIndex | ib.QPAttrPort
	if t.plan.Service == ib.QPTypeUD {
		t.modify(ib.QPAttr{State: ib.StateInit, PortNum: 1, QKey: talkKey}, first|ib.QPAttrQKey)
		t.modify(ib.QPAttr{State: ib.StateRTR}, 0)
	} else {
		t.modify(ib.QPAttr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteWrite}, first|ib.QPAttrAccessFlags)
		t.modify(ib.QPAttr{State: ib.StateRTR, AH: t.way(), PathMTU: t.plan.MTU, DestQPN: t.peer.qp.QPN(), RQPSN: t.peer.fresh},
			ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN)
	}
	t.modify(ib.QPAttr{State: ib.StateRTS, SQPSN: t.start}, ib.QPAttrSQPSN)
}

// event takes an asynchronous event. There is no reason for one but a port that fails, and SQD.
func (t *talker) event(e ib.EventType, handle uint32, _ uint64) {
	if !t.isDrained(e) && !t.node.isPortEvent(e) {
		t.w.accuse("%s: unexpected event %v of %d", t.name, e, handle)
	}
}

// Notify implements cq.Notifier.
func (t *talker) Notify(uint64, uint32) { t.wake(t.w.now.Add(t.dice.upTo(t.w.plan.Lag))) }

// wake asks for a turn at at.
func (t *talker) wake(at clock.Time) {
	if at.Before(t.next) {
		t.next = at
		t.w.events.push(event{at: at, talker: t})
	}
}

// turn is the talker's turn: it takes completions, posts, and sleeps until there is something to do.
func (t *talker) turn() {
	t.next = clock.Never
	for more := true; more; more = t.reader.ReqNotify(abi.ArmNext) {
		t.drain()
	}
	if t.closed || t.isAsleep() {
		return
	}
	t.goOn()
	t.postReceives()
	if t.mayPost() && !t.w.now.Before(t.nextSend) {
		for n := t.dice.between(1, t.side.Eager); n > 0 && t.mayPost(); n-- {
			t.postSend()
		}
		t.nextSend = t.w.now.Add(t.dice.upTo(t.side.Think))
		t.ring()
	}
	if t.mayPost() {
		t.wake(max(t.nextSend, t.w.now+1))
	}
	if t.ready < len(t.receives) {
		t.wake(max(t.nextRecv, t.w.now+1))
	}
}

func (t *talker) ring() {
	t.bell.Ring(t.qp.Slot())
	t.node.wake(t.w.now.Add(t.dice.upTo(t.w.plan.Lag)))
}

// mayPost reports whether there is a next request, and room for it.
func (t *talker) mayPost() bool {
	return t.posted < len(t.script) && t.posted-t.ended < t.side.Depth
}

// postSend posts the next request. Those without a completion of their own are known to have ended when a later one has, so
// that the last one that fits has to be signaled.
func (t *talker) postSend() {
	d, r := t.dice, &t.script[t.posted]
	r.signaled = r.signaled || t.posted-t.ended == t.side.Depth-1
	w := abi.SendWQE{WRID: t.id(abi.QueueSend, t.posted), Opcode: uint8(r.op), Flags: uint8(r.flags()), Imm: r.imm}
	if t.ah != nil {
		_, to := t.destination()
		w.Operand, w.Compare = uint64(to)<<32|uint64(t.ah.Handle()), talkKey
	}
	if r.isWrite() {
		r.remote = t.peer.targetOf(t.posted)
		r.at = d.below(slack)
		w.RemoteAddr, w.RKey = r.remote.address(r.at), uint32(t.peer.target.mr.RKey())
	}
	r.data = make([]byte, r.length)
	d.fill(r.data)
	fits := false
	if r.inline {
		fits = t.block.PutSendInline(uint32(t.posted-t.base), &w, r.data)
	} else {
		r.local = t.source.claim(d, r)
		r.list = r.local.list(d, r.length, t.side.SGEs)
		r.local.scatter(r.list, r.data, r.local.write)
		fits = t.block.PutSend(uint32(t.posted-t.base), &w, r.list)
	}
	if !fits {
		t.w.failf("%s: request #%d does not fit its ring", t.name, t.posted)
	}
	t.w.logf(t.name, "posts %v #%d of %d bytes, flags %v", r.op, t.posted, r.length, r.flags())
	t.posted++
	t.block.PublishSend(uint32(t.posted - t.base))
}

// targetOf returns the slot for a WRITE of the peer.
func (t *talker) targetOf(request int) *slot {
	n := 0
	for i := range request {
		if t.peer.script[i].isWrite() {
			n++
		}
	}
	return &t.target.slots[n]
}

func (t *talker) postReceives() {
	for t.ready < len(t.receives) && !t.w.now.Before(t.nextRecv) {
		v := &t.receives[t.ready]
		v.slot = t.sink.claim(t.dice, v)
		v.list = v.slot.list(t.dice, v.length, t.side.SGEs)
		t.block.PutRecv(uint32(t.ready-t.recvBase), &abi.RecvWQE{WRID: t.id(abi.QueueRecv, t.ready)}, v.list)
		t.ready++
		t.block.PublishRecv(uint32(t.ready - t.recvBase))
		if t.side.Tardiness > 0 {
			t.nextRecv = t.w.now.Add(1 + t.dice.upTo(t.side.Tardiness))
		}
	}
}

// id is the wr_id of a request.
func (t *talker) id(queue uint8, index int) uint64 {
	return uint64(t.qp.QPN())<<32 | uint64(queue)<<24 | uint64(index)
}

// finished reports whether everything that it had to say has been said. Whether it was heard is nobody's promise.
func (t *talker) finished() bool {
	return t.dead || t.ended == len(t.script) && t.sqd == nil && t.sleeps == 0
}

// blocks are all memory that the device has of it.
func (t *talker) blocks() [][]byte { return [][]byte{t.page, t.queue, t.rings, t.arena.mem} }

// crash is the end of its device.
func (t *talker) crash() {
	t.dead = true
	for _, b := range t.blocks() {
		scribble(b)
	}
}
