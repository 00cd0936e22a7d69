//go:build !race

package abi

// put writes a word of an entry that the other side does not look at before it is published. A plain store is enough and
// eight times as fast as an atomic one on amd64, where every sequentially consistent store is an exchange; the store that
// publishes the entry is atomic and orders those before it.
func put(p *uint64, v uint64) { *p = v }

// put32 writes a count that tells of what is settled already: loads and stores before it are ordered by their own.
func put32(p *uint32, v uint32) { *p = v }

// get reads a word of an entry that the device has published and will not touch before it is given back.
func get(p *uint64) uint64 { return *p }
