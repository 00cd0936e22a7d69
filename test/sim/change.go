package sim

// ChangePlan says how often objects are changed while they are used.
type ChangePlan struct {
	Drains   int // queue pairs that go to SQD and come back: drain.go
	Resizes  int // of completion queues: resize.go
	Moves    int // of memory regions: rereg.go
	Rebirths int // queue pairs that go to RESET and begin another life: rebirth.go
}

// newChangePlan plans changes. The dice are its own: everything else is as it was.
func newChangePlan(p *Plan) (c ChangePlan) {
	d := newDice(p.Seed, streamChange)
	some := func(permille, most int) int {
		if !d.chance(permille) {
			return 0
		}
		return d.between(1, most)
	}
	c.Drains, c.Resizes, c.Moves, c.Rebirths = some(300, 6), some(300, 6), some(300, 6), some(300, 4)
	if p.Overrun > 0 || p.clean() {
		c.Rebirths = 0 // what belongs to the life before goes wrong, and is counted
	}
	return c
}

// changes is what is left of the changes of a run.
type changes struct {
	w    *world
	dice *dice
	left ChangePlan
}

// stir makes one more change, sometimes. Like mishaps it comes between events, so that there is work to disturb; unlike
// them it is nothing bad, and has no end when the faults have.
func (c *changes) stir() {
	if c.left == (ChangePlan{}) || !c.dice.chance(20) {
		return
	}
	conn := oneOf(c.dice, c.w.conns...)
	e := oneOf(c.dice, conn.ends[:]...)
	take := func(n *int, done bool) {
		if done {
			*n--
		}
	}
	switch which := c.dice.below(4); {
	case which == 0 && c.left.Drains > 0:
		take(&c.left.Drains, e.startDrain(c.dice))
	case which == 1 && c.left.Resizes > 0:
		take(&c.left.Resizes, oneOf(c.dice, e.app.queues...).resize(c.dice))
	case which == 2 && c.left.Moves > 0:
		take(&c.left.Moves, e.reregister(c.dice))
	case which == 3 && c.left.Rebirths > 0:
		take(&c.left.Rebirths, conn.rebirth(c.dice))
	}
}

// isLively reports whether a connection does what it should, and may be disturbed.
func (c *connection) isLively() bool {
	for _, e := range c.ends {
		if e.app.gone() || e.closed || e.failed || e.cut || e.sqd != nil || e.sleeps != 0 || e.learns != never {
			return false
		}
	}
	return !c.broken && !c.tainted && c.offence == nil
}
