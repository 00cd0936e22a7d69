// Package fault makes a network bad on purpose. A [Port] wraps any port and does to its packets what a [Plan] says: drop,
// duplicate, delay, reorder, corrupt, truncate. A plan with a seed does the same every time to the same packets.
//
//	port, err := fault.Wrap(port, fault.Plan{Seed: 1, Rules: []fault.Rule{
//		{Action: fault.Drop, Direction: fault.Send, Opcode: "RC_RDMA_WRITE_*", Nth: 3},
//		{Action: fault.Delay, Delay: fault.Duration(5 * time.Millisecond), Probability: 0.01},
//	}})
//
// A plan is also what a file or a command says, in JSON or YAML:
//
//	seed: 1
//	rules:
//	- {action: drop, direction: send, opcode: RC_RDMA_WRITE_*, nth: 3}
//	- {action: delay, delay: 5ms, probability: 0.01}
//
// What no rule concerns passes as it is, without a copy. What is held back or spoilt is copied first.
package fault
