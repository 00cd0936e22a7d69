package cq

import (
	"fmt"

	"github.com/softnic/softnicd/abi"
)

// Evidence is what is known about how deep a queue has to be.
type Evidence struct {
	Capacity  uint64 // entries that the queue holds
	HighWater uint64 // the most that ever waited at once
	Overruns  uint64 // entries that were lost since the queue overran
	// Demand is the sum of the depths of the work queues that complete into it: requests that can be posted at once. Each
	// has one completion, or none if it is unsignaled and succeeds.
	Demand uint64
	// ReclaimOnCompletion says that slots of work queues come back when requests complete (Linux rxe), and not when their
	// completions are polled (hardware).
	ReclaimOnCompletion bool
}

// Verdict is what Advise thinks of a capacity.
type Verdict uint8

// Verdicts.
const (
	Fits Verdict = iota
	TooSmall
	TooLarge
)

func (v Verdict) String() string {
	switch v {
	case TooSmall:
		return "too small"
	case TooLarge:
		return "too large"
	}
	return "fits"
}

// Advice is a verdict, the capacity that it would take, and why.
type Advice struct {
	Verdict Verdict
	Entries uint64 // a multiple of 64; 0 if nothing is known
	Reason  string
}

func (a Advice) String() string {
	if a.Verdict == Fits {
		return fmt.Sprintf("%v: %s", a.Verdict, a.Reason)
	}
	return fmt.Sprintf("%v, take %d: %s", a.Verdict, a.Entries, a.Reason)
}

// Advise judges the capacity of a queue. It takes as many entries as can be posted at once (Demand), or as were seen
// (HighWater and what was lost beyond it), if that is more, rounded up to what a queue can have.
//
// Where slots come back by polling, every request that holds a slot has at most one entry, and no slot is free before its
// entry was taken: a queue of Demand entries cannot overrun, whatever the consumer does. A queue below it is too small
// even if it never overran, for one pause of its consumer may end all its queue pairs.
//
// Where slots come back on completion, Demand is where it begins: while the consumer pauses, slots are used again and
// again, and what was seen is all there is to go by. A queue that was full is too small then, and a quarter is added to
// what was seen, because the next pause may be longer.
//
// A queue is too large from twice what it takes on: the memory is wasted, nothing else. Without queue pairs and without
// entries seen nothing is known, and everything fits.
func Advise(e Evidence) Advice {
	seen := e.HighWater + e.Overruns
	need := max(e.Demand, seen)
	full := e.ReclaimOnCompletion && e.Overruns == 0 && e.HighWater > 0 && e.HighWater >= e.Capacity
	if full {
		need = max(e.Demand, seen+seen/4)
	}
	a := Advice{Entries: round(need)}
	switch {
	case need == 0:
		a.Reason = "nothing posts to it"
	case e.Overruns > 0:
		a.Verdict = TooSmall
		a.Reason = fmt.Sprintf("it overran, %d entries were lost", e.Overruns)
	case e.Capacity < e.Demand:
		a.Verdict = TooSmall
		a.Reason = fmt.Sprintf("%d requests can be posted at once; %d entries at most waited so far", e.Demand, e.HighWater)
	case full:
		a.Verdict = TooSmall
		a.Reason = "it was full, and nothing bounds it: slots come back before their completions are polled"
	case e.Capacity >= 2*a.Entries:
		a.Verdict = TooLarge
		a.Reason = bound(e, need)
	default:
		a.Reason = bound(e, need)
	}
	return a
}

// bound says how sure it is that a queue of need entries is deep enough.
func bound(e Evidence, need uint64) string {
	switch {
	case e.ReclaimOnCompletion:
		return fmt.Sprintf("%d entries at most waited so far; nothing bounds it, slots come back before their completions are polled", e.HighWater)
	case need > e.Demand:
		return fmt.Sprintf("%d entries waited once; %d requests can be posted at once now", need, e.Demand)
	}
	return fmt.Sprintf("no more than %d requests can be posted at once", e.Demand)
}

// round returns the least capacity of at least n entries.
func round(n uint64) uint64 {
	const step = abi.CQRound
	return (n + step - 1) / step * step
}
