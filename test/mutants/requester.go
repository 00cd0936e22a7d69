package main

// Bugs of the half that sends requests and judges what comes back.
var requesterMutants = []mutant{
	{
		name: "no upper bound on the PSN of an ACK",
		edits: []edit{{
			"transport/rc/completer.go",
			`return distance(r.una, psn) < distance(r.una, r.nxt)`,
			`return r.una != r.nxt && distance(r.una, psn) <= maxSpan`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "an ACK of numbers that were acknowledged before counts",
		edits: []edit{{
			"transport/rc/completer.go",
			`return distance(r.una, psn) < distance(r.una, r.nxt)`,
			`return r.una != r.nxt && psn.Before(r.nxt)`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "an ACK behind a READ completes the READ",
		edits: []edit{{
			"transport/rc/completer.go",
			`if !w.started || w.answered() || w.status != ib.WCSuccess {`,
			`if !w.started || w.status != ib.WCSuccess {`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "no rewind on timeout",
		edits: []edit{{
			"transport/rc/retry.go",
			`r.tryAgain(now, transport.VendorTimeout)`,
			`r.restartAckTimer(now)`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a sequence NAK is not heard",
		edits: []edit{{
			"transport/rc/completer.go",
			`r.lost(now, transport.VendorSequence)
	}`,
			`_ = transport.VendorSequence
	}`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "the ACK timer repairs what the NAK would have repaired, later",
	},
	{
		name: "a missing READ response is not asked for until the timer fires",
		edits: []edit{{
			"transport/rc/retry.go",
			`		r.e.cfg.Counters.ImpliedNakSeqErr++
	}
	r.lost(`,
			`		r.e.cfg.Counters.ImpliedNakSeqErr++
	}
	_ = func() { r.lost(now, transport.VendorSequence) }
	return
	r.lost(`,
		}},
		tests:  []string{"test/scripts", "transport/rc"},
		unseen: "the ACK timer repairs it, later",
	},
	{
		name: "retry counters are never reloaded",
		edits: []edit{{
			"transport/rc/completer.go",
			`	r.reloadRetries()
`,
			``,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "the RNR timer is not waited for",
		edits: []edit{{
			"transport/rc/retry.go",
			`r.retry.rnrDeadline = now.Add(ib.RNRTimer(code))`,
			`r.retry.rnrDeadline = now; _ = ib.RNRTimer`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "rnr_retry 7 runs out",
		edits: []edit{{
			"transport/rc/retry.go",
			`if r.retry.rnrLeft != rnrForEver {`,
			`{`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a packet that is sent again has the bytes of the one before it",
		edits: []edit{{
			"transport/rc/segment.go",
			`	f.Stable = psn == r.nxt
`,
			`	f.Stable = psn == r.nxt
	if !f.Stable && i > 0 {
		off -= uint64(r.e.mtu)
	}
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a READ that goes on from the middle asks for the beginning again",
		edits: []edit{{
			"transport/rc/segment.go",
			`reth.SetVA(w.remote + uint64(done))`,
			`reth.SetVA(w.remote)`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "the running total of READ responses is not checked",
		edits: []edit{{
			"transport/rc/completer.go",
			`if uint64(p.Len) != want || !w.expects(p.Opcode, off == 0, left == want) {`,
			`if false {`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "max_rd_atomic is ignored",
		edits: []edit{{
			"transport/rc/requester.go",
			`return r.reads < int(r.e.attr.MaxRDAtomic) && distance(`,
			`return distance(`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a fence is ignored",
		edits: []edit{{
			"transport/rc/requester.go",
			`if w.flags&ib.SendFence != 0 && r.reads > 0 {`,
			`if false {`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "BIND_MW is replayed with the packets around it",
		edits: []edit{{
			"transport/rc/local.go",
			`	if !w.done {
`,
			`	{
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "LOCAL_INV does not wait, and is replayed with the packets around it",
		edits: []edit{
			{
				"transport/rc/local.go",
				`return r.cursor.position == r.q.head
`,
				`return true
`,
			},
			{
				"transport/rc/local.go",
				`	if !w.done {
`,
				`	{
`,
			},
		},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a request that failed completes twice",
		edits: []edit{{
			"transport/rc/retire.go",
			`	r.complete(now, status, vendor)
}`,
			`	r.complete(now, status, vendor)
	r.q.head--
}`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "the flush skips the first request",
		edits: []edit{{
			"transport/rc/retire.go",
			`	r.complete(now, status, vendor)
}`,
			`	r.complete(now, status, vendor)
	if !r.q.empty() {
		r.q.head++
	}
}`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "a local error overtakes the requests before it",
		edits: []edit{{
			"transport/rc/requester.go",
			`			r.spoil(r.cursor, ib.WCLocProtErr, vendorOf(v))
`,
			`			r.fail(now, ib.WCLocProtErr, vendorOf(v))
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
}
