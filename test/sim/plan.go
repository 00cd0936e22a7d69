package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/softnic/softnicd/ib"
)

// Plan is what a seed decides before a run begins.
type Plan struct {
	Seed        uint64
	Devices     int
	IPv6        bool
	Network     NetworkPlan
	Runs        bool // ports take runs of packets
	Faults      FaultPlan
	Attack      int // packets that an attacker forges
	Window      int // of every device, packets
	Shards      int // of every device
	Missteer    int // of 1000 queue pairs, how many have their packets arrive at the port of another shard
	AckEvery    int
	Lag         time.Duration // from a packet or doorbell to the device's next round, at most
	Connections []ConnectionPlan
	Talks       []TalkPlan
	Changes     ChangePlan
	TalkChanges TalkChangePlan

	// Fragile says that connections may run out of retries: the network is that bad, or they have too few.
	Fragile bool
	// FaultsFor is how much of the work is done under faults, in percent.
	FaultsFor int
	// Flush says that queue pairs end in the error state, with receives still posted.
	Flush bool
	// Offend says that connections end with a request that asks for too much.
	Offend bool
	// Death is how much of the work is done, in percent, when an application dies; 0 if none does.
	Death int
	// Madness is the same for an application that goes mad.
	Madness int
	// Crash is how much of the work is done, in percent, when a device crashes and comes back; 0 if none does.
	Crash int
	// Overrun is the chance in 1000 that a completion queue is too small.
	Overrun int
	// Piecemeal says that objects are destroyed one by one instead of with their context.
	Piecemeal bool
}

// NetworkPlan says how bad the network is. Chances are in 1000.
type NetworkPlan struct {
	Loss, Duplicate, Reorder, Corrupt, Rewrite, Congest, Mark int

	Latency time.Duration // of every packet
	Jitter  time.Duration // on top, at most
	Late    time.Duration // of a reordered packet, on top, at most
	Ghost   time.Duration // of a duplicate, on top, at most
	IDKnown bool          // receivers see the IPv4 identification
}

// ConnectionPlan is a pair of queue pairs.
type ConnectionPlan struct {
	Device   [2]int
	Extended bool   // XRC
	Shared   bool   // and another application has the target open
	App      [2]int // which of a device's applications
	MTU      ib.MTU
	Timeout  uint8
	Retries  uint8
	Side     [2]SidePlan
	MaxBytes int // of a message
}

// SidePlan is one end of a connection and what its application does.
type SidePlan struct {
	Cap       ib.QPCap
	SigAll    bool
	StartPSN  ib.PSN // of what this side sends
	Reads     uint8  // READs and atomics that this side has outstanding
	RNRTimer  uint8
	RNRRetry  uint8
	Eager     int           // requests posted at once, at most
	Think     time.Duration // between such bursts, at most
	Tardy     int           // chance that a receive is posted late
	Tardiness time.Duration // and how late, at most
	Spare     int           // receives that nobody asks for
	Windows   int           // of memory
	Script    []request
}

// NewPlan makes the plan of a seed.
func NewPlan(seed uint64) *Plan {
	d := newDice(seed, streamPlan)
	p := &Plan{
		Seed:      seed,
		Devices:   oneOf(d, 1, 2, 2, 2, 2, 2, 3, 3, 4, d.between(4, 8)),
		IPv6:      d.chance(250),
		Window:    oneOf(d, 1, 2, 4, 8, 32, 128),
		AckEvery:  oneOf(d, 1, 2, 4, 16, 64),
		Lag:       d.upTo(5 * time.Microsecond),
		Fragile:   d.chance(150),
		FaultsFor: d.between(50, 100),
		Flush:     d.chance(500),
		Offend:    d.chance(300),
		Piecemeal: d.chance(500),
	}
	if d.chance(200) {
		p.Death = d.between(1, 90)
	}
	if d.chance(100) {
		p.Madness = d.between(1, 90)
	}
	if d.chance(100) {
		p.Crash = d.between(1, 90)
	}
	if d.chance(80) {
		p.Overrun, p.Offend, p.Devices = oneOf(d, 300, 1000), false, min(p.Devices, 2)
	}
	p.Offend = p.Offend && !p.Fragile // what runs out of retries cannot be refused
	p.Network = newNetworkPlan(d, p.Fragile)
	p.Runs = newDice(seed, streamRuns).chance(500)
	if !p.clean() {
		p.Faults = newFaultPlan(d, p.Fragile)
		if d.chance(250) {
			p.Attack = d.between(1, 400)
		}
	}
	if d := newDice(seed, streamShards); d.chance(300) {
		p.Shards, p.Missteer = oneOf(d, 2, 2, 2, 3, 4), oneOf(d, 0, 200, 1000)
		if p.Attack > 0 {
			p.Missteer = 0 // what is forged must be the first thing that its victim hears
		}
	}
	n := max(1, p.Devices-1) + oneOf(d, 0, 1, 2, 3, d.between(0, 3), d.between(0, 3), d.between(4, 12))
	if p.Overrun > 0 {
		n += 6 // it takes many requests to overrun a queue
	}
	for pairs := make([]int, p.Devices); n > 0; n-- {
		// A chain holds the devices together; the rest is as it comes, and sometimes a device talks to itself.
		a, b := len(p.Connections), len(p.Connections)+1
		if b >= p.Devices {
			a = d.below(p.Devices)
			b = a
			if p.Devices > 1 && !d.chance(50) {
				b = (a + d.between(1, p.Devices-1)) % p.Devices
			}
		}
		if pairs[a] > maxPairs-2 || pairs[b] > maxPairs-2 {
			continue
		}
		pairs[a]++
		pairs[b]++
		p.Connections = append(p.Connections, newConnectionPlan(d, p, a, b))
	}
	p.extend()
	p.Talks = newTalkPlans(p)
	p.Changes = newChangePlan(p)
	p.TalkChanges = newTalkChangePlan(p)
	return p
}

