package transport

import (
	"time"

	"github.com/softnic/softnicd/clock"
)

// Pacer spaces what a queue pair sends so that it keeps to a rate. It is told the time and holds nothing back itself: who
// sends asks it first. The zero value has no rate.
type Pacer struct {
	rate uint64     // bytes a second; 0 for none
	due  clock.Time // when the rate allows the next packet
}

// paceSlack is how much lateness a pacer makes up for: timers of a host fire late, by tens of microseconds, and the rate is
// to be kept all the same. It is also how long a burst after idleness may last.
const paceSlack = 200 * time.Microsecond

// SetRate sets the rate, in bytes a second; 0 means none. What was sent before counts on.
func (p *Pacer) SetRate(rate uint64) {
	p.rate = rate
	if rate == 0 {
		p.due = 0
	}
}

// Rate returns the rate, in bytes a second; 0 for none.
func (p *Pacer) Rate() uint64 { return p.rate }

// Open reports whether a packet may go at now.
func (p *Pacer) Open(now clock.Time) bool { return p.rate == 0 || !p.due.After(now) }

// Sent counts n bytes that were sent at now.
func (p *Pacer) Sent(now clock.Time, n int) {
	if p.rate != 0 {
		p.due = max(p.due, now.Add(-paceSlack)).Add(time.Duration(uint64(n) * uint64(time.Second) / p.rate))
	}
}

// Due returns when Open will be true.
func (p *Pacer) Due() clock.Time { return p.due }
