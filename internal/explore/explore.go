// Package explore runs a small concurrent program through every order of its steps, for tests of protocols in shared
// memory.
//
// The program is a few threads. Each announces every touch of shared memory just before it ([World.Step]) and is held
// there until it is picked; what it does up to its next announcement is one step, and touches the announced word only.
// [All] runs the program from the start once for each order: depth first, and by sleep sets only one of those orders that
// differ in steps which do not see each other.
//
//	orders, err := explore.All(func(w *explore.World) []func() {
//		var flag, data int
//		return []func(){
//			func() { w.Step(0, "data", true); data = 1; w.Step(0, "flag", true); flag = 1 },
//			func() {
//				w.Wait(1, "flag", func() bool { return flag == 1 })
//				w.Step(1, "data", false)
//				if data != 1 { w.Failf("flag without data") }
//			},
//		}
//	})
package explore

import (
	"fmt"
	"strings"
)

// World is one run of a program.
type World struct {
	threads []thread
	arrived chan struct{}
	fault   error
	trace   []string
}

type thread struct {
	at      step
	enabled func() bool // nil: always
	run     chan bool   // true: take your step; false: the run is abandoned
	done    bool
}

// A step is what a thread does next, as far as others can see it.
type step struct {
	word  string
	write bool
}

// commutes reports whether two threads' steps may be swapped without anybody seeing it.
func (s step) commutes(o step) bool { return s.word != o.word || !s.write && !o.write }

type abandoned struct{}

// Step holds the calling thread before it touches a word.
func (w *World) Step(thread int, word string, write bool) { w.park(thread, step{word, write}, nil) }

// Wait holds the calling thread until enabled, which may look at the announced word only, and then some step later. It
// counts as a write.
func (w *World) Wait(thread int, word string, enabled func() bool) {
	w.park(thread, step{word, true}, enabled)
}

// Failf records the run's failure. The first one counts.
func (w *World) Failf(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

func (w *World) park(i int, at step, enabled func() bool) {
	t := &w.threads[i]
	t.at, t.enabled = at, enabled
	w.arrived <- struct{}{}
	if !<-t.run {
		panic(abandoned{})
	}
}

// All runs the program that setup returns through all orders, and returns how many there were and the first failure:
// what Failf said, or that threads wait and none can go on.
func All(setup func(w *World) []func()) (orders int, err error) {
	var path []node
	for {
		w := &World{arrived: make(chan struct{})}
		bodies := setup(w)
		w.threads = make([]thread, len(bodies))
		for i := range bodies {
			w.start(i, bodies[i])
		}
		path = w.follow(path)
		if w.fault != nil {
			return orders, fmt.Errorf("%w\norder: %s", w.fault, strings.Join(w.trace, " "))
		}
		if w.finished() {
			orders++
		}
		w.abandon()
		// The deepest place where another thread may go first.
		for len(path) > 0 {
			n := &path[len(path)-1]
			n.sleeps[n.choice] = true
			if n.choice = n.pick(); n.choice >= 0 {
				break
			}
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return orders, nil
		}
	}
}

// A node is a place where a thread was picked.
type node struct {
	choice  int
	enabled []bool
	at      []step
	sleeps  []bool // what comes of picking this thread was seen elsewhere
}

func (n *node) pick() int {
	for i, ok := range n.enabled {
		if ok && !n.sleeps[i] {
			return i
		}
	}
	return -1
}

func (w *World) start(i int, body func()) {
	t := &w.threads[i]
	t.run = make(chan bool)
	go func() {
		defer func() {
			if r := recover(); r != nil && r != (abandoned{}) {
				panic(r)
			}
			t.done = true
			w.arrived <- struct{}{}
		}()
		body()
	}()
	<-w.arrived
}

// follow runs the world along path and then on to its end by first choices, and returns the path it went.
func (w *World) follow(path []node) []node {
	for depth := 0; w.fault == nil && !w.finished(); depth++ {
		if depth == len(path) {
			n := w.node(path)
			if n.stuck() {
				w.Failf("threads wait and none can go on")
				return path
			}
			if n.choice = n.pick(); n.choice < 0 {
				return path // every order from here on was run already
			}
			path = append(path, n)
		}
		i := path[depth].choice
		w.trace = append(w.trace, fmt.Sprintf("%d:%s", i, w.threads[i].at.word))
		w.threads[i].run <- true
		<-w.arrived
	}
	return path
}

func (w *World) node(path []node) node {
	n := node{enabled: make([]bool, len(w.threads)), at: make([]step, len(w.threads)), sleeps: make([]bool, len(w.threads))}
	for i := range w.threads {
		t := &w.threads[i]
		n.at[i] = t.at
		n.enabled[i] = !t.done && (t.enabled == nil || t.enabled())
		if len(path) > 0 {
			p := &path[len(path)-1]
			n.sleeps[i] = p.sleeps[i] && p.at[i].commutes(p.at[p.choice])
		}
	}
	return n
}

func (n *node) stuck() bool {
	for _, ok := range n.enabled {
		if ok {
			return false
		}
	}
	return true
}

func (w *World) finished() bool {
	for i := range w.threads {
		if !w.threads[i].done {
			return false
		}
	}
	return true
}

func (w *World) abandon() {
	for i := range w.threads {
		if t := &w.threads[i]; !t.done {
			t.run <- false
			<-w.arrived
		}
	}
}
