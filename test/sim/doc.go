// Package sim runs whole devices from a seed.
//
// A seed makes a [Plan]: one to eight devices, the connections between them, what their applications do, and how bad the
// network is. A world runs it: one goroutine, a virtual clock, a heap of events, and real code from the rings that
// applications post to down to the bytes on the wire. Nothing reads the host's clock or a random source of its own, so
// a seed that fails fails again in the same way, step by step.
//
// A run has two phases. In the safety phase nothing wrong may happen, whatever else does. Then the faults stop, and
// everything honest that was posted has to end within a bound of virtual time (liveness). The faults:
//
//	network.go   packets lost, doubled, late, spoilt, marked; rewrite.go changed with a good ICRC
//	faults.go    devices cut off or standing still, ports that refuse or fail
//	attack.go    an attacker who forges packets and cannot see the wire
//	crash.go     devices that crash and come back; death.go and madness.go the same for applications
//	memory.go    memory that is gone for a while; overrun.go completion queues that are too small
//	offence.go   requests that ask for too much
//
// Objects are changed while they are in use (change.go), which is no fault and must disturb nobody: queue pairs go to SQD and
// come back (drain.go) or are reset and begin another life (rebirth.go), completion queues are resized (resize.go), regions
// are registered anew (rereg.go).
//
// What is sent is a table, one row an operation: ops.go. Some connections are extended ones (XRC): extended.go. Next to the
// connections there are talks over the unreliable services UC and UD: talk.go, and hearing.go for what is right there.
// Some are to a multicast group: group.go. Their queue pairs go to SQD and RESET, too: talkchange.go.
//
// What is right is known without looking into the device: a message's bytes are drawn when it is posted, the memory it
// goes to is its own until it completes, and so a model says what every byte, completion and result has to be. See
// slots.go for memory, outcome.go for completions, atomics.go for words that several connections share, and ending.go for
// what has to be left at the end: nothing.
//
//	go test ./test/sim -sim.seed=4711              # one seed; the log of a run that fails is printed
//	go test ./test/sim -sim.seed=4711 -sim.verbose # the log in any case
//	go test ./test/sim -sim.seeds=100000           # more of them
package sim
