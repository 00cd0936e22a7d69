package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/trace"
)

// Streams of dice.
const (
	streamPlan = iota
	streamNetwork
	streamTrouble
	streamAttacker
	streamDevice      // + device
	streamApplication = streamDevice + 16
	streamTalk        = streamApplication + 16 // the plan of talks
	streamTalker      = streamTalk + 1         // + 2 * talk + side
	streamChange      = streamTalker + 64
	streamExtended    = streamChange + 2
	streamRuns        = streamExtended + 64
	streamShards      = streamRuns + 1
	streamTalkChange  = streamShards + 1
)

// world is one run of a plan.
type world struct {
	plan   *Plan
	tamper Tamper
	now    clock.Time
	events events
	turned int // events so far

	nodes       []*node
	conns       []*connection
	talkers     []*talker
	net         *network
	trouble     trouble
	attacker    *attacker
	changes     changes
	talkChanges talkChanges
	faults      bool
	died        bool // an application has
	mad         bool // one is
	crashed     bool // a device has
	done        int  // requests that have ended
	total       int

	census census
	hash   uint64
	logs   *Log // nil: nobody reads
	// problem is what was found wrong inside a device's call, where a panic would be contained.
	problem string
	moments int64
}

// failure is what ends a run: an observation that should not be.
type failure string

// failf ends the run.
func (w *world) failf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// accuse notes a failure from within a call of a device. The run ends when the call is over.
func (w *world) accuse(format string, args ...any) {
	if w.problem == "" {
		w.problem = fmt.Sprintf(format, args...)
	}
}

func (w *world) verdict() {
	if w.problem != "" {
		w.failf("%s", w.problem)
	}
}

func (w *world) record(words ...uint64) {
	h := w.hash
	for _, x := range words {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	w.hash = h
}

// logf adds a line to the log. Callers in hot places ask w.logs themselves, so that no arguments are made for nothing.
func (w *world) logf(who, format string, args ...any) {
	if w.logs != nil {
		w.logs.add(w.now, who, fmt.Sprintf(format, args...))
	}
}

// Log is what happened in a run: lines for the whole, and the packets of each connection for its ladder.
type Log struct {
	lines []string
	steps [][]trace.Step // by connection
}

func (l *Log) add(now clock.Time, who, text string) {
	l.lines = append(l.lines, fmt.Sprintf("%12.3f us  %-8s %s", float64(now)/1e3, who, text))
}

func (l *Log) step(connection int, s trace.Step) {
	for len(l.steps) <= connection {
		l.steps = append(l.steps, nil)
	}
	l.steps[connection] = append(l.steps[connection], s)
}

// Tail returns the last n lines.
func (l *Log) Tail(n int) string {
	return strings.Join(l.lines[max(0, len(l.lines)-n):], "\n")
}

// Ladder draws the last n steps of a connection.
func (l *Log) Ladder(connection, n int) string {
	if connection >= len(l.steps) {
		return ""
	}
	s := l.steps[connection]
	return trace.Ladder{Endpoints: []string{endpointName(connection, 0), endpointName(connection, 1)}, Width: 120}.Draw(s[max(0, len(s)-n):])
}

// deviceLog makes a failure of every error that a device logs: in a run there is no reason for one.
type deviceLog struct{ n *node }

func (h deviceLog) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (h deviceLog) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	if !h.n.port.failed && !h.n.isMadness(text) {
		h.n.w.accuse("device: %s", text)
	}
	return nil
}

func (h deviceLog) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h deviceLog) WithGroup(string) slog.Handler      { return h }

// event is something that happens at a time. Of those at the same time the one entered first comes first.
type event struct {
	at     clock.Time
	order  uint64
	node   *node        // a round of its device, or the arrival of packet
	app    *application // its turn
	talker *talker      // the same
	*packet
}

// stale reports whether an event was overtaken: who it is for has had a turn since, or asked for another one.
func (e *event) stale() bool {
	switch {
	case e.packet != nil:
		return false
	case e.app != nil:
		return e.at != e.app.next || e.app.dead
	case e.talker != nil:
		return e.at != e.talker.next || e.talker.dead
	}
	return e.at != e.node.next
}

// events is a heap.
type events struct {
	heap    []event
	entered uint64
}

func (q *events) before(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *events) push(e event) {
	e.order = q.entered
	q.entered++
	q.heap = append(q.heap, e)
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.before(i, parent) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *events) pop() event {
	e := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.before(child+1, child) {
			child++
		}
		if !q.before(child, i) {
			break
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
	return e
}

// turn lets the next event happen.
func (w *world) turn() {
	e := w.events.pop()
	if e.stale() {
		return
	}
	w.now = e.at
	w.turned++
	switch {
	case e.packet != nil:
		e.node.arrive(e.packet)
	case e.app != nil:
		e.app.turn(e.at)
	case e.talker != nil:
		e.talker.turn()
	default:
		e.node.turn(e.at)
	}
	w.verdict()
}
