package sim

import (
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// connection is two queue pairs that talk to each other.
type connection struct {
	index  int
	plan   *ConnectionPlan
	ends   [2]*endpoint
	losses int  // packets that did not arrive as they were
	broken bool // ran out of retries
	// tainted says that one of its ends is mad: what goes over it means nothing.
	tainted bool

	offence *offence // with which it ends; nil for none
}

// endpoint is one of them, with the application's half of its rings.
type endpoint struct {
	app     *application
	conn    *connection
	peer    *endpoint
	talker  *talker // whose stand-in it is before the network; nil for an end of a connection
	side    *SidePlan
	role    role
	sibling *endpoint // of a target or the other way round; nil for none
	name    string

	qp                   *nic.QP
	block                *abi.QPBlock
	rings                []byte
	sendQueue, recvQueue *queue
	pool                 *pool     // where receives come from; nil for a receive queue of its own
	sqd                  *drainage // while it is in SQD
	start                ib.PSN    // of this life
	away                 *absence  // while an area of it is
	former               ib.RKey   // of target, in a life before; 0 for none
	life                 uint64
	reborn               clock.Time // when it began
	sleeps               clock.Time // until then it is in RESET; 0 for awake
	lost                 int        // shared receives that ended with an error: one may have been in hand
	last                 bool       // QP_LAST_WQE_REACHED was heard
	untold               bool       // has to hear of an overrun

	arena                *arena
	source, sink, target *area // of what is sent (and READ results), of receives, and what the peer may touch

	script   []request
	planned  int // how many it has
	posted   int // requests posted
	ended    int // of these, those that have ended
	nextSend clock.Time

	receives []receive
	ready    int // receives posted
	taken    int // of these, those that have ended
	nextRecv clock.Time

	incoming []*request // of the peer, those that consume receives, as they were posted
	words    [ownWords]uint64
	windows  []*window
	fresh    ib.PSN     // of the next request packet that was never sent
	orphaned int        // requests posted when the peer crashed
	learns   clock.Time // when this end hears that its peer has died
	rnrEnds  clock.Time // when the peer may be asked again that was not ready; 0 if it was
	faulty   bool       // memory of it was gone when it was wanted
	cut      bool       // a completion queue of it has overrun
	failed   bool       // a request or receive ended with an error
	flushes  bool       // a request did: those behind it have to be flushed
	closed   bool       // the application took it to the error state
	drained  bool       // and has posted the last request, whose flush says that there is nothing before it any more
}

// receive is a receive work request.
type receive struct {
	length int
	slot   *slot
	list   []ib.SGE
}

func newEndpoint(conn *connection, side int, app *application) *endpoint {
	e := &endpoint{
		app: app, conn: conn, side: &conn.plan.Side[side], name: endpointName(conn.index, side), learns: clock.Never,
		role: conn.plan.roleOf(side),
	}
	e.script = make([]request, len(e.side.Script)+2) // two more for an offence and drain
	e.start = e.side.StartPSN
	e.fresh = e.start
	e.planned = copy(e.script, e.side.Script)
	d := app.dice
	pick := func(depth uint32) *queue {
		q := app.queues[d.below(len(app.queues))]
		q.depth += int(depth)
		return q
	}
	c := abi.RoundQPCap(e.side.Cap)
	if p := app.pool; p != nil && e.role == plain && d.chance(700) {
		e.pool = p
		p.bytes = max(p.bytes, conn.plan.MaxBytes)
		c.MaxRecvWR = uint32(p.depth)
	}
	e.sendQueue, e.recvQueue = pick(c.MaxSendWR), pick(c.MaxRecvWR)
	if e.role == target {
		e.pool = app.joinDomain(conn.plan.MaxBytes)
		e.recvQueue = e.pool.queue
	}
	return e
}

// create makes queue pair and memory, when the queues are there.
func (e *endpoint) create() {
	if e.role == target {
		e.createTarget()
	} else {
		e.createQP()
	}
	e.createMemory()
}

func (e *endpoint) createQP() {
	asked, typ := e.side.Cap, ib.QPTypeRC
	if e.role == initiator {
		typ = ib.QPTypeXRCSend
	}
	var srq *nic.SRQ
	if e.pool != nil {
		srq, asked.MaxRecvWR, asked.MaxRecvSGE = e.pool.srq, 0, 0
	}
	var err error
	e.qp, err = e.app.ctx.CreateQP(nic.QPConfig{
		PD: e.app.pd, Type: typ, SendCQ: e.sendQueue.cq, RecvCQ: e.recvQueue.cq, SRQ: srq, SigAll: e.side.SigAll, Cap: asked,
		Block: func(l abi.QPLayout) ([]byte, error) {
			e.rings = make([]byte, l.Size())
			e.block, err = abi.NewQPBlock(e.rings, l)
			return e.rings, err
		},
		Handle: uint32(e.conn.index),
	})
	if err != nil {
		e.app.w.failf("%v", err)
	}
}

func (e *endpoint) createMemory() {
	w, d, c := e.app.w, e.app.dice, &e.side.Cap
	n := e.conn.plan.MaxBytes
	sends, recvs, targets := int(c.MaxSendWR)+1, int(c.MaxRecvWR)+1, int(e.peer.side.Cap.MaxSendWR)+1
	e.arena = newArena(canary + areaSize(0, sends, n) + areaSize(0, recvs, n) + areaSize(ownWords, targets, n))
	e.source, e.sink, e.target = e.arena.carve(d, 0, sends, n), e.arena.carve(d, 0, recvs, n), e.arena.carve(d, ownWords, targets, n)
	for _, a := range e.arena.areas {
		if err := e.arena.register(e.app.ctx, e.app.pd, a, e.rights(a)); err != nil {
			w.failf("%v", err)
		}
	}
	e.createWindows()
}

// prepare plans the receives: as long as the messages that the peer will send, or a little longer, and some to spare.
func (e *endpoint) prepare() {
	d := e.app.dice
	e.receives = make([]receive, 0, e.peer.planned+e.side.Spare+1) // they keep their places: slots know their owners
	for i := range e.peer.planned {
		r := &e.peer.script[i]
		if !r.consumes() || e.role == target {
			continue
		}
		n := 0
		if r.isSend() {
			n = r.length
		}
		if d.chance(300) {
			n = d.between(n, e.conn.plan.MaxBytes)
		}
		e.receives = append(e.receives, receive{length: n})
	}
	for range e.side.Spare {
		e.receives = append(e.receives, receive{length: d.below(e.conn.plan.MaxBytes + 1)})
	}
	for i := range e.words {
		e.words[i] = nativeWord(e.peer.target.mem[8*i:])
	}
}

// connect takes the queue pair to RTS.
func (e *endpoint) connect() {
	if err := e.connectAs(e.app.ctx, e.qp); err != nil {
		e.app.w.failf("%s: %v", e.name, err)
	}
	e.app.node.wake(e.app.w.now)
}

// connectAs connects a queue pair to the peer.
func (e *endpoint) connectAs(ctx *nic.Context, qp *nic.QP) error {
	p, peer := e.conn.plan, e.peer
	a := ib.QPAttr{
		State: ib.StateInit, PortNum: 1,
		AccessFlags: ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessFlushGlobal,
	}
	if err := ctx.ModifyQP(qp, &a, ib.QPAttrState|ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags); err != nil {
		return err
	}
	a.State, a.PathMTU, a.DestQPN, a.RQPSN = ib.StateRTR, p.MTU, peer.qp.QPN(), peer.start
	a.MaxDestRDAtomic, a.MinRNRTimer = max(peer.side.Reads, uint8(e.app.dice.below(9))), e.side.RNRTimer
	a.AH = e.way()
	receives := ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer
	if e.role == initiator {
		receives = 0
	}
	if err := ctx.ModifyQP(qp, &a, ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|receives); err != nil {
		return err
	}
	a.State, a.SQPSN, a.Timeout, a.RetryCnt, a.RNRRetry = ib.StateRTS, e.start, p.Timeout, p.Retries, e.side.RNRRetry
	a.MaxRDAtomic = e.side.Reads
	if e.role == target {
		return ctx.ModifyQP(qp, &a, ib.QPAttrState|ib.QPAttrSQPSN|ib.QPAttrTimeout)
	}
	return ctx.ModifyQP(qp, &a, ib.QPAttrState|ib.QPAttrSQPSN|ib.QPAttrTimeout|ib.QPAttrRetryCnt|ib.QPAttrRNRRetry|ib.QPAttrMaxRDAtomic)
}

// way is the way to the peer.
func (e *endpoint) way() ib.AHAttr {
	return ib.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: e.peer.app.node.gid, TrafficClass: uint8(oneOf(e.app.dice, 0, 2, 106))}}
}

