package control

import "time"

// Quota bounds what one session of a foreign user (any but the daemon's own) may make the daemon do. Objects and memory
// are counted by the device, for each user and each context.
type Quota struct {
	Descriptors  int // descriptors that one context makes the daemon hold
	RequestRate  int // requests of one session in a second
	RequestBurst int // requests of one session at once
}

// DefaultQuota is what a foreign user gets where nothing else is configured.
func DefaultQuota() Quota { return Quota{Descriptors: 64, RequestRate: 2000, RequestBurst: 200} }

// bucket slows a session that asks too often: it waits for its turn, and nobody else does.
type bucket struct {
	rate, burst float64
	tokens      float64
	last        time.Time
}

func newBucket(rate, burst int) *bucket {
	return &bucket{rate: float64(max(rate, 1)), burst: float64(burst), tokens: float64(burst)}
}

// take returns how long the request that arrives at now has to wait.
func (b *bucket) take(now time.Time) time.Duration {
	if !b.last.IsZero() {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}
