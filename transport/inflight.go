package transport

// InFlight is what the engines of one shard share: a bound on the bytes that they have outstanding together, which is to stay
// below the receive buffers of the peers. A hundred queue pairs, each within its window, overrun the buffer of one peer
// otherwise, and go-back-N multiplies the loss.
//
// Only requesters ask: they count what they sent, and what they asked for by READs. Responses never wait for the bound, or
// two devices could wait for each other; and who has nothing outstanding may always send a packet, so that peers that are
// gone cannot starve others.
//
// Unreliable services are not under it: nothing ever tells them that a packet has arrived, so that a count of what is
// outstanding could only be a guess about time, which is a rate. They keep to rates where those are known: static rates of
// address vectors and handles, and what CNPs leave of the line's. What they lose beyond that nobody sends again, so there is
// no collapse to be prevented.
type InFlight struct {
	Limit int // bytes; 0 for none
	used  int
	// Refused is set when an engine was kept from sending. Who looks at it clears it.
	Refused bool
}

// Room returns how many bytes are free, less than 0 if there are none.
func (s *InFlight) Room() int { return s.Limit - s.used }

// Used returns the bytes that are outstanding.
func (s *InFlight) Used() int { return s.used }

// Outstanding is what one engine has outstanding under the bound. The zero value is not bounded.
type Outstanding struct {
	shared *InFlight
	bytes  int
}

// Enter puts the engine under a bound.
func (o *Outstanding) Enter(s *InFlight) { o.shared = s }

// Allows reports whether another packet may go, and otherwise leaves word that one would.
func (o *Outstanding) Allows() bool {
	s := o.shared
	if s == nil || s.Limit == 0 || o.bytes == 0 || s.used < s.Limit {
		return true
	}
	s.Refused = true
	return false
}

// Fits returns how many of n packets of so many bytes may go one after another, if the first may.
func (o *Outstanding) Fits(n, bytes int) int {
	s := o.shared
	if s == nil || s.Limit == 0 {
		return n
	}
	return max(min(n, (s.Room()+bytes-1)/bytes), 1)
}

// Add counts n bytes that were sent.
func (o *Outstanding) Add(n int) {
	if o.shared != nil {
		o.bytes += n
		o.shared.used += n
	}
}

// Sub counts n bytes that have arrived. What was given up for lost before is not counted twice.
func (o *Outstanding) Sub(n int) {
	// An engine that has nothing outstanding leaves the bound alone: it may be in the making, on another goroutine than
	// the shard's.
	if n = min(n, o.bytes); n > 0 {
		o.bytes -= n
		o.shared.used -= n
	}
}

// Clear forgets everything: it was lost, or nobody waits for it any more.
func (o *Outstanding) Clear() { o.Sub(o.bytes) }
