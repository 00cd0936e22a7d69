package nic

// eager is what a shard has learned about the application that is told of a queue pair's messages: whether it has another
// processor, so that answers come while the shard looks, or waits for that of the shard, which has to be yielded first. To yield in
// vain costs two changes of the process, to look in vain the whole time of looking. The two ends of a connection inside the device
// may differ in that.
type eager struct {
	misses uint8 // in a row
	rest   uint8 // how many messages more it is not tried for
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
	if e.misses = min(e.misses+1, eagerMisses); e.misses == eagerMisses {
		e.rest = eagerRest // and one more miss is enough for another rest
	}
}
