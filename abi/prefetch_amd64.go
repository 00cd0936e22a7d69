package abi

// prefetchWrite asks for the cache line of p, to be written soon. It is a hint, which neither faults nor changes anything.
//
//go:noescape
func prefetchWrite(p *uint64)