func (e *endpoint) modify(a *ib.QPAttr, mask ib.QPAttrMask) {
	if err := e.app.ctx.ModifyQP(e.qp, a, mask); err != nil {
		e.app.w.failf("%s: %v", e.name, err)
	}
	e.app.node.wake(e.app.w.now)
}

// work posts what is due and reports whether the device has to be told.
func (e *endpoint) work() (rang bool) {
	e.wakeUp()
	e.comeBack()
	e.postReceives()
	// The device looks at receives when a packet asks for one. Only in the error state nothing else makes it look.
	if e.closed && !e.drained && e.drain() {
		e.app.bell.Ring(e.qp.Slot())
		rang = true
	}
	if e.mayPost() && !e.app.w.now.Before(e.nextSend) {
		for n := e.app.dice.between(1, e.side.Eager); n > 0 && e.mayPost(); n-- {
			e.postSend()
		}
		e.nextSend = e.app.w.now.Add(e.app.dice.upTo(e.side.Think))
		e.app.bell.Ring(e.qp.Slot())
		rang = true
	}
	return rang
}

// mayPost reports whether there is a next request, and room for it.
func (e *endpoint) mayPost() bool {
	return e.sleeps == 0 && !e.conn.isAway() && !e.failed && !e.closed && e.posted < e.planned && e.posted-e.ended < int(e.side.Cap.MaxSendWR)
}

