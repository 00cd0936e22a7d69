package verbs

// Arenas returns how many memories the context's rings and buffers are carved from.
func (c *Context) Arenas() int { return c.arenas.Len() }

// Count makes as if n more entries had been taken from the queue.
func (q *CQ) Count(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken += n
}
