package nic

import (
	"time"

	"github.com/softnic/softnicd/clock"
)

// dcqcn is the reaction point of DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015): the
// rate of one queue pair, which every CNP cuts and time and bytes raise again. It is told the time and has no timer: the
// rate matters only when something is sent, and what time has done to it until then is worked out at that moment.
//
// A cut takes alpha/2 of the rate, and alpha says how congested the way was lately: each CNP raises it towards 1, each 55 us
// without one lower it. What comes back comes in three stages: half the way to the rate before the cut with each step
// (fast recovery), then with that target raised by a little (additive increase) or by much (hyper increase).
//
// The zero value has never heard a CNP and has no rate.
type dcqcn struct {
	limited bool   // there is a rate
	heard   bool   // a CNP, ever: alpha means something
	line    uint64 // bytes a second that the port is taken to carry
	current uint64 // the rate, bytes a second
	target  uint64 // where recovery is heading
	alpha   uint32 // in parts of alphaOne
	decays  clock.Time
	rises   clock.Time
	sent    uint64 // bytes since the last byte step
	timers  int    // steps since the last cut, by time
	bytes   int    // and by bytes
}

// The published constants.
const (
	alphaOne       = 1 << 16
	alphaGain      = 256                   // 1/g
	alphaTimer     = 55 * time.Microsecond // K: alpha decays
	rateTimer      = 55 * time.Microsecond // T: a step by time
	rateBytes      = 10 << 20              // B: a step by bytes
	fastSteps      = 5                     // F
	additiveRaise  = 40e6 / 8              // R_AI, bytes a second
	hyperRaise     = 400e6 / 8             // R_HAI, ten times as much
	leastRate      = 10e6 / 8              // below it a packet would take longer than peers wait for it
	alphaForgotten = 4096                  // decays after which nothing of alpha is left
)

// notify is a CNP.
func (d *dcqcn) notify(now clock.Time, line uint64) {
	d.advance(now)
	d.line = line
	if !d.limited {
		d.limited, d.current = true, line
	}
	if !d.heard {
		d.heard, d.alpha = true, alphaOne
	}
	d.target = d.current
	d.current = max(d.current-d.current*uint64(d.alpha)/(2*alphaOne), leastRate)
	d.alpha = d.alpha - d.alpha/alphaGain + alphaOne/alphaGain
	d.decays, d.rises = now.Add(alphaTimer), now.Add(rateTimer)
	d.timers, d.bytes, d.sent = 0, 0, 0
}

// rate returns the rate at now, in bytes a second; 0 for none.
func (d *dcqcn) rate(now clock.Time) uint64 {
	if !d.limited {
		return 0
	}
	d.advance(now)
	if !d.limited {
		return 0
	}
	return d.current
}

// count counts bytes that were sent.
func (d *dcqcn) count(n int) {
	if !d.limited {
		return
	}
	d.sent += uint64(n)
	for d.sent >= rateBytes && d.limited {
		d.sent -= rateBytes
		d.bytes++
		d.raise()
	}
}

// advance works out what the time until now has done. It takes a bounded number of steps: a rate is back at the line's
// before that.
func (d *dcqcn) advance(now clock.Time) {
	if !d.heard {
		return
	}
	for n := 0; !d.decays.After(now); n++ {
		d.decays = d.decays.Add(alphaTimer)
		d.alpha -= d.alpha / alphaGain
		if n == alphaForgotten {
			d.alpha, d.decays = 0, now.Add(alphaTimer)
		}
	}
	for d.limited && !d.rises.After(now) {
		d.rises = d.rises.Add(rateTimer)
		d.timers++
		d.raise()
	}
}

// raise is a step of recovery.
func (d *dcqcn) raise() {
	switch least := min(d.timers, d.bytes); {
	case max(d.timers, d.bytes) <= fastSteps:
	case least > fastSteps:
		d.target += uint64(least-fastSteps) * hyperRaise
	default:
		d.target += additiveRaise
	}
	d.target = min(d.target, d.line)
	d.current = (d.current + d.target) / 2
	// The last percent would take as long as the rest.
	if d.current >= d.line-d.line/128 {
		d.limited = false
	}
}
