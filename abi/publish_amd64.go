//go:build !race

package abi

// publish is an atomic store that orders the loads and stores before it, and not the loads after it (C's release). On this
// processor every store of an aligned word is one; the exchange that sync/atomic makes of it waits for the cache line, and
// for those of all stores before it.
//
//go:noescape
func publish(p *uint64, v uint64)