// maxPairs is the most queue pairs of a device.
const maxPairs = 16

func newNetworkPlan(d *dice, fragile bool) NetworkPlan {
	n := NetworkPlan{
		Latency: time.Microsecond + d.upTo(oneOf(d, 2*time.Microsecond, 50*time.Microsecond)),
		Jitter:  d.upTo(oneOf(d, 0, time.Microsecond, 20*time.Microsecond)),
		IDKnown: d.chance(500),
		Mark:    oneOf(d, 0, 100),
	}
	n.Late = d.upTo(4 * n.Latency)
	n.Ghost = d.upTo(oneOf(d, 2*n.Latency, time.Millisecond))
	if !fragile && d.chance(100) {
		n.Jitter, n.Late, n.Congest = 0, 0, oneOf(d, 0, 30) // nothing goes wrong: see clean.go
		return n
	}
	// Some seeds have one fault, so that each is seen alone, some have all, and a few none.
	some := func(most int) int {
		if d.chance(500) {
			return 0
		}
		return d.between(1, most)
	}
	n.Loss, n.Duplicate, n.Reorder, n.Corrupt, n.Congest = some(30), some(100), some(100), some(20), some(30)
	if d.chance(200) {
		n.Rewrite = d.between(1, 20)
	}
	if fragile {
		n.Loss = d.between(0, 300)
	}
	return n
}

// roundTrip is the longest time from a packet to its answer, on a good day.
func (p *Plan) roundTrip() time.Duration {
	n := &p.Network
	t := n.Latency + n.Jitter + n.Late + p.Lag + 10*time.Microsecond
	if n.Congest > 0 {
		t += 200 * time.Microsecond // a port that was congested is tried again after 100 us
	}
	return 2 * t
}

// paced is how long a packet may take from a peer who keeps to the least rate of congestion control.
const paced = 4 * time.Millisecond

func newConnectionPlan(d *dice, p *Plan, a, b int) ConnectionPlan {
	c := ConnectionPlan{
		Device:  [2]int{a, b},
		App:     [2]int{d.below(2), d.below(2)},
		MTU:     oneOf(d, ib.MTU256, ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096),
		Retries: 7,
	}
	wait := time.Duration(oneOf(d, 1, 1, 2, 4)) * p.roundTrip()
	if !p.Fragile {
		wait = max(wait, p.Faults.patience())
		if p.Network.Mark > 0 {
			wait = max(wait, paced)
		}
	}
	if p.Overrun > 0 {
		c.App = [2]int{}
	}
	if p.Fragile {
		c.Retries = uint8(d.below(8))
		wait = d.upTo(2 * wait)
	}
	for c.Timeout = 1; ib.AckTimeout(c.Timeout) < wait; c.Timeout++ {
	}
	c.MaxBytes = oneOf(d, 1, 2, 4, 8)*c.MTU.Bytes() + d.below(64)
	for i := range c.Side {
		c.Side[i] = newSidePlan(d, p, &c)
	}
	// Each receives what the other sends: receives are as long as the messages they are for.
	for i := range c.Side {
		c.Side[i].Script = newScript(d, &c.Side[i], &c, p.Overrun > 0)
	}
	return c
}

