package verbs

// Lie says that more is posted than the queue holds, as a broken program does.
func (q *SRQ) Lie() { q.block.PublishRecv(q.posted + 1<<20) }
