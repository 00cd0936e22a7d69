package main

// Bugs of the half that executes the peer's requests and answers them.
var responderMutants = []mutant{
	{
		name: "any PSN is accepted",
		edits: []edit{{
			"transport/rc/judge.go",
			`		return verdict{action: gap}
`,
			`		r.epsn = p.PSN()
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "PSNs are compared as numbers, not around 2^24",
		edits: []edit{{
			"transport/rc/judge.go",
			`switch d := p.PSN().Diff(r.epsn); {`,
			`switch d := int(p.PSN()) - int(r.epsn); {`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a duplicate SEND is delivered",
		edits: []edit{{
			"transport/rc/judge.go",
			`		return verdict{action: repeat}
`,
			`		if !p.Opcode.IsSend() {
			return verdict{action: repeat}
		}
		r.epsn = r.epsn.Sub(1)
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a duplicate request is not acknowledged",
		edits: []edit{{
			"transport/rc/replay.go",
			`			r.answers.acknowledge(r.epsn.Sub(1), r.msn)
`,
			``,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a duplicate atomic is executed again",
		edits: []edit{{
			"transport/rc/replay.go",
			`	case op.IsAtomic():
`,
			`	case op.IsAtomic():
		if op == wire.RCFetchAdd && r.checkKey(p) == proceed {
			_, _ = r.mem.Mem.Atomic(r.mem.Off, 1, wire.FindAtomicETH(p.Header).SwapAdd(), 0)
		}
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a duplicate atomic is answered with what memory holds now",
		edits: []edit{{
			"transport/rc/replay.go",
			`	r.answers.insert(answer{kind: replying,`,
			`	if r.checkKey(p) == proceed {
		r.resources.ring[slot].original, _ = r.mem.Mem.Atomic(r.mem.Off, 1, 0, 0)
	}
	r.answers.insert(answer{kind: replying,`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a duplicate READ reads outside its original",
		edits: []edit{{
			"transport/rc/replay.go",
			`return key == x.key && va >= x.va && n <= x.size && va-x.va <= x.size-n`,
			`return key == x.key`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "its attacker knows no R_Key, and no honest peer asks for that",
	},
	{
		name: "a duplicate READ begins anywhere within its original",
		edits: []edit{{
			"transport/rc/replay.go",
			`	if h.VA()-x.va != uint64(distance(x.first, first))*uint64(r.e.mtu) {`,
			`	if h.VA() < x.va {`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "its attacker knows no R_Key, and no honest peer asks for that",
	},
	{
		name: "RNR NAK moves the expected PSN on",
		edits: []edit{{
			"transport/rc/responder.go",
			`		r.nak = refusal{syndrome: wire.RNRNak(r.e.attr.MinRNRTimer), psn: r.epsn, msn: r.msn, pending: true}
`,
			`		r.nak = refusal{syndrome: wire.RNRNak(r.e.attr.MinRNRTimer), psn: r.epsn, msn: r.msn, pending: true}
		r.epsn = r.epsn.Next()
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a NAK for every packet out of sequence",
		edits: []edit{{
			"transport/rc/responder.go",
			`if psn := p.PSN(); !r.latched {`,
			`if psn := p.PSN(); !r.nak.pending {`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "the requester repairs one hole once, however often it is told",
	},
	{
		name: "the MSN counts packets",
		edits: []edit{{
			"transport/rc/execute.go",
			`	if op.Ends() {
		r.msn =`,
			`	{
		r.msn =`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "this requester has no use for the MSN; others do",
	},
	{
		name: "opcodes may follow each other as they like",
		edits: []edit{{
			"transport/rc/judge.go",
			`	follows := op.IsMiddle() || op.IsLast()
`,
			`	follows := op.IsMiddle() || op.IsLast()
	if follows || !follows {
		return proceed
	}
`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "an honest requester keeps the order, and its attacker's PSNs seldom fit",
	},
	{
		name: "qp_access_flags are ignored",
		edits: []edit{{
			"transport/rc/judge.go",
			`if r.e.attr.AccessFlags&need != need {`,
			`if need != need&need {`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "all its queue pairs allow everything; what it refuses is refused by memory",
	},
	{
		name: "max_dest_rd_atomic is not enforced",
		edits: []edit{{
			"transport/rc/judge.go",
			`		if !r.resources.room() {
`,
			`		if r.resources.limit == 0 {
`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "no honest requester asks for more",
	},
	{
		name: "a WRITE longer than its RETH said is taken",
		edits: []edit{{
			"transport/rc/judge.go",
			`if r.cur.size > r.maxMessage() || n > left || op.Ends() != (n == left) {`,
			`if left = n; r.cur.size > r.maxMessage() || left != n {`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "no honest requester sends that",
	},
	{
		name: "the R_Key is not checked on later packets of a WRITE",
		edits: []edit{{
			"transport/rc/judge.go",
			`		va, n = m.va+m.done, uint64(p.Len)
`,
			`		r.mem.Off, r.mem.Len = r.mem.Off+uint64(r.e.mtu), r.mem.Len-uint64(r.e.mtu)
		return proceed
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a receive completes before the last of its data is there",
		edits: []edit{
			{
				"transport/rc/execute.go",
				`		if v := r.scatter(p); v != proceed {
			return v
		}
`,
				`		late := op.Ends()
		for _, e := range r.recv.SGE {
			_, v := r.e.cfg.Table.Local(r.e.cfg.RecvDomain, e, ib.AccessLocalWrite)
			late = late && v == dma.OK
		}
		if late {
			return r.invalidate(p)
		}
		if v := r.scatter(p); v != proceed {
			return v
		}
`,
			},
			{
				"transport/rc/execute.go",
				`		r.deliver(now, p)
	}
`,
				`		r.deliver(now, p)
		if op.IsSend() {
			r.cur.done -= uint64(p.Len)
			r.scatter(p)
		}
	}
`,
			},
		},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "its applications look between rounds of a device, not within one",
	},
	{
		name: "a solicited event is lost",
		edits: []edit{{
			"transport/rc/execute.go",
			`Solicited: p.BTH().Solicited(),`,
			`Solicited: false,`,
		}},
		tests: []string{"test/scripts", "transport/rc", "nic TestCompletionEvents"},
	},
	{
		name: "an ACK overtakes the responses of a READ",
		edits: []edit{{
			"transport/rc/ack.go",
			`		q.insertAt(len(q.queue), answer{kind: acknowledging,`,
			`		q.insertAt(q.first, answer{kind: acknowledging,`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "an ACK for a packet that did not fit the completion queue",
		edits: []edit{{
			"nic/queuepair.go",
			`			q.doomed = true
		}
	}
	if to.queue.Deadline()`,
			`		}
	}
	if to.queue.Deadline()`,
		}},
		tests: []string{"nic TestOverrun", "test/scripts"},
	},
}
