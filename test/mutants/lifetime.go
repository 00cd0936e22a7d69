package main

// Bugs of objects that are changed while they are used: SQD, RESET, completion queues and regions.
var lifetimeMutants = []mutant{
	{
		name: "SQD begins what was posted",
		edits: []edit{{
			"transport/rc/requester.go",
			`	rts := r.e.state == ib.StateRTS
`,
			`	rts := true
`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "SQ_DRAINED comes before the last acknowledgement",
		edits: []edit{{
			"transport/rc/retire.go",
			`if rest && r.e.state == ib.StateSQD && !r.drained {`,
			`if r.e.state == ib.StateSQD && !r.drained {`,
		}},
		tests: []string{"test/scripts", "transport/rc"},
	},
	{
		name: "attributes may be changed while the send queue drains",
		edits: []edit{{
			"nic/modify.go",
			`if cur == ib.StateSQD && next == ib.StateSQD && !q.drained && mask`,
			`if cur == ib.StateInit && next == ib.StateSQD && !q.drained && mask`,
		}},
		tests: []string{"nic TestDrainedQueueChangesPath|TestModify"},
	},
	{
		name: "what a new life of a queue pair answers, the old one was asked",
		edits: []edit{{
			"transport/rc/responder.go",
			`	r.stop()
	r.resources.reset()
	r.epsn`,
			`	r.resources.reset()
	r.epsn`,
		}},
		tests: []string{"test/scripts", "transport/rc", "nic TestResetAndAgain"},
	},
	{
		name: "a receive in hand outlives RESET",
		edits: []edit{{
			"transport/rc/responder.go",
			`	r.epsn, r.msn, r.latched, r.established = 0, 0, false, false
	r.held = false
`,
			`	r.epsn, r.msn, r.latched, r.established = 0, 0, false, false
`,
		}},
		tests: []string{"test/scripts", "transport/rc", "nic TestResetAndAgain"},
	},
	{
		name: "RESET does not empty the send queue",
		edits: []edit{{
			"transport/rc/requester.go",
			`	r.q.head, r.q.tail = 0, 0
	r.una`,
			`	r.una`,
		}},
		tests: []string{"test/scripts", "transport/rc", "nic TestResetAndAgain"},
	},
	{
		name: "an unreliable queue pair in SQD begins what was posted",
		edits: []edit{{
			"transport/internal/unreliable/sender.go",
			`if b.state != ib.StateRTS || b.stopped || b.tail-b.head`,
			`if b.stopped || b.tail-b.head`,
		}},
		tests: []string{"test/scripts", "transport/internal/unreliable"},
	},
	{
		name: "RESET does not empty an unreliable send queue",
		edits: []edit{{
			"transport/internal/unreliable/sender.go",
			`	s.head = s.tail
	s.begun, s.stopped`,
			`	s.begun, s.stopped`,
		}},
		tests: []string{"test/scripts", "transport/internal/unreliable"},
	},
	{
		name: "a receive of an unreliable message in hand outlives RESET",
		edits: []edit{{
			"transport/internal/unreliable/base.go",
			`b.path, b.held = nil, false`,
			`b.path = nil`,
		}},
		tests: []string{"test/scripts", "transport/internal/unreliable"},
	},
	{
		name: "a resized completion queue forgets what waits in it",
		edits: []edit{{
			"cq/resize.go",
			`	q.ring.SetMoved(q.produced)
`,
			`	q.ring.SetMoved(q.produced - q.waiting())
`,
		}},
		tests: []string{"cq TestResize"},
	},
	{
		name: "a resized completion queue may be smaller than what waits in it",
		edits: []edit{{
			"cq/resize.go",
			`n := q.waiting(); n > capacity {`,
			`n := q.waiting(); n > capacity+q.capacity {`,
		}},
		tests:  []string{"cq TestResize"},
		unseen: "its queues seldom hold more than the smallest ring has places for",
	},
	{
		name: "a region that is registered again keeps its rights",
		edits: []edit{{
			"nic/rereg.go",
			`		next.Access = cfg.Access &^ ib.AccessOptional
`,
			``,
		}},
		tests:  []string{"nic TestReregMR"},
		unseen: "nobody honest asks for what the new rights refuse",
	},
	{
		name: "a region that is registered again keeps its address",
		edits: []edit{{
			"nic/rereg.go",
			`next.Region, next.Offset, next.Base, next.Length = cfg.Region, cfg.Offset, cfg.Base, cfg.Length`,
			`next.Region, next.Offset, next.Length = cfg.Region, cfg.Offset, cfg.Length`,
		}},
		tests: []string{"nic TestReregMR"},
	},
	{
		name: "a region with windows can be registered again",
		edits: []edit{{
			"dma/table.go",
			`	if old.windows > 0 {
`,
			`	if false {
`,
		}},
		tests: []string{"dma"},
	},
}
