package main

// Bugs of the other services: unreliable connections, datagrams, multicast, extended connections.
var serviceMutants = []mutant{
	{
		name: "UC: a hole in the middle of a message is not seen",
		edits: []edit{{
			"transport/uc/receive.go",
			`if !next || e.msg.kind != kindOf(op) {`,
			`if e.msg.kind != kindOf(op) {`,
		}},
		tests: []string{"transport/internal/unreliable"},
	},
	{
		name: "UC: a message whose end was lost uses up its receive",
		edits: []edit{{
			"transport/uc/receive.go",
			`	if taken && e.cfg.SharedRecv && e.Held() {`,
			`	if taken && e.Held() {`,
		}},
		tests: []string{"transport/internal/unreliable"},
	},
	{
		name: "UC: the next message goes on where one without an end stopped",
		edits: []edit{{
			"transport/uc/receive.go",
			`e.msg = message{kind: kindOf(op)}`,
			`e.msg = message{kind: kindOf(op), done: e.stale}`,
		}, {
			"transport/uc/receive.go",
			`	taken := e.msg.kind == sending
`,
			`	taken := e.msg.kind == sending
	e.stale = e.msg.done
`,
		}, {
			"transport/uc/receive.go",
			`	established bool // COMM_EST was raised
`,
			`	established bool // COMM_EST was raised
	stale       uint64
`,
		}},
		tests: []string{"transport/internal/unreliable"},
	},
	{
		name: "an unreliable request ends before its last packet has left",
		edits: []edit{{
			"transport/internal/unreliable/sender.go",
			`return !w.framed || out.Taken() >= w.end`,
			`return out.Taken() >= 0*w.end`,
		}},
		tests: []string{"transport/internal/unreliable"},
	},
	{
		name: "UD: the payload begins where the network header should",
		edits: []edit{{
			"transport/ud/receive.go",
			`!e.Scatter(ib.GRHSize, p, p.Payload) {`,
			`!e.Scatter(0, p, p.Payload) {`,
		}},
		tests: []string{"transport/internal/unreliable", "nic TestDatagramsCross"},
	},
	{
		name: "UD: byte_len does not count the network header",
		edits: []edit{{
			"transport/ud/receive.go",
			`ByteLen: ib.GRHSize + uint32(p.Len)`,
			`ByteLen: uint32(p.Len)`,
		}},
		tests: []string{"transport/internal/unreliable", "nic TestDatagramsCross"},
	},
	{
		name: "UD: a datagram that does not fit its receive is cut off",
		edits: []edit{{
			"transport/ud/receive.go",
			`	if r.Length < ib.GRHSize+uint64(p.Len) {
`,
			`	if n := min(uint64(p.Len), r.Length-min(ib.GRHSize, r.Length)); n < uint64(p.Len) {
		p.Payload[0].Len, p.Len = int(n), int(n)
	}
	if r.Length < ib.GRHSize {
`,
		}},
		tests: []string{"transport/internal/unreliable"},
	},
	{
		name: "multicast: who sends to a group hears himself",
		edits: []edit{{
			"nic/mcast.go",
			`if a.qp == from && !a.own || a.qp.dead {`,
			`if a.qp.dead {`,
		}},
		tests: []string{"nic TestMcast"},
	},
	{
		name: "multicast: a device does not leave a group when its last queue pair does",
		edits: []edit{{
			"nic/mcast.go",
			`	if g.count--; g.count == 0 {
`,
			`	if g.count--; false {
`,
		}},
		tests: []string{"nic TestMcast"},
	},
	{
		name: "XRC: a request uses the keys of the first queue that was named",
		edits: []edit{{
			"transport/rc/extended.go",
			`	r.srqn, r.domain, r.recvDomain = n, domain, domain
`,
			`	if r.srqn == 0 {
		r.domain, r.recvDomain = domain, domain
	}
	r.srqn = n
`,
		}},
		tests: []string{"nic TestTarget"},
	},
	{
		name: "XRC: a message may change its shared receive queue on the way",
		edits: []edit{{
			"transport/rc/extended.go",
			`	if (r.held || r.msg.kind != idle) && n != r.srqn {`,
			`	if false {`,
		}},
		tests:  []string{"transport/rc", "nic TestTarget"},
		unseen: "an honest initiator names one queue in all packets of a message",
	},
	{
		name: "XRC: receives complete in the queue of who took the first one",
		edits: []edit{{
			"nic/target.go",
			`q.complete(p.cq, abi.QueueXRCRecv, r.WRID, r.Index, c)`,
			`if q.sendCQ == nil {
		q.sendCQ = p.cq
	}
	q.complete(q.sendCQ, abi.QueueXRCRecv, r.WRID, r.Index, c)`,
		}},
		tests: []string{"nic TestTarget"},
	},
}
