//go:build !amd64 || race

package abi

import "sync/atomic"

func publish(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
