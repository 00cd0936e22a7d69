package sim

import (
	"errors"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// FaultPlan says what goes wrong besides packets: ways between devices that are cut, devices that stand still, ports that
// refuse. Each happens so many times in a run, at moments that are drawn as the run goes, while there are faults.
type FaultPlan struct {
	Partitions int
	OneWay     int           // chance in 1000 that a partition is in one direction only
	Cut        time.Duration // of a partition, at most
	Pauses     int
	Still      time.Duration // of a pause, at most
	Refusals   int           // spells in which a port refuses frames: EPERM, ENOBUFS
	Vanishings int           // of memory, for a moment
	Failures   int           // of a port altogether, until its link comes back
}

func newFaultPlan(d *dice, fragile bool) (f FaultPlan) {
	if d.chance(200) {
		f.Partitions, f.OneWay = d.between(1, 3), oneOf(d, 0, 500, 1000)
		f.Cut = d.upTo(oneOf(d, time.Millisecond, 100*time.Millisecond))
	}
	if d.chance(150) {
		f.Pauses, f.Still = d.between(1, 3), oneOf(d, 100*time.Millisecond, time.Second, 10*time.Second)
	}
	if d.chance(200) {
		f.Refusals = d.between(1, 4)
	}
	if d.chance(100) {
		f.Vanishings = d.between(1, 5)
	}
	if fragile && d.chance(200) {
		f.Failures = 1
	}
	return f
}

// patience is the local ACK timeout of queue pairs that are to survive: eight of them are longer than everything that may
// happen in a row, and yet some fire.
func (f *FaultPlan) patience() (t time.Duration) {
	if f.Partitions > 0 {
		t = f.Cut
	}
	if f.Pauses > 0 {
		t = max(t, f.Still)
	}
	if f.Refusals > 0 {
		t = max(t, spell)
	}
	if f.Partitions+f.Pauses+f.Refusals == 1 {
		t /= 4
	}
	return t
}

// spell is how long a port refuses frames, at most.
const spell = 200 * time.Microsecond

func (f *FaultPlan) none() bool { return *f == FaultPlan{} }

// trouble is the faults of a run: when they happen, and what is wrong now.
type trouble struct {
	w     *world
	dice  *dice
	left  FaultPlan
	until map[[2]*node]clock.Time // ways that are cut; looked up, never walked
}

// mishap lets one more fault happen, sometimes. It is called between events, so that trouble comes when there is work to
// disturb.
func (t *trouble) mishap() {
	w := t.w
	for _, n := range w.nodes {
		if n.port.failed && w.now.After(n.port.back) {
			n.repair()
		}
	}
	if !w.faults || t.left.Partitions+t.left.Pauses+t.left.Refusals+t.left.Failures+t.left.Vanishings == 0 || !t.dice.chance(4) {
		return
	}
	n := oneOf(t.dice, w.nodes...)
	switch which := t.dice.below(5); {
	case which == 0 && t.left.Partitions > 0:
		t.left.Partitions--
		t.cut(n, oneOf(t.dice, w.nodes...))
	case which == 1 && t.left.Pauses > 0:
		t.left.Pauses--
		n.pause(max(t.left.Still/10, t.dice.upTo(t.left.Still)))
	case which == 2 && t.left.Refusals > 0:
		t.left.Refusals--
		w.census["refusing ports"]++
		n.port.refuses = w.now.Add(t.dice.upTo(spell))
		w.logf(n.name, "its port refuses what it is given until %.3f us", float64(n.port.refuses)/1e3)
	case which == 4 && t.left.Vanishings > 0:
		t.left.Vanishings--
		c := oneOf(t.dice, w.conns...)
		t.vanish(oneOf(t.dice, c.ends[:]...))
	case which == 3 && t.left.Failures > 0:
		t.left.Failures--
		w.census["failing ports"]++
		n.port.failed, n.port.ever = true, true
		n.port.back = w.now.Add(t.dice.upTo(100 * time.Microsecond))
		w.logf(n.name, "its port fails until %.3f us", float64(n.port.back)/1e3)
	}
}

// cut lets nothing through from one device to another, and perhaps nothing back.
func (t *trouble) cut(from, to *node) {
	if from == to || from.isCut(to) || to.isCut(from) {
		return
	}
	end := t.w.now.Add(t.dice.upTo(t.left.Cut))
	t.until[[2]*node{from, to}] = end
	if !t.dice.chance(t.left.OneWay) {
		t.until[[2]*node{to, from}] = end
	}
	t.w.census["partitions"]++
	t.w.logf(from.name, "cut off from %s until %.3f us, both ways: %v", to.name, float64(end)/1e3, to.isCut(from))
}

func (n *node) isCut(to *node) bool {
	return n.w.faults && n.w.now.Before(n.w.trouble.until[[2]*node{n, to}])
}

// pause lets a device stand still: packets arrive and wait at its port, timers pass.
func (n *node) pause(t time.Duration) {
	n.paused = max(n.paused, n.w.now.Add(t))
	n.w.census["pauses"]++
	n.w.logf(n.name, "stands still for %v", t)
}

// errPort is why a port fails.
var errPort = errors.New("no such device")

// repair is what whoever watches the links does about a port that failed.
func (n *node) repair() {
	n.port.failed = false
	n.w.logf(n.name, "its link is back")
	n.dev.SetLink(n.link)
}

// isPortEvent reports whether an event tells of a port that failed or came back.
func (n *node) isPortEvent(t ib.EventType) bool {
	return (t == ib.EventPortErr || t == ib.EventPortActive) && n.port.ever
}

// calm ends all faults.
func (w *world) calm() {
	w.faults = false
	for _, n := range w.nodes {
		n.paused = 0
		if n.port.failed {
			n.repair()
		}
		n.wake(w.now + 1)
	}
}
