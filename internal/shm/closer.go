package shm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Closer closes descriptors that a peer chose, in a goroutine of its own: close may block for as long as the peer likes,
// three seconds for a TCP socket with SO_LINGER. There is one for each peer, and when too many wait, the peer's own
// session waits with them. The nil Closer closes at once.
type Closer struct {
	limit   int
	mu      sync.Mutex
	changed sync.Cond
	waiting []int
	busy    int // descriptors waiting or in close
	running bool
}

// NewCloser makes a Closer that holds at most limit descriptors.
func NewCloser(limit int) *Closer {
	c := &Closer{limit: max(limit, 1)}
	c.changed.L = &c.mu
	return c
}

// Close has the descriptors closed, soon. It waits while there are as many as the limit already.
func (c *Closer) Close(fds ...int) {
	if c == nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fd := range fds {
		for c.busy >= c.limit {
			c.changed.Wait()
		}
		c.busy++
		c.waiting = append(c.waiting, fd)
		if !c.running {
			c.running = true
			go c.run()
		}
	}
}

// Wait returns when all are closed.
func (c *Closer) Wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.busy > 0 || c.running {
		c.changed.Wait()
	}
}

// run closes what waits and ends with it, so that an idle Closer costs no goroutine.
func (c *Closer) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		fd := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.mu.Unlock()
		unix.Close(fd)
		c.mu.Lock()
		c.busy--
		c.changed.Broadcast()
	}
	c.waiting = nil
	c.running = false
	c.changed.Broadcast()
}
