package cq

import (
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/internal/explore"
)

// The device and the application as two threads that run the production functions; the hooks in those announce each touch
// of shared memory, and package explore orders them through all orders of their touches.

const (
	device = iota
	application
	threads
)

var wordNames = [...]string{
	wordEntry: "entry", wordProduced: "produced", wordState: "state", wordFired: "fired", wordMoved: "moved", wordConsumed: "consumed", wordArm: "arm",
}

type world struct {
	*explore.World
	queue  *Queue
	reader *Reader
	events int    // sent and not received yet
	second []byte // block of a resize
}

// Notify is the device's step that sends an event.
func (w *world) Notify(uint64, uint32) {
	w.Step(device, "event", true)
	w.events++
}

// wait is the application's sleep until an event comes.
func (w *world) wait() {
	w.Wait(application, "event", func() bool { return w.events > 0 })
	w.events--
}

type scenario struct {
	before func(w *world) // unscheduled
	bodies [threads]func(w *world)
}

func (s *scenario) explore() (orders int, err error) {
	return explore.All(func(x *explore.World) []func() {
		w := &world{World: x}
		memory := make([]byte, abi.CQBlockSize(64))
		w.queue, _ = New(Config{Block: memory, Capacity: 64, Notifier: w})
		w.reader, _ = NewReader(memory, 64)
		if s.before != nil {
			s.before(w)
		}
		// Each word has one writer.
		w.queue.step = func(at word) { w.Step(device, wordNames[at], at < wordConsumed) }
		w.reader.step = func(at word) { w.Step(application, wordNames[at], at >= wordConsumed) }
		return []func(){func() { s.bodies[device](w) }, func() { s.bodies[application](w) }}
	})
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
	var e [80]abi.CQE
	n, err := w.reader.Poll(e[:])
	for i := range n {
		if e[i].WRID != uint64(taken+i+1) {
			w.Failf("entry %d has wr_id %d", taken+i+1, e[i].WRID)
		}
	}
	if err != nil {
		w.Failf("poll: %v", err)
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

// Field bug B17: whatever the order of arming, looking and posting, no event is lost.
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
			orders, err := s.explore()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d orders", orders)
			if orders < 2 {
				t.Errorf("%d orders: the explorer does not explore", orders)
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
				w.Failf("entry %d has wr_id %d", taken, e[i].WRID)
			}
		}
		if err != nil {
			if taken != 64 {
				w.Failf("queue dead after %d entries, 64 fit", taken)
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
			if orders, err := s.explore(); err == nil {
				t.Errorf("%d orders and none lost a wake-up", orders)
			}
		})
	}
}
