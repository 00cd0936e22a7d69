package sim

import (
	"time"
)

// die is the end of an application in the middle of its work. Its context is closed, and from then on its memory is
// somebody else's: see expectEmpty. Its peers run out of retries, or hear of it and give up.
func (a *application) die() {
	w := a.w
	w.logf(a.name, "dies")
	a.close()
	a.dead = true
	a.abandon()
}

// abandon is what a connection is to its peers when its application is gone, and its memory.
func (a *application) abandon() {
	w := a.w
	scribble(a.shared.arena.mem)
	for _, p := range a.pools() {
		scribble(p.arena.mem)
		p.arena.areas[0].gone = true
	}
	for _, e := range a.endpoints {
		scribble(e.arena.mem)
		for _, x := range e.arena.areas {
			x.gone = true
		}
		e.conn.broken, e.untold = true, false // nobody is there to be told
		e.tellOthers(w.now.Add(a.dice.upTo(5 * time.Millisecond)))
	}
}
