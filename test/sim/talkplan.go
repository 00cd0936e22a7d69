package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/softnic/softnicd/ib"
)

// TalkPlan is a pair of queue pairs of an unreliable service, next to the connections.
type TalkPlan struct {
	Service  ib.QPType // UC or UD
	Device   [2]int
	Group    bool   // to a multicast group
	MTU      ib.MTU // UC
	MaxBytes int    // of a message
	Side     [2]TalkerPlan
}

// TalkerPlan is one end of a talk and what its application does.
type TalkerPlan struct {
	Depth     int // requests outstanding, at most
	SGEs      int
	Eager     int           // requests posted at once, at most
	Think     time.Duration // between such bursts, at most
	Tardiness time.Duration // of a receive; 0: all are there from the start
	Receives  []int         // their lengths
	Script    []request
}

// services are what a talk can be over, and what it can say.
var services = []struct {
	service ib.QPType
	ops     []ib.WROpcode
}{
	{ib.QPTypeUC, []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm}},
	{ib.QPTypeUD, []ib.WROpcode{ib.WRSend, ib.WRSendWithImm}},
}

// newTalkPlans plans a talk over each unreliable service, sometimes. The dice are its own: connections are as they were.
func newTalkPlans(p *Plan) (plans []TalkPlan) {
	d := newDice(p.Seed, streamTalk)
	for _, s := range services {
		if !d.chance(400) {
			continue
		}
		t := TalkPlan{
			Service: s.service, Device: [2]int{d.below(p.Devices), d.below(p.Devices)},
			MTU: oneOf(d, ib.MTU256, ib.MTU512, ib.MTU1024),
		}
		most := 4
		if s.service == ib.QPTypeUD {
			t.MTU, most = ib.MTU4096, 1
		}
		t.MaxBytes = most * t.MTU.Bytes()
		for i := range t.Side {
			t.Side[i] = newTalkerPlan(d, &t, s.ops)
		}
		for i := range t.Side {
			t.planReceives(d, &t.Side[i], &t.Side[1-i], p.clean())
		}
		t.Group = s.service == ib.QPTypeUD && t.Device[0] != t.Device[1] && d.chance(400)
		plans = append(plans, t)
	}
	return plans
}

func newTalkerPlan(d *dice, t *TalkPlan, ops []ib.WROpcode) TalkerPlan {
	s := TalkerPlan{
		Depth: oneOf(d, 1, 4, 16), SGEs: oneOf(d, 1, 2, 4), Eager: oneOf(d, 1, 4, 16),
		Think: d.upTo(oneOf(d, 5*time.Microsecond, 100*time.Microsecond)), Script: make([]request, d.between(1, 24)),
	}
	for i := range s.Script {
		r := request{
			operation: operationOf(oneOf(d, ops...)), index: uint32(i), length: d.below(t.MaxBytes + 1),
			signaled: d.chance(500) || i == len(s.Script)-1, solicited: d.chance(200),
		}
		switch d.below(4) {
		case 0:
			r.length = d.below(6)
		case 1:
			r.length = min(d.between(1, 4)*t.MTU.Bytes(), t.MaxBytes)
		}
		r.inline = r.length <= inlineBytes && d.chance(500)
		if r.hasImm() {
			r.imm = d.r.Uint32()
		}
		s.Script[i] = r
	}
	return s
}

// inlineBytes is the inline data that talkers ask for.
const inlineBytes = 64

// planReceives gives an end a receive for each message, and some to spare for those that come twice. Unless the network is
// clean there may be none when one is needed, and now and then one is too short.
func (t *TalkPlan) planReceives(d *dice, s, peer *TalkerPlan, clean bool) {
	if !clean && d.chance(300) {
		s.Tardiness = time.Microsecond + d.upTo(100*time.Microsecond)
	}
	for range len(peer.Script) + d.below(4) {
		n := t.MaxBytes
		if !clean && d.chance(20) {
			n = d.below(t.MaxBytes)
		}
		if t.Service == ib.QPTypeUD {
			n += ib.GRHSize
		}
		s.Receives = append(s.Receives, n)
	}
}

func (t *TalkPlan) describe(b *strings.Builder, index int) {
	fmt.Fprintf(b, "talk %d: %v, group %v, device %d and %d, mtu %v, messages to %d bytes\n", index, t.Service, t.Group, t.Device[0], t.Device[1], t.MTU, t.MaxBytes)
	for i := range t.Side {
		s := &t.Side[i]
		fmt.Fprintf(b, "  %s: %d requests, %d outstanding, %d entries, eager %d, think %v, %d receives, late by %v\n",
			endpointName(index, i), len(s.Script), s.Depth, s.SGEs, s.Eager, s.Think, len(s.Receives), s.Tardiness)
	}
}
