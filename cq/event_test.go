package cq

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// One row: what the application asks for, what comes, how many events that makes (IBA 11.4.2.2). Field bug B18 is all of
// them.
func TestNotification(t *testing.T) {
	const (
		next = abi.ArmNext
		sol  = abi.ArmSolicited
	)
	type entry int
	const (
		plain entry = iota
		solicited
		failed
	)
	for _, c := range []struct {
		name    string
		arm     []abi.ArmKind
		entries []entry
		events  int
	}{
		{"not armed", nil, []entry{plain, solicited, failed}, 0},
		{"next takes any", []abi.ArmKind{next}, []entry{plain}, 1},
		{"next takes a solicited one", []abi.ArmKind{next}, []entry{solicited}, 1},
		{"next is one-shot", []abi.ArmKind{next}, []entry{plain, plain, solicited}, 1},
		{"solicited passes plain ones", []abi.ArmKind{sol}, []entry{plain, plain}, 0},
		{"solicited takes a solicited one", []abi.ArmKind{sol}, []entry{plain, solicited}, 1},
		{"an error counts as solicited", []abi.ArmKind{sol}, []entry{plain, failed}, 1},
		{"solicited is one-shot", []abi.ArmKind{sol}, []entry{solicited, failed, solicited}, 1},
		{"solicited becomes next", []abi.ArmKind{sol, next}, []entry{plain}, 1},
		{"upgraded is still one event", []abi.ArmKind{sol, next}, []entry{plain, solicited, plain}, 1},
		{"next is not weakened", []abi.ArmKind{next, sol}, []entry{plain}, 1},
		{"nor by many", []abi.ArmKind{sol, next, sol, sol}, []entry{plain, plain}, 1},
		{"asking twice is one event", []abi.ArmKind{next, next}, []entry{plain, plain}, 1},
	} {
		p := newPair(t, 64)
		for _, k := range c.arm {
			if p.reader.ReqNotify(k) {
				t.Errorf("%s: an empty queue reports entries", c.name)
			}
		}
		for _, e := range c.entries {
			cqe := abi.CQE{}
			if e == failed {
				cqe.Status = uint8(ib.WCWRFlushErr)
			}
			p.Post(0, &cqe, e == solicited)
		}
		if p.events != c.events || p.Events() != uint64(c.events) {
			t.Errorf("%s: %d events, want %d", c.name, p.events, c.events)
		}
	}
}

func TestEntriesThatAreThereMakeNoEvent(t *testing.T) {
	p := newPair(t, 64)
	p.post(1)
	if !p.reader.ReqNotify(abi.ArmNext) {
		t.Error("the entry that is there is not reported")
	}
	if p.events != 0 {
		t.Error("an entry that was there made an event")
	}
	p.post(2)
	if p.events != 1 {
		t.Errorf("%d events after the next entry", p.events)
	}
	// Each arming has one event of its own, for ever.
	for i := range 100 {
		p.reader.Poll(make([]abi.CQE, 8))
		p.reader.ReqNotify(abi.ArmKind(1 + i%2))
		p.Post(0, &abi.CQE{}, true)
		p.Post(0, &abi.CQE{}, true)
		if p.events != i+2 {
			t.Fatalf("%d events after %d armings", p.events, i+2)
		}
	}
}

// The application's words cannot make more events than entries, nor break anything.
func TestHostileArmWord(t *testing.T) {
	p := newPair(t, 64)
	for i, w := range []uint64{1<<64 - 1, 3, 1 << 63, abi.ArmWord(0, abi.ArmNext), abi.ArmWord(0, abi.ArmSolicited), 7} {
		p.block.StoreArm(w)
		p.post(uint64(i))
		p.Armed()
	}
	if p.events != 0 {
		t.Errorf("%d events from words that arm nothing", p.events)
	}
	p.block.StoreArm(abi.ArmWord(5, abi.ArmNext))
	for i := range 10 {
		p.block.SetFired(uint32(i)) // the device does not believe its own word
		p.post(uint64(i))
	}
	if p.events != 1 {
		t.Errorf("%d events from one arming", p.events)
	}
}

func TestArmed(t *testing.T) {
	p := newPair(t, 64)
	for _, want := range []abi.ArmKind{abi.ArmSolicited, abi.ArmNext} {
		if p.Armed() == want {
			t.Errorf("armed %d before it was", want)
		}
		p.reader.ReqNotify(want)
		if p.Armed() != want {
			t.Errorf("armed %d, want %d", p.Armed(), want)
		}
	}
	p.post(1)
	if p.Armed() != abi.ArmNone {
		t.Error("armed after its event")
	}
}

const us = clock.Time(time.Microsecond)

