package cq

import (
	"fmt"
	"strings"
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
)

// The device and the application as two threads whose every touch of shared memory is a step, and a scheduler that runs
// them through all orders of their steps: depth first, each order a run from the start. Orders that differ only in steps
// which do not see each other (different words, or no writer among them) are run once, by sleep sets.
//
// The threads run the production functions; the hooks only hold them.

const (
	device = iota
	application
	threads
)

// wordEvent is the completion channel: the device sends, the application receives.
const wordEvent = wordArm + 1

// Each word has one writer, so that two steps commute if they touch different words.
var wordNames = [...]string{"entry", "produced", "state", "fired", "consumed", "arm", "event"}

type world struct {
	queue  *Queue
	reader *Reader
	events int // sent and not received yet

	parked  [threads]word
	enabled [threads]func() bool
	done    [threads]bool
	run     [threads]chan bool // true: take your step; false: the run is abandoned
	arrived chan int
	fault   error
	trace   []string
}

type abandoned struct{}

// park holds the calling thread before a step until the scheduler picks it.
func (w *world) park(thread int, at word, enabled func() bool) {
	w.parked[thread], w.enabled[thread] = at, enabled
	w.arrived <- thread
	if !<-w.run[thread] {
		panic(abandoned{})
	}
}

// Notify is the device's step that sends an event.
func (w *world) Notify(uint64, uint32) {
	w.park(device, wordEvent, nil)
	w.events++
}

// wait is the application's sleep until an event comes.
func (w *world) wait() {
	w.park(application, wordEvent, func() bool { return w.events > 0 })
	w.events--
}

func (w *world) failf(format string, args ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, args...)
	}
}

type scenario struct {
	before func(w *world) // unscheduled
	bodies [threads]func(w *world)
}

type node struct {
	choice  int
	enabled [threads]bool
	parked  [threads]word
	sleep   [threads]bool
}

// explore returns how many complete runs there were, and the first failure.
func explore(s scenario) (runs int, failure error) {
	var path []node
	for {
		w := newWorld(s)
		path = w.follow(path)
		if w.fault != nil {
			return runs, fmt.Errorf("%w\norder: %s", w.fault, strings.Join(w.trace, " "))
		}
		if w.done[device] && w.done[application] {
			runs++
		}
		// The deepest node where another thread may still go first.
		for len(path) > 0 {
			n := &path[len(path)-1]
			n.sleep[n.choice] = true
			if n.choice = n.pick(); n.choice >= 0 {
				break
			}
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			return runs, nil
		}
	}
}

func newWorld(s scenario) *world {
	w := &world{arrived: make(chan int)}
	memory := make([]byte, abi.CQBlockSize(64))
	w.queue, _ = New(Config{Block: memory, Capacity: 64, Notifier: w})
	w.reader, _ = NewReader(memory, 64)
	if s.before != nil {
		s.before(w)
	}
	w.queue.step = func(at word) { w.park(device, at, nil) }
	w.reader.step = func(at word) { w.park(application, at, nil) }
	for thread, body := range s.bodies {
		w.run[thread] = make(chan bool)
		go func() {
			defer func() {
				if r := recover(); r != nil && r != (abandoned{}) {
					panic(r)
				}
				w.done[thread] = true
				w.arrived <- thread
			}()
			body(w)
		}()
		<-w.arrived // parked before its first step
	}
	return w
}

// follow runs the world along path, then on to the end by first choices, and returns the path that was taken.
func (w *world) follow(path []node) []node {
	for depth := 0; ; depth++ {
		if w.done[device] && w.done[application] || w.fault != nil {
			break
		}
		if depth == len(path) {
			n := node{parked: w.parked}
			for t := range threads {
				n.enabled[t] = !w.done[t] && (w.enabled[t] == nil || w.enabled[t]())
				if depth > 0 {
					p := &path[depth-1]
					n.sleep[t] = p.sleep[t] && p.parked[t] != p.parked[p.choice]
				}
			}
			if !n.enabled[device] && !n.enabled[application] {
				w.failf("the application sleeps for ever")
				break
			}
			if n.choice = n.pick(); n.choice < 0 {
				break // every order from here was run already
			}
			path = append(path, n)
		}
		t := path[depth].choice
		w.trace = append(w.trace, fmt.Sprintf("%c:%s", "DA"[t], wordNames[w.parked[t]]))
		w.run[t] <- true
		<-w.arrived
	}
	for t := range threads {
		if !w.done[t] {
			w.run[t] <- false
			<-w.arrived
		}
	}
	return path
}

func (n *node) pick() int {
	for t := range threads {
		if n.enabled[t] && !n.sleep[t] {
			return t
		}
	}
	return -1
}

// post is the device's body: entries with these solicited bits.
func post(solicited ...bool) func(*world) {
	return func(w *world) {
		for i, s := range solicited {
			w.queue.Post(0, &abi.CQE{WRID: uint64(i + 1)}, s)
		}
	}
}

