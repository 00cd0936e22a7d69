package sim

import (
	"errors"
	"syscall"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Queue pairs of talks are changed while they are used, as those of connections are: they go to SQD and come back, or are
// reset and begin another life. The peer is told of neither.

// TalkChangePlan says how often.
type TalkChangePlan struct {
	Drains   int // to SQD and back
	Rebirths int // to RESET
}

// newTalkChangePlan plans changes. The dice are its own: everything else is as it was.
func newTalkChangePlan(p *Plan) (c TalkChangePlan) {
	d := newDice(p.Seed, streamTalkChange)
	if len(p.Talks) == 0 {
		return c
	}
	if d.chance(500) {
		c.Drains = d.between(1, 4)
	}
	if d.chance(500) && !p.clean() { // what comes meanwhile is lost
		c.Rebirths = d.between(1, 3)
	}
	return c
}

// talkChanges is what is left of the changes of a run.
type talkChanges struct {
	w    *world
	dice *dice
	left TalkChangePlan
}

// stir makes one more change, sometimes.
func (c *talkChanges) stir() {
	if c.left == (TalkChangePlan{}) || !c.dice.chance(20) {
		return
	}
	t := oneOf(c.dice, c.w.talkers...)
	if t.dead || t.sqd != nil || t.sleeps != 0 {
		return
	}
	if c.dice.chance(500) {
		if c.left.Drains > 0 {
			c.left.Drains--
			t.startDrain(c.dice)
		}
	} else if c.left.Rebirths > 0 {
		c.left.Rebirths--
		t.rebirth(c.dice)
	}
}

// numberOf returns the packet sequence number of the first packet of a request of this life.
func (t *talker) numberOf(request int) ib.PSN {
	n, mtu := 0, t.plan.MTU.Bytes()
	for i := t.base; i < request; i++ {
		n += max(1, (t.script[i].length+mtu-1)/mtu)
	}
	return t.start.Add(uint32(n))
}

// startDrain takes the queue pair to SQD.
func (t *talker) startDrain(d *dice) {
	s := &drainage{notify: d.chance(700), begun: t.base}
	t.sqd = s // the event may come at once
	t.modify(ib.QPAttr{State: ib.StateSQD, EnSQDAsyncNotify: s.notify}, ib.QPAttrEnSQDAsyncNotify)
	a, _, _ := t.ctx.QueryQP(t.qp)
	for t.numberOf(s.begun).Before(a.SQPSN) {
		s.begun++
	}
	// One more may be in hand without a packet yet, for it keeps to a rate.
	s.limit = t.numberOf(min(s.begun+1, t.posted))
	t.w.logf(t.name, "to SQD; of %d requests %d have left, and %d were begun", t.posted, t.left, s.begun)
	s.next = t.w.now.Add(d.upTo(50 * time.Microsecond))
	t.wake(max(s.next, t.w.now+1))
}

// isDrained reports whether an event tells that the queue pair is drained, and was asked for.
func (t *talker) isDrained(e ib.EventType) bool {
	s := t.sqd
	if e != ib.EventSQDrained || s == nil || !s.notify || s.heard {
		return false
	}
	s.heard = true
	return true
}

// goOn is the application's next step while the queue pair is in SQD.
func (t *talker) goOn() {
	s, w, d := t.sqd, t.w, t.dice
	if s == nil {
		return
	}
	if w.now.Before(s.next) {
		t.wake(s.next)
		return
	}
	a, _, _ := t.ctx.QueryQP(t.qp)
	// Attributes are not to be changed before it is drained. Those that may be are other ones for each service.
	mask := ib.QPAttrQKey
	change := ib.QPAttr{State: ib.StateSQD, QKey: talkKey}
	if t.plan.Service == ib.QPTypeUC {
		mask, change.AH = ib.QPAttrAV, t.way()
	}
	// Seldom while nothing moves, as in endpoint.goOn.
	s.next = w.now.Add(time.Microsecond + d.upTo(max(50*time.Microsecond, w.now.Sub(w.net.latest)/8)))
	switch {
	case a.State != ib.StateSQD:
		w.failf("%s: it went to SQD, and is in %v", t.name, a.State)
	case a.SQDraining && s.heard:
		w.failf("%s: SQ_DRAINED, and it drains still", t.name)
	case a.SQDraining && !s.tried:
		s.tried = true
		if err := t.ctx.ModifyQP(t.qp, &change, mask|ib.QPAttrState); !errors.Is(err, syscall.EINVAL) {
			w.failf("%s: attributes could be changed while it drained: %v", t.name, err)
		}
	case a.SQDraining:
	case s.heard != s.notify:
		w.failf("%s: it is drained, SQ_DRAINED was asked for: %v, and came: %v", t.name, s.notify, s.heard)
	case a.SQPSN != t.fresh || t.fresh != t.numberOf(t.left) || t.left < s.begun || int(t.block.SendDone()) != t.left-t.base:
		w.failf("%s: drained at psn %v, with %d requests left and %d done; %d were begun, and the next psn is %v",
			t.name, a.SQPSN, t.left, t.base+int(t.block.SendDone()), s.begun, t.fresh)
	case !s.changed && d.chance(700):
		s.changed = true
		t.modify(change, mask)
		w.census["changes of unreliable queue pairs in SQD"]++
	default:
		w.census["unreliable queue pairs that were drained"]++
		w.logf(t.name, "goes on")
		t.sqd = nil
		t.modify(ib.QPAttr{State: ib.StateRTS}, 0)
		return
	}
	t.wake(s.next)
}

// rebirth resets the queue pair, with requests outstanding and messages half received. It forgets them all; what is on the
// network already arrives, and so does later what the peer says. Its sequence numbers begin somewhere else.
func (t *talker) rebirth(d *dice) {
	w := t.w
	t.drain()
	t.modify(ib.QPAttr{State: ib.StateReset}, 0)
	if a, _, _ := t.ctx.QueryQP(t.qp); a.State != ib.StateReset || t.reader.Peek(1) > 0 {
		w.failf("%s: it was reset, and is in %v with %d completions", t.name, a.State, t.reader.Peek(1))
	}
	w.logf(t.name, "is reset, with %d requests and %d receives outstanding", t.posted-t.ended, t.ready-t.taken)
	w.census["unreliable queue pairs that were reset"]++
	w.census["unreliable requests that a reset has taken"] += t.posted - t.ended
	for ; t.ended < t.posted; t.ended++ {
		r := &t.script[t.ended]
		if r.local != nil && r.local.wrong() >= 0 {
			w.failf("%s: request #%d has changed its own memory", t.name, t.ended)
		}
		r.local.free(r)
	}
	var again []receive
	for ; t.taken < t.ready; t.taken++ {
		v := &t.receives[t.taken]
		v.contents() // a message may have begun
		if at := v.slot.wrong(); at >= 0 {
			w.failf("%s: receive #%d has changed byte %d beside its list", t.name, t.taken, at)
		}
		v.slot.free(v) // from here on nothing may be written there
		again = append(again, receive{length: v.length})
		t.reset++
	}
	t.receives = append(t.receives, again...)
	t.left, t.base, t.recvBase = t.posted, t.posted, t.ready
	t.start = t.fresh.Add(oneOf(d, uint32(d.between(1<<20, 1<<22)), -uint32(d.between(1<<20, 1<<22))))
	t.fresh = t.start
	t.sleeps = w.now.Add(1 + d.upTo(oneOf(d, 0, 20*time.Microsecond, 200*time.Microsecond)))
	t.wake(t.sleeps)
}

// isAsleep connects the queue pair if it was reset and its time has come, and otherwise reports that it has not.
func (t *talker) isAsleep() bool {
	switch {
	case t.sleeps == 0:
		return false
	case t.w.now.Before(t.sleeps):
		t.wake(t.sleeps)
		return true
	}
	t.sleeps = 0
	t.w.logf(t.name, "begins another life at psn %v", t.start)
	t.connect()
	return false
}

// change is what a talker's queue pair goes through.
type change struct {
	sqd      *drainage
	sleeps   clock.Time // when it is connected again; 0 if it is
	base     int        // requests posted before this life
	recvBase int        // receives
	reset    int        // receives that a reset has taken
}
