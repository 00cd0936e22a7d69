package sim

import (
	"fmt"
	"runtime/debug"

	"github.com/softnic/softnicd/clock"
)

// Result is what came of a run.
type Result struct {
	Hash   uint64 // of every packet sent and every completion: equal for equal runs
	Events int
	Err    error
	Census census
	Time   clock.Time
}

// Run runs a plan. What is observed goes to log, unless it is nil.
func Run(p *Plan, log *Log) Result { return run(p, Tamper{}, log) }

// Tamper spoils a run in a way that nobody in it is told of, to see that the oracle notices.
type Tamper struct {
	// Deliver may change a packet at the last moment, and make its ICRC right again.
	Deliver func(w *world, p *packet)
	// Round may change memory between two events.
	Round func(w *world)
	// Lucky lets the attacker guess sequence numbers right.
	Lucky bool
}

func run(p *Plan, t Tamper, log *Log) (res Result) {
	w := &world{plan: p, tamper: t, faults: true, logs: log, hash: p.Seed, census: make(census)}
	w.trouble = trouble{w: w, dice: newDice(p.Seed, streamTrouble), left: p.Faults, until: make(map[[2]*node]clock.Time)}
	w.attacker = newAttacker(w, p.Attack)
	w.changes = changes{w: w, dice: newDice(p.Seed, streamChange+1), left: p.Changes}
	w.talkChanges = talkChanges{w: w, dice: newDice(p.Seed, streamTalkChange+1), left: p.TalkChanges}
	w.net = &network{w: w, dice: newDice(p.Seed, streamNetwork), plan: &p.Network}
	defer func() {
		res.Hash, res.Events, res.Time = w.hash, w.turned, w.now
		res.Census = w.census
		switch r := recover().(type) {
		case nil:
		case failure:
			res.Err = fmt.Errorf("at %.3f us: %s", float64(w.now)/1e3, string(r))
		default:
			res.Err = fmt.Errorf("at %.3f us: panic: %v\n%s", float64(w.now)/1e3, r, debug.Stack())
		}
	}()
	w.build()
	w.converse()
	w.end()
	return res
}

// build makes devices, applications and connections.
func (w *world) build() {
	for i := range w.plan.Devices {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	for i := range w.plan.Connections {
		c := &connection{index: i, plan: &w.plan.Connections[i]}
		w.conns = append(w.conns, c)
		for side := range c.ends {
			app := w.nodes[c.plan.Device[side]].application(c.plan.App[side])
			c.ends[side] = newEndpoint(c, side, app)
			app.endpoints = append(app.endpoints, c.ends[side])
		}
		c.ends[0].peer, c.ends[1].peer = c.ends[1], c.ends[0]
		if c.plan.Shared {
			c.ends[1].joinTarget()
		}
	}
	for _, n := range w.nodes {
		for _, a := range n.apps {
			for i, q := range a.queues {
				q.create(i)
			}
		}
	}
	for _, n := range w.nodes {
		for _, a := range n.apps {
			for _, p := range a.pools() {
				p.create()
			}
		}
	}
	w.each((*endpoint).create)
	w.each((*endpoint).prepare)
	w.each((*endpoint).connect)
	w.each(func(e *endpoint) {
		w.total += e.planned
		e.app.wake(w.now)
		if e.sibling != nil {
			e.sibling.app.wake(w.now)
		}
	})
	w.buildTalks()
}

// application returns the application with this index, and makes it and those before it if need be.
func (n *node) application(index int) *application {
	for len(n.apps) <= index {
		a := newApplication(n, len(n.apps))
		most := 3
		if n.w.plan.Overrun > 0 {
			most = 1
		}
		for range a.dice.between(1, most) {
			a.queues = append(a.queues, &queue{app: a, small: n.w.plan.Overrun > 0 && a.dice.chance(n.w.plan.Overrun)})
		}
		n.apps = append(n.apps, a)
	}
	return n.apps[index]
}

func (w *world) each(f func(*endpoint)) {
	for _, c := range w.conns {
		f(c.ends[0])
		f(c.ends[1])
	}
}

// maxEvents is far more than any run needs.
const maxEvents = 5_000_000

// converse runs until everything that was to be done has ended: under faults first, then without.
func (w *world) converse() {
	deadline := clock.Time(0).Add(10 * w.plan.bound())
	for !w.finished() {
		if w.plan.Death > 0 && !w.died && w.done*100 >= w.total*w.plan.Death {
			w.died = true
			n := oneOf(w.net.dice, w.nodes...)
			if a := oneOf(n.dice, n.apps...); !a.gone() {
				a.die()
			}
		}
		if w.plan.Crash > 0 && !w.crashed && w.done*100 >= w.total*w.plan.Crash {
			w.crashed = true
			oneOf(w.net.dice, w.nodes...).crash()
		}
		if w.plan.Madness > 0 && !w.mad && w.done*100 >= w.total*w.plan.Madness {
			w.mad = true
			n := oneOf(w.net.dice, w.nodes...)
			if a := oneOf(n.dice, n.apps...); !a.gone() && len(a.endpoints) > 0 {
				a.madden()
			}
		}
		if w.faults && (w.done*100 >= w.total*w.plan.FaultsFor || w.now.After(deadline)) {
			w.calm()
			deadline = w.now.Add(w.plan.bound())
			w.logf("world", "the faults stop; everything has to end within %v", w.plan.bound())
		}
		switch {
		case len(w.events.heap) == 0:
			w.failf("everybody waits for ever: %s", w.missing())
		case !w.faults && w.now.After(deadline):
			w.failf("no end after %v without faults: %s", w.plan.bound(), w.missing())
		case w.turned > maxEvents:
			w.failf("no end after %d events: %s", w.turned, w.missing())
		}
		w.trouble.mishap()
		w.attacker.strike()
		w.changes.stir()
		w.talkChanges.stir()
		w.turn()
		if w.tamper.Round != nil {
			w.tamper.Round(w)
		}
	}
	w.calm()
}

func (w *world) finished() bool {
	for _, c := range w.conns {
		if !c.ends[0].finished() || !c.ends[1].finished() {
			return false
		}
	}
	for _, t := range w.talkers {
		if !t.finished() {
			return false
		}
	}
	return true
}

// missing says what has not ended.
func (w *world) missing() (text string) {
	w.each(func(e *endpoint) {
		if !e.finished() {
			text += fmt.Sprintf("%s: %d of %d requests posted, %d ended; %d of %d receives posted, %d ended; state %v. ",
				e.name, e.posted, e.planned, e.ended, e.ready, len(e.receives), e.taken, e.state())
		}
	})
	for _, t := range w.talkers {
		if !t.finished() {
			text += fmt.Sprintf("%s: %d of %d requests posted, %d ended. ", t.name, t.posted, len(t.script), t.ended)
		}
	}
	return text
}

// settle runs until nothing happens any more: packets that come late, and nothing else.
func (w *world) settle() {
	for limit := w.turned + 100_000; len(w.events.heap) > 0; {
		if w.turned > limit {
			w.failf("it never comes to rest")
		}
		w.turn()
	}
}
