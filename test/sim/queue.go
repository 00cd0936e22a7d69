package sim

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// queue is a completion queue as its application sees it, and a judge of its events.
type queue struct {
	app    *application
	cq     *nic.CQ
	reader *cq.Reader
	block  []byte   // its header, and at first its ring
	rings  [][]byte // all that it ever had, the newest last
	left   int      // of these, those that it has no use for any more
	depth  int      // completions that can be outstanding

	latest  clock.Time // of a completion
	armed   abi.ArmKind
	fired   bool
	due     bool // entries came that are a reason for the event
	unsure  bool // or may be one
	small   bool // too small
	over    bool // it has overrun
	present int  // entries that were there when it was armed: they make no event
}

// create makes the queue, when it is known how deep it has to be.
func (q *queue) create(handle int) {
	w := q.app.w
	entries := uint32(max(q.depth, 1))
	if q.small {
		entries = 1 // a device gives more, but not much
	}
	q.block = make([]byte, abi.CQBlockSize(abi.CQCapacity(entries)))
	var err error
	q.rings = [][]byte{q.block}
	q.cq, err = q.app.ctx.CreateCQ(nic.CQConfig{Block: q.block, Entries: entries, Notifier: q, Handle: uint32(handle)})
	if err == nil {
		q.reader, err = cq.NewReader(q.block, q.cq.Capacity())
	}
	if err != nil {
		w.failf("%v", err)
	}
}

// Notify implements cq.Notifier.
func (q *queue) Notify(uint64, uint32) {
	a := q.app
	if a.mad {
		return
	}
	if q.armed == abi.ArmNone || q.fired {
		a.w.accuse("%s: an event that nobody asked for", a.name)
	}
	q.fired = true
	a.wake(a.w.now.Add(a.dice.upTo(a.w.plan.Lag)))
}

// arm asks for an event. There may be entries already, then there will be none for them.
func (q *queue) arm() {
	if q.armed != abi.ArmNone && !q.fired || q.over {
		return
	}
	kind := abi.ArmNext
	if q.app.manner == naps && q.app.dice.chance(700) {
		kind = abi.ArmSolicited
	}
	q.present = q.reader.Peek(peekAll)
	q.armed, q.fired, q.due, q.unsure = kind, false, false, false
	if missed := q.reader.ReqNotify(kind); missed != (q.present > 0) {
		q.app.w.failf("%s: armed with %d entries there, missed events: %v", q.app.name, q.present, missed)
	}
	if q.present > 0 {
		q.app.wake(q.app.w.now + 1)
	}
}

// drain takes entries, mostly all.
func (q *queue) drain() {
	a := q.app
	var batch [16]abi.CQE
	for {
		n, err := q.reader.Poll(batch[:a.dice.between(1, len(batch))])
		if err != nil && !q.over {
			a.w.failf("%s: %v", a.name, err)
		}
		for i := range batch[:n] {
			solicited := a.complete(q, &batch[i])
			if q.present > 0 {
				q.present--
			} else {
				q.due = q.due || q.armed == abi.ArmNext || solicited
			}
		}
		if n == 0 {
			q.leave()
			break
		}
		if a.dice.chance(50) {
			a.wake(a.w.now + 1) // the rest in another turn
			return
		}
	}
	if q.armed == abi.ArmNone {
		return
	}
	if q.due && !q.fired && !q.unsure {
		a.w.failf("%s: completions came and no event, although one was asked for", a.name)
	}
	if q.fired && !q.due && !q.unsure {
		a.w.failf("%s: an event came, and no completion that was a reason for it", a.name)
	}
	if q.fired {
		q.armed, q.present = abi.ArmNone, 0
	}
}

// complete gives a completion to the end it belongs to, and reports whether it was a reason for a solicited event.
func (a *application) complete(q *queue, c *abi.CQE) (solicited bool) {
	if t := clock.Time(c.Timestamp); c.Status != uint8(ib.WCSuccess) {
		// The timestamp of an error means nothing.
	} else if t < q.latest || t > a.w.now {
		a.w.failf("%s: a completion of %d ns, the one before it of %d, now it is %d", a.name, t, q.latest, a.w.now)
	} else {
		q.latest = t
	}
	a.w.record(uint64(a.w.now), c.WRID, uint64(c.Status)<<32|uint64(c.ByteLen), uint64(c.Imm)<<32|uint64(c.WQEIndex))
	for _, e := range a.endpoints {
		if e.role >= target && c.Queue == abi.QueueXRCRecv && uint32(e.qp.QPN()) == c.QPN && q == e.recvQueue {
			return e.received(c) || c.Status != uint8(ib.WCSuccess)
		}
		if e.role >= target || c.Queue == abi.QueueXRCRecv || e.qp.Slot() != c.QPSlot {
			continue
		}
		if uint32(e.qp.QPN()) != c.QPN {
			break
		}
		receives := uint8(abi.QueueRecv)
		if e.pool != nil {
			receives = abi.QueueSharedRecv
		}
		if c.Queue == receives && q == e.recvQueue {
			return e.received(c) || c.Status != uint8(ib.WCSuccess)
		}
		if c.Queue == abi.QueueSend && q == e.sendQueue {
			e.sent(c)
			return c.Status != uint8(ib.WCSuccess)
		}
	}
	a.w.failf("%s: a completion that belongs nowhere: %+v", a.name, *c)
	return false
}
