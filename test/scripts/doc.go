// Package scripts holds the transport services to their specification, one event at a time. Each script is a conversation
// with a real engine (transport/rc if it chooses no other) in virtual time, from outside: requests are posted and packets delivered, and what the
// engine sends, completes and reports is compared, all of it and in order.
//
//	{"sequence NAK", "IBA 9.7.5.1.1", "the requester goes on at the PSN of the NAK", func(s *script) {
//		s.post(send(3000))
//		s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952)) // psn, bytes
//		s.deliver(at(10*us), nak(101, wire.NakSequence))
//		s.expect(at(10*us), sendMiddle(101, 1024), sendLast(102, 952))
//		s.deliver(at(20*us), ack(102))
//		s.completes(success(1)) // wr_id
//	}},
//
// A script has a name, the clause of the specification that it is about, and the rule in one sentence;
// docs/conformance.md is written from these three. One runs with
//
//	go test ./test/scripts -run 'TestScripts/retry/sequence_NAK'
//
// The harness is in script_test.go, its packets in packets_test.go, its queue pair in queuepair_test.go; the scripts
// themselves are in files named after their chapters.
package scripts

//go:generate go test . -run TestConformance -update
