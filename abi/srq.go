package abi

// A shared receive queue's block is a queue pair's without a send ring: posts go to the same words, and its slots are free
// again as soon as the device has taken the receives (rq_taken), since it copies them. Its state word is ib.StateReset
// while the queue works and ib.StateErr from SRQ_ERR on, when posting fails. Several queue pairs take from it: an entry
// names the one that did, and the index in wqe_index is the shared queue's.

// SRQLayout returns the layout of the block of a shared receive queue for real capacities, as RoundSRQ returns them.
func SRQLayout(maxWR, maxSGE uint32) QPLayout { return NewQPLayout(0, maxWR, 0, maxSGE, 0) }

// RoundSRQ returns the real capacity of a shared receive queue for the one asked for: the next power of two.
func RoundSRQ(maxWR uint32) uint32 { return roundDepth(maxWR) }

// MoveRecv puts the receive request of index from another block into this one, whose slots have the same size. It is for
// the application, which resizes a shared receive queue.
func (b *QPBlock) MoveRecv(index uint32, from *QPBlock) bool {
	to, old := b.recv.slot(index), from.recv.slot(index)
	if len(to) == 0 || len(to) != len(old) {
		return false
	}
	for i := range old {
		put(&to[i], old[i])
	}
	return true
}