func (e *endpoint) mayReceive() bool {
	return e.sleeps == 0 && e.away == nil && e.role == plain && e.pool == nil && !e.failed && !e.closed && e.ready < len(e.receives) && e.ready-e.taken < int(e.side.Cap.MaxRecvWR)
}

// wants returns when the application has something to do for this end of itself.
func (e *endpoint) wants() clock.Time {
	t := clock.Never
	if !e.closed {
		t = e.learns
	}
	if e.sleeps != 0 {
		t = min(t, e.sleeps)
	}
	if e.away != nil {
		t = min(t, e.away.back)
	}
	if e.sqd != nil {
		t = min(t, e.sqd.next)
	}
	if e.mayPost() {
		t = min(t, e.nextSend)
	}
	if e.mayReceive() {
		t = min(t, e.nextRecv)
	}
	if t != clock.Never {
		t = max(t, e.app.w.now+1)
	}
	return t
}

// waits reports whether completions are outstanding.
func (e *endpoint) waits() bool {
	return !e.finished() && (e.posted > e.ended || e.ready > e.taken || e.pool != nil)
}

// finished reports whether everything that is to end has ended.
func (e *endpoint) finished() bool {
	if e.app.gone() || e.cut {
		return true
	}
	if e.failed || e.closed || e.conn.offence != nil {
		return e.drained && e.ended == e.posted && e.taken == e.ready && (e.pool == nil || e.role != plain || e.last)
	}
	if e.role >= target {
		return e.sleeps == 0 && e.away == nil && e.peer.posted == e.peer.planned && e.heardAll() && (e.sibling == nil || e.sibling.heardAll())
	}
	return e.sqd == nil && e.sleeps == 0 && e.away == nil && e.ended == e.planned && e.taken >= len(e.receives)-e.side.Spare
}

func (e *endpoint) postReceives() {
	d := e.app.dice
	for e.mayReceive() && !e.app.w.now.Before(e.nextRecv) {
		r := &e.receives[e.ready]
		r.slot = e.sink.claim(d, r)
		r.list = r.slot.list(d, r.length, int(e.side.Cap.MaxRecvSGE))
		e.block.PutRecv(uint32(e.ready), &abi.RecvWQE{WRID: e.id(abi.QueueRecv, e.ready)}, r.list)
		e.ready++
		e.block.PublishRecv(uint32(e.ready))
		if d.chance(e.side.Tardy) {
			e.nextRecv = e.app.w.now.Add(time.Microsecond + d.upTo(e.side.Tardiness))
		}
	}
}

// id is the wr_id of a request.
func (e *endpoint) id(queue uint8, index int) uint64 {
	side := uint64(0)
	if e.conn.ends[1] == e {
		side = 1
	}
	return uint64(e.conn.index)<<48 | side<<40 | uint64(queue)<<32 | e.life<<24 | uint64(index)
}
