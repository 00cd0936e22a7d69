//go:build race

package abi

import "sync/atomic"

// Under the race detector entries are written and read by atomics, so that a test may play a hostile neighbour that
// scribbles in an entry while it is copied and still have every other race reported.

func put(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func put32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

func get(p *uint64) uint64 { return atomic.LoadUint64(p) }