func newSidePlan(d *dice, p *Plan, c *ConnectionPlan) SidePlan {
	depth := func() uint32 {
		n := oneOf(d, 1, 2, 4, 8, 16)
		if p.Overrun > 0 {
			n = 32
		}
		for n > 1 && n*c.MaxBytes > 96<<10 {
			n /= 2
		}
		return uint32(n)
	}
	s := SidePlan{
		Cap: ib.QPCap{
			MaxSendWR: depth(), MaxRecvWR: depth(),
			MaxSendSGE: uint32(oneOf(d, 1, 2, 4, 8, 32)), MaxRecvSGE: uint32(oneOf(d, 1, 2, 4, 8, 32)),
			MaxInlineData: uint32(oneOf(d, 0, 16, 64, 256)),
		},
		SigAll:   d.chance(250) || p.Overrun > 0,
		StartPSN: ib.NewPSN(d.r.Uint32()),
		Reads:    uint8(oneOf(d, 1, 2, 4, 8)),
		RNRTimer: uint8(d.between(1, 10)),
		RNRRetry: 7,
		Eager:    oneOf(d, 1, 4, 16),
		Think:    d.upTo(oneOf(d, 5*time.Microsecond, 100*time.Microsecond)),
		Spare:    d.below(4),
		Windows:  oneOf(d, 0, 0, 1, 3),
	}
	if d.chance(500) {
		s.StartPSN = ib.PSN(0).Sub(uint32(d.between(0, 40)))
	}
	if d.chance(400) {
		s.Tardy, s.Tardiness = d.between(1, 1000), d.upTo(500*time.Microsecond)
	}
	if p.Fragile && d.chance(300) {
		s.RNRRetry = uint8(d.below(7))
	}
	return s
}

// bound is the virtual time within which everything has to end once the faults have stopped.
func (p *Plan) bound() time.Duration {
	t := time.Second
	for i := range p.Connections {
		c := &p.Connections[i]
		for j := range c.Side {
			// A request may be held up by a loss, by a receiver that was not ready, and by its application.
			s := &c.Side[j]
			each := 2*ib.AckTimeout(c.Timeout) + 2*p.roundTrip() + ib.RNRTimer(c.Side[1-j].RNRTimer) + s.Think + c.Side[1-j].Tardiness
			t += time.Duration(len(s.Script)+1) * each
		}
		if p.Crash > 0 {
			t += p.silence(c)
		}
	}
	return t
}

// String describes the plan in a few lines.
func (p *Plan) String() string {
	var b strings.Builder
	n := &p.Network
	fmt.Fprintf(&b, "seed %d: %d devices of %d shards, missteered %d in 1000, window %d, ack every %d, lag %v, IPv6 %v, fragile %v, faults for %d %%, flush %v, offend %v, death at %d %%, madness at %d %%, crash at %d %%, queues too small %d in 1000, piecemeal %v, %d forged packets\n",
		p.Seed, p.Devices, max(p.Shards, 1), p.Missteer, p.Window, p.AckEvery, p.Lag, p.IPv6, p.Fragile, p.FaultsFor, p.Flush, p.Offend, p.Death, p.Madness, p.Crash, p.Overrun, p.Piecemeal, p.Attack)
	fmt.Fprintf(&b, "network, in 1000: loss %d, duplicate %d, reorder %d, corrupt %d, rewrite %d, congest %d, mark %d; latency %v + %v, late %v, ghost %v, id known %v\n",
		n.Loss, n.Duplicate, n.Reorder, n.Corrupt, n.Rewrite, n.Congest, n.Mark, n.Latency, n.Jitter, n.Late, n.Ghost, n.IDKnown)
	if f := &p.Faults; !f.none() {
		fmt.Fprintf(&b, "faults: %d partitions to %v, one way %d in 1000; %d pauses to %v; %d spells of refused frames; %d port failures; memory vanishes %d times\n",
			f.Partitions, f.Cut, f.OneWay, f.Pauses, f.Still, f.Refusals, f.Failures, f.Vanishings)
	}
	if c := &p.Changes; *c != (ChangePlan{}) {
		fmt.Fprintf(&b, "changes: %d queue pairs drained, %d completion queues resized, %d regions registered anew, %d queue pairs reset\n",
			c.Drains, c.Resizes, c.Moves, c.Rebirths)
	}
	if c := &p.TalkChanges; *c != (TalkChangePlan{}) {
		fmt.Fprintf(&b, "changes of talks: %d queue pairs drained, %d reset\n", c.Drains, c.Rebirths)
	}
	for i := range p.Connections {
		c := &p.Connections[i]
		fmt.Fprintf(&b, "connection %d: XRC %v, shared %v, device %d and %d, mtu %v, timeout %d (%v), retries %d, messages to %d bytes\n",
			i, c.Extended, c.Shared, c.Device[0], c.Device[1], c.MTU, c.Timeout, ib.AckTimeout(c.Timeout), c.Retries, c.MaxBytes)
		for j := range c.Side {
			s := &c.Side[j]
			fmt.Fprintf(&b, "  %s: %d requests from psn %v, %+v, sig all %v, reads %d, rnr timer %d retry %d, eager %d, think %v, tardy %d to %v, spare %d, windows %d\n",
				endpointName(i, j), len(s.Script), s.StartPSN, s.Cap, s.SigAll, s.Reads, s.RNRTimer, s.RNRRetry, s.Eager, s.Think, s.Tardy, s.Tardiness, s.Spare, s.Windows)
		}
	}
	for i := range p.Talks {
		p.Talks[i].describe(&b, len(p.Connections)+i)
	}
	return b.String()
}

// endpointName names an end of a connection in logs: "2b" is the second end of connection 2.
func endpointName(connection, side int) string {
	return fmt.Sprintf("%d%c", connection, 'a'+side)
}
