// Package rc is the reliable connection: every request is executed at the peer exactly once and in order, over a network
// that loses, repeats and reorders packets (IBA 9.7).
//
// An [Engine] has two halves that share a state and a path. The requester turns posted sends into request packets and
// judges the responses to them; the responder executes the peer's requests and answers. Neither knows a clock or a
// socket: they are told the time and handed packets (see [transport.Engine]).
//
//	e := rc.New(rc.Config{QPN: 0x11, Cap: caps, Domain: pd, Table: keys, QP: qp, Counters: c, Limits: limits})
//	e.Modify(now, &attr, mask, path)          // INIT, RTR, RTS
//	e.Receive(now, pkt)
//	sent, more := e.Transmit(now, burst, budget)
//	wake = min(wake, e.Deadline())
//
// The files, in the order of a message's way:
//
//	engine.go     the two halves, state, and the header that all frames share
//	work.go       private copies of posted sends, in a ring
//	requester.go  which packet goes next
//	segment.go    how a request packet is made
//	local.go      LOCAL_INV and BIND_MW, which make none
//	placement.go  ATOMIC WRITE and FLUSH, both sides
//	window.go     how many packets may be on their way
//	outstanding.go what counts against the bound that queue pairs share
//	retry.go      timers, and going back after a loss
//	probe.go      asking a peer who is silent
//	completer.go  what a response says about requests
//	retire.go     the end of requests: completions in order, errors, flush, drain
//	responder.go  the peer's requests, from arrival to answer; errors and flush
//	judge.go      the specification's questions about a request, in its order
//	execute.go    what a request does, and what completes
//	invalidate.go what SEND WITH INVALIDATE does besides
//	replay.go     READs and atomics that may be asked for again
//	ack.go        the answers that wait, in the order of their PSNs
//	trace.go      what the requester tells the flight recorder
//	witness.go    what the responder tells it
package rc
