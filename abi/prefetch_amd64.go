package abi

// prefetch asks for the cache line of p, to be read soon, and prefetchWrite to be written. They are hints, which neither fault
// nor change anything.
//
//go:noescape
func prefetch(p *uint64)

//go:noescape
func prefetchWrite(p *uint64)
