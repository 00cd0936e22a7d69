// Package trace keeps what a device decided, for people and for tests.
//
// An [Event] is one decision of an engine, of fixed size and without pointers. A [Ring] is a flight recorder: it holds
// the latest events of one shard in memory made beforehand, and a hash of all there ever were, so that two runs of a
// simulation can be told to be the same. A [Ladder] draws packets between queue pairs as text; its input are plain
// [Step] values, so that rings and captures feed it alike.
//
//	ring := trace.NewRing(4096)
//	ring.Add(trace.Event{Time: now, QPN: qpn, Kind: trace.Sent, Opcode: op, PSN: psn, Length: 1024})
//
//	steps := names.Steps(ring.Snapshot(nil), peers)
//	fmt.Print(trace.Ladder{}.Draw(steps))
//
// The package knows nothing of the wire format: opcodes and syndromes are bytes here, and [Names] says what to call
// them.
package trace