// consume takes n entries, in order, sleeping whenever ReqNotify says that it may.
func consume(n int, kind abi.ArmKind) func(*world) {
	return func(w *world) {
		for taken := 0; ; {
			taken += drain(w, taken)
			if taken == n {
				return
			}
			if !w.reader.ReqNotify(kind) {
				w.wait()
			}
		}
	}
}

func drain(w *world, taken int) (n int) {
	var e [4]abi.CQE
	n, err := w.reader.Poll(e[:])
	for i := range n {
		if e[i].WRID != uint64(taken+i+1) {
			w.failf("entry %d has wr_id %d", taken+i+1, e[i].WRID)
		}
	}
	if err != nil {
		w.failf("poll: %v", err)
	}
	return n
}

func fill(n int) func(*world) {
	return func(w *world) {
		for i := range n {
			w.queue.Post(0, &abi.CQE{WRID: uint64(i + 1)}, false)
		}
	}
}

func TestNoOrderLosesAWakeUp(t *testing.T) {
	for name, s := range map[string]scenario{
		"one entry":             {bodies: [threads]func(*world){post(false), consume(1, abi.ArmNext)}},
		"two entries":           {bodies: [threads]func(*world){post(false, false), consume(2, abi.ArmNext)}},
		"three entries":         {bodies: [threads]func(*world){post(false, true, false), consume(3, abi.ArmNext)}},
		"solicited last":        {bodies: [threads]func(*world){post(false, true), consume(2, abi.ArmSolicited)}},
		"solicited upgraded":    {bodies: [threads]func(*world){post(false), upgrade(abi.ArmSolicited, abi.ArmNext)}},
		"next is not weakened":  {bodies: [threads]func(*world){post(false), upgrade(abi.ArmNext, abi.ArmSolicited)}},
		"held until the period": {before: moderated, bodies: [threads]func(*world){postAndExpire(2), consume(2, abi.ArmNext)}},
		"overrun":               {before: fill(63), bodies: [threads]func(*world){overrun, untilDeadOrDrained}},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := explore(s)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d orders", runs)
			if runs < 2 {
				t.Errorf("%d orders: the explorer does not explore", runs)
			}
		})
	}
}

// upgrade arms twice before it sleeps.
func upgrade(first, second abi.ArmKind) func(*world) {
	return func(w *world) {
		w.reader.ReqNotify(first)
		for drain(w, 0) == 0 {
			if !w.reader.ReqNotify(second) {
				w.wait()
			}
		}
	}
}

func moderated(w *world) { w.queue.SetModeration(100, 50) }

func postAndExpire(n int) func(*world) {
	return func(w *world) {
		for i := range n {
			w.queue.Post(clock.Time(i), &abi.CQE{WRID: uint64(i + 1)}, false)
		}
		w.queue.Expire(w.queue.Deadline())
	}
}

// overrun posts one entry that fits and one that fits only if the reader was quick.
func overrun(w *world) {
	for i := range 2 {
		w.queue.Post(0, &abi.CQE{WRID: uint64(64 + i)}, false)
	}
}

// untilDeadOrDrained takes all 65 entries, or 64 and then the error.
func untilDeadOrDrained(w *world) {
	for taken := 0; taken < 65; {
		var e [80]abi.CQE
		n, err := w.reader.Poll(e[:])
		for i := range n {
			if taken++; e[i].WRID != uint64(taken) {
				w.failf("entry %d has wr_id %d", taken, e[i].WRID)
			}
		}
		if err != nil {
			if taken != 64 {
				w.failf("queue dead after %d entries, 64 fit", taken)
			}
			return
		}
		if n == 0 && !w.reader.ReqNotify(abi.ArmNext) {
			w.wait()
		}
	}
}

// The explorer must find what it is for: each half without its second look, and the looks in the wrong order.
func TestExplorerFindsLostWakeUps(t *testing.T) {
	for name, s := range map[string]scenario{
		"application sleeps without looking again": {bodies: [threads]func(*world){post(false), func(w *world) {
			for drain(w, 0) == 0 {
				w.reader.ReqNotify(abi.ArmNext)
				w.wait()
			}
		}}},
		"application looks before it arms": {bodies: [threads]func(*world){post(false), func(w *world) {
			for drain(w, 0) == 0 {
				w.reader.touch(wordEntry)
				missed := w.reader.block.Ready(0, 0)
				w.reader.ReqNotify(abi.ArmNext)
				if !missed {
					w.wait()
				}
			}
		}}},
		"device looks before it publishes": {bodies: [threads]func(*world){func(w *world) {
			due := w.queue.eventDue(0, false)
			w.queue.touch(wordEntry)
			w.queue.block.Write(0, 0, &abi.CQE{WRID: 1})
			if due {
				w.Notify(0, 0)
			}
		}, consume(1, abi.ArmNext)}},
	} {
		t.Run(name, func(t *testing.T) {
			if runs, err := explore(s); err == nil {
				t.Errorf("%d orders and none lost a wake-up", runs)
			}
		})
	}
}
