package nic

import (
	"sync/atomic"

	"github.com/softnic/softnicd/wire"
)

// PortCounters are what a port counts: each has one writer, the port, and any number of readers.
type PortCounters struct {
	SentPackets     atomic.Uint64
	SentBytes       atomic.Uint64 // UDP payload
	ReceivedPackets atomic.Uint64
	ReceivedBytes   atomic.Uint64
	SendErrors      atomic.Uint64 // frames the network refused (EPERM, ENETUNREACH, ...): they count as lost
	SocketDrops     atomic.Uint64 // datagrams lost for want of receive buffer
	Filtered        atomic.Uint64 // datagrams, or groups of them, from sources that the device does not accept
	// Dropped counts refused datagrams by reason.
	Dropped [wire.NumDrops]atomic.Uint64
}

// SetSum makes c the sums of others, for a port that is made of several.
func (c *PortCounters) SetSum(others ...*PortCounters) {
	set := func(field func(*PortCounters) *atomic.Uint64) {
		var sum uint64
		for _, o := range others {
			sum += field(o).Load()
		}
		field(c).Store(sum)
	}
	set(func(c *PortCounters) *atomic.Uint64 { return &c.SentPackets })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.SentBytes })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.ReceivedPackets })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.ReceivedBytes })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.SendErrors })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.SocketDrops })
	set(func(c *PortCounters) *atomic.Uint64 { return &c.Filtered })
	for i := range c.Dropped {
		set(func(c *PortCounters) *atomic.Uint64 { return &c.Dropped[i] })
	}
}