func TestModeration(t *testing.T) {
	type step struct {
		at        clock.Time
		solicited bool
		expire    bool // instead of an entry
		events    int
	}
	plain := func(at clock.Time, events int) step { return step{at: at, events: events} }
	for _, c := range []struct {
		name          string
		count, period uint32
		arm           abi.ArmKind
		steps         []step
	}{
		{"off", 0, 0, abi.ArmNext, []step{plain(0, 1)}},
		{"count", 3, 0, abi.ArmNext, []step{plain(0, 0), plain(1, 0), plain(900*us, 1), plain(900*us, 1)}},
		{"count of one", 1, 100, abi.ArmNext, []step{plain(0, 1)}},
		{"period", 0, 100, abi.ArmNext, []step{plain(0, 0), plain(99*us, 0), {at: 99 * us, expire: true}, {at: 100 * us, expire: true, events: 1}}},
		{"period, noticed at an entry", 0, 100, abi.ArmNext, []step{plain(0, 0), plain(100*us, 1)}},
		{"count comes first", 2, 100, abi.ArmNext, []step{plain(0, 0), plain(1*us, 1), {at: 100 * us, expire: true, events: 1}}},
		{"period comes first", 9, 100, abi.ArmNext, []step{plain(5*us, 0), {at: 104 * us, expire: true}, {at: 105 * us, expire: true, events: 1}, plain(106*us, 1)}},
		{"solicited is held for the period only", 9, 100, abi.ArmNext, []step{{at: 0, solicited: true}, {at: 100 * us, expire: true, events: 1}}},
		{"without a period it is not held", 9, 0, abi.ArmNext, []step{plain(0, 0), {at: 1, solicited: true, events: 1}}},
		{"plain ones before a solicited arming fires do not count", 2, 100, abi.ArmSolicited,
			[]step{plain(0, 0), plain(0, 0), plain(0, 0), {at: 1 * us, solicited: true}, plain(2*us, 1)}},
		{"plain ones start no period", 9, 100, abi.ArmSolicited,
			[]step{plain(0, 0), {at: 500 * us, expire: true}, {at: 500 * us, solicited: true}, {at: 599 * us, expire: true}, {at: 600 * us, expire: true, events: 1}}},
		{"not armed", 1, 1, abi.ArmNone, []step{plain(0, 0), {at: 50 * us, expire: true}}},
	} {
		p := newPair(t, 64)
		p.SetModeration(c.count, c.period)
		if c.arm != abi.ArmNone {
			p.reader.ReqNotify(c.arm)
		}
		for i, s := range c.steps {
			if s.expire {
				p.Expire(s.at)
			} else {
				p.Post(s.at, &abi.CQE{}, s.solicited)
			}
			if p.events != s.events {
				t.Fatalf("%s: step %d: %d events, want %d", c.name, i, p.events, s.events)
			}
		}
		if held := p.Deadline() != clock.Never; held {
			t.Errorf("%s: a deadline is left", c.name)
		}
	}
}

// An arming after a held event starts afresh.
func TestModerationRestarts(t *testing.T) {
	p := newPair(t, 64)
	p.SetModeration(2, 100)
	for round := range 5 {
		p.reader.ReqNotify(abi.ArmNext)
		at := clock.Time(round) * 1000 * us
		p.Post(at, &abi.CQE{}, false)
		if p.events != round || p.Deadline() != at+100*us {
			t.Fatalf("round %d: %d events, deadline %d", round, p.events, p.Deadline())
		}
		p.Post(at, &abi.CQE{}, false)
		if p.events != round+1 || p.Deadline() != clock.Never {
			t.Fatalf("round %d: %d events, deadline %d", round, p.events, p.Deadline())
		}
		p.reader.Poll(make([]abi.CQE, 8))
	}
	if c, period := p.Moderation(); c != 2 || period != 100 {
		t.Errorf("moderation %d, %d", c, period)
	}
}

func TestModerationOffSendsWhatIsHeld(t *testing.T) {
	p := newPair(t, 64)
	p.SetModeration(50, 0)
	p.reader.ReqNotify(abi.ArmNext)
	p.post(1)
	p.SetModeration(0, 0)
	if p.events != 1 {
		t.Errorf("%d events, one was held", p.events)
	}
}

// A held event goes out with the queue's death.
func TestModerationAndOverrun(t *testing.T) {
	p := newPair(t, 64)
	p.SetModeration(1000, 0)
	p.reader.ReqNotify(abi.ArmNext)
	for i := range 65 {
		p.post(uint64(i))
	}
	if p.events != 1 || p.Deadline() != clock.Never {
		t.Errorf("%d events, deadline %d", p.events, p.Deadline())
	}
}
