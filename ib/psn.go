package ib

import "fmt"

// PSN is a packet sequence number: 24 bits, ordered modulo 2^24 (IBA 9.7.2).
type PSN uint32

// PSNMask keeps the 24 bits of a sequence number.
const PSNMask = 1<<24 - 1

// NewPSN takes the low 24 bits of v.
func NewPSN(v uint32) PSN { return PSN(v & PSNMask) }

// Add returns the sequence number n packets later.
func (p PSN) Add(n uint32) PSN { return PSN((uint32(p) + n) & PSNMask) }

// Sub returns the sequence number n packets earlier.
func (p PSN) Sub(n uint32) PSN { return PSN((uint32(p) - n) & PSNMask) }

// Next returns the following sequence number.
func (p PSN) Next() PSN { return p.Add(1) }

// Diff returns how far p is ahead of q, negative if it is behind, in [-2^23, 2^23).
// Numbers exactly 2^23 apart count as behind, on either side.
func (p PSN) Diff(q PSN) int32 { return int32((uint32(p)-uint32(q))<<8) >> 8 }

// Before reports whether p precedes q.
func (p PSN) Before(q PSN) bool { return p.Diff(q) < 0 }

// After reports whether p follows q.
func (p PSN) After(q PSN) bool { return p.Diff(q) > 0 }

func (p PSN) String() string { return fmt.Sprintf("%#06x", uint32(p)) }
