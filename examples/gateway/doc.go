// Gateway is a storage gateway in small, and answers a question by experiment: how deep must a completion queue be that
// many connections share?
//
//	go run ./examples/gateway -clients 100 -sq 64 -rq 64 -cq 12800
//
// Each client has a reliable connection. It sends a request for a block; the gateway writes the block into the client's
// memory (RDMA WRITE) and sends a status (SEND). All connections of the gateway complete into one queue, which one
// consumer polls. In the middle of a peak that consumer pauses, as a process does that is swapped out, collects garbage
// or waits for a lock, while everything around it goes on:
//
//   - client.go: what a client does
//   - gateway.go: the gateway's three parts, the consumer, the disks and the queue pairs
//   - story.go: who does what when; nothing in it depends on time
//   - ledger.go: what became of every wr_id
//   - report.go: what is told at the end
//
// It runs by itself: both sides are devices of this process. With verbs.Open in place of embedded devices it is the same
// program.
package main
