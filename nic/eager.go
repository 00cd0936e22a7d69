package nic

// eager is what a shard has learned about the applications that answer messages: whether they have other processors, so that
// answers come while the shard looks, or wait for that of the shard, so that it has to be yielded first. To yield in vain costs
// two changes of the process, to look in vain the whole time of looking.
type eager struct {
	misses int // in a row
	rest   int // how many messages more it is not tried for
}

const (
	// eagerMisses in a row are enough to rest.
	eagerMisses = 3
	eagerRest   = 64
)

// tries reports whether looking is worth it.
func (e *eager) tries() bool {
	if e.rest > 0 {
		e.rest--
		return false
	}
	return true
}

// learn is told whether an answer came.
func (e *eager) learn(came bool) {
	if came {
		e.misses = 0
		return
	}
	if e.misses++; e.misses >= eagerMisses {
		e.rest = eagerRest // and one more miss is enough for another rest
	}
}
