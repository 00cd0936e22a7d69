// Package cq is completion queues: the ring of entries that the device fills and the application empties, and the one
// event that the application asked to be woken by.
//
// The two halves meet only in the queue's block, shared memory laid out by package abi. [Queue] is the device's half: it
// posts entries, notices a queue that is full, and decides when an event is due. [Reader] is the application's half: it
// takes entries and arms. Neither makes a system call; how an event travels is the [Notifier]'s business.
//
//	q, err := cq.New(cq.Config{Block: memory, Capacity: 1024, Notifier: channel})  // device
//	q.Post(now, &entry, solicited)
//
//	r, err := cq.NewReader(memory, 1024)                                           // application
//	for {
//		n, err := r.Poll(entries)
//		...
//		if n == 0 && !r.ReqNotify(abi.ArmNext) {
//			// Nothing was there after arming: the next entry makes an event, so it is safe to sleep.
//		}
//	}
//
// No wake-up is lost because each side publishes before it looks: the device writes an entry and then reads the arm word,
// the application writes the arm word and then looks for an entry. In every order of these four one of them sees the
// other (explore_test.go goes through all of them).
//
// An overrun is never a silent loss: what fits stays readable, the queue's state says that it is dead, nothing is posted
// to it again, and the device tells the owners of its queue pairs.
package cq
