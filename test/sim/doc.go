// Package sim runs whole devices from a seed.
//
// A seed makes a [Plan]: one to eight devices, the connections between them, what their applications do, and how bad the
// network is. A world runs it: one goroutine, a virtual clock, a heap of events, and real code from the rings that
// applications post to down to the bytes on the wire. Nothing reads the host's clock or a random source of its own, so
// a seed that fails fails again in the same way, step by step.
//
// A run has two phases. In the safety phase the network loses, duplicates, reorders, spoils and delays packets and ports
// take fewer frames than they are offered: nothing wrong may happen. Then the faults stop, and everything that was
// posted has to end within a bound of virtual time (liveness).
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
