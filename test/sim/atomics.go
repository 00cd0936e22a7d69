package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// sharedMemory is two words which everybody who talks to an application adds to, swaps, writes and reads. What is given back
// has to make sense together: there has to be an order of the operations, each somewhere between its posting and its
// completion, in which every one of them finds what those before it have left. Porcupine looks for that order.
type sharedMemory struct {
	arena *arena
	area  *area
	mr    *nic.MR
	first [sharedWords]uint64
	asked [sharedWords][]*request
	// tainted says that a mad application may have done to it what it liked.
	tainted bool
}

const sharedWords = 2

func newSharedMemory(a *application) *sharedMemory {
	s := &sharedMemory{arena: newArena(canary + areaSize(sharedWords, 0, 0))}
	s.area = s.arena.carve(a.dice, sharedWords, 0, 0)
	for i := range s.first {
		s.first[i] = s.value(i)
	}
	const access = ib.AccessLocalWrite | ib.AccessRemoteAtomic | ib.AccessRemoteWrite | ib.AccessRemoteRead
	if err := s.arena.register(a.ctx, a.pd, s.area, access); err != nil {
		a.w.failf("%v", err)
	}
	s.mr = s.area.mr
	return s
}

func (s *sharedMemory) value(word int) uint64 { return nativeWord(s.area.mem[8*word:]) }

// A shared word of a request is a negative number.

func drawShared(d *dice, r *request) {
	r.length, r.operand = 8, d.r.Uint64()
	r.word = -1 - d.below(sharedWords)
}

func (r *request) isShared() bool { return r.word < 0 }

// most is how many requests on a word may be under way, or have an end that nobody knows. The search for an order takes
// long when there are many.
const most = 8

// privately takes a request away from its shared word if that is crowded: it works on one of the end's own.
func (e *endpoint) privately(r *request) {
	if !r.isShared() {
		return
	}
	n := 0
	for _, other := range e.peer.app.shared.asked[-1-r.word] {
		if other.returned == 0 {
			n++
		}
	}
	if n >= most {
		r.word = e.app.dice.below(ownWords)
	}
}

// ask enters a request into the history of its word and returns how it names it.
func (e *endpoint) ask(r *request) (addr uint64, key uint32) {
	s := e.peer.app.shared
	word := -1 - r.word
	s.asked[word] = append(s.asked[word], r)
	r.called = e.app.w.moment()
	// Sometimes somebody else will have changed the word meanwhile.
	r.compare = r.operand + 1
	if r.match {
		r.compare = s.value(word)
	}
	return s.area.base + uint64(8*word), uint32(s.mr.RKey())
}

// moment numbers what happens in a run, in order.
func (w *world) moment() int64 {
	w.moments++
	return w.moments
}

// outcome is what is known of an operation on a shared word.
type outcome struct {
	known bool // it has ended well
	value uint64
}

// wordModel is a word of 64 bits.
func wordModel(first uint64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, output any) (bool, any) {
			value, r, o := state.(uint64), input.(*request), output.(outcome)
			if r == nil || r.op == ib.WRRDMARead {
				return !o.known || o.value == value, value
			}
			ok := !o.known || r.op == ib.WRAtomicWrite || o.value == value
			switch r.op {
			case ib.WRAtomicFetchAdd:
				value += r.operand
			case ib.WRAtomicWrite:
				value = r.operand
			default:
				if r.compare == value {
					value = r.operand
				}
			}
			return ok, value
		},
	}
}

// patience bounds a search. It is far more than any takes; what is not found by then counts as right.
const patience = 5 * time.Second

// check asks whether the values returned, and those that are left, come from some order of the requests. One whose end is
// not known may have come at any time, or not yet.
func (s *sharedMemory) check(a *application) {
	if at := s.arena.broken(); at >= 0 {
		a.w.failf("%s: byte %d beside the shared words was changed", a.name, at)
	}
	for word, asked := range s.asked {
		var history []porcupine.Operation
		for i, r := range asked {
			op := porcupine.Operation{ClientId: i, Input: r, Call: r.called, Output: outcome{r.returned != 0, r.got}, Return: r.returned}
			if r.returned == 0 {
				op.Return = math.MaxInt64
			}
			history = append(history, op)
		}
		now := a.w.moment()
		left := outcome{true, s.value(word)}
		history = append(history, porcupine.Operation{ClientId: len(asked), Input: (*request)(nil), Call: now, Output: left, Return: now})
		switch porcupine.CheckOperationsTimeout(wordModel(s.first[word]), history, patience) {
		case porcupine.Illegal:
			a.w.failf("%s: what %d requests on shared word %d were given, and the %#x that it holds, fit no order: %s",
				a.name, len(asked), word, left.value, describeHistory(asked, s.first[word]))
		case porcupine.Unknown:
			a.w.census["searches given up"]++
		}
		a.w.census["linearizable histories"]++
	}
}

func describeHistory(asked []*request, first uint64) string {
	text := fmt.Sprintf("first %#x", first)
	for _, r := range asked {
		text += fmt.Sprintf("; %v from %d to %d: operand %#x compare %#x gives %#x", r, r.called, r.returned, r.operand, r.compare, r.got)
	}
	return text
}
