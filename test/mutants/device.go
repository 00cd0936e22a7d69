package main

// Bugs around the engine: memory protection, completion queues, doorbells, the wire, the device.
var deviceMutants = []mutant{
	{
		name: "access rights of a region are ignored",
		edits: []edit{{
			"dma/table.go",
			`if mr.Access&need != need {`,
			`if false {`,
		}},
		tests: []string{"dma"},
	},
	{
		name: "protection domains are ignored",
		edits: []edit{{
			"dma/table.go",
			`	if mr.Domain != d {
`,
			`	if false {
`,
		}},
		tests: []string{"dma"},
	},
	{
		name: "a bounds check that wraps",
		edits: []edit{{
			"dma/table.go",
			`if n > mr.Length || va < mr.Base || va-mr.Base > mr.Length-n {`,
			`if va < mr.Base || va+n > mr.Base+mr.Length {`,
		}},
		tests: []string{"dma"},
	},
	{
		name: "the generation in a key is not looked at",
		edits: []edit{{
			"dma/table.go",
			`case e.key != uint32(key):`,
			`case false:`,
		}},
		tests: []string{"dma"},
	},
	{
		name: "a key lives on when its region is deregistered",
		edits: []edit{{
			"dma/table.go",
			`	t.slots[slot].Store(nil)
`,
			``,
		}},
		tests: []string{"dma"},
	},
	{
		name: "another queue pair may use a type 2 window",
		edits: []edit{{
			"dma/window.go",
			`case w.Domain != d || w.Type == ib.MWType2 && b.qpn != qpn:`,
			`case w.Domain != d:`,
		}},
		tests: []string{"dma"},
	},
	{
		name: "a scatter list is filled from the wrong place",
		edits: []edit{{
			"dma/list.go",
			`	s.Off += off
`,
			``,
		}},
		tests: []string{"dma"},
	},
	{
		name: "the ICRC is not checked",
		edits: []edit{{
			"wire/parse.go",
			`if !d.checkICRC(headers) {`,
			`if false {`,
		}},
		tests: []string{"wire"},
	},
	{
		name: "every segment of a GSO group has the IPv4 identification 0",
		edits: []edit{{
			"link/internal/batch/outbox.go",
			`if err = o.add(f, path, uint16(sum.packets)); err != nil {`,
			`if err = o.add(f, path, 0); err != nil {`,
		}},
		tests:  []string{"link/udp TestIdentification"},
		unseen: "its network has no GSO",
	},
	{
		name: "every packet of a run has the IPv4 identification of the first",
		edits: []edit{{
			"link/internal/batch/stage.go",
			`sum := s.prefix.Numbered(path, id+uint16(i)).BTH(s.arena[at:])`,
			`sum := s.prefix.Numbered(path, id).BTH(s.arena[at:])`,
		}},
		tests:  []string{"link/udp TestIdentification"},
		unseen: "its network has no GSO",
	},
	{
		name: "packets are joined to a run whatever their numbers",
		edits: []edit{{
			"wire/join.go",
			`last&0xffffff == (first+uint32(n))&0xffffff`,
			`true`,
		}},
		tests:  []string{"wire TestJoinRefuses"},
		unseen: "its network has no GRO",
	},
	{
		name: "the ICRC of packets that are joined to a run is not checked",
		edits: []edit{{
			"wire/join.go",
			`|| !d.checkICRC(headers) {`,
			`{`,
		}},
		tests:  []string{"wire TestJoinRefuses"},
		unseen: "its network has no GRO",
	},
	{
		name: "packets from anybody are heard",
		edits: []edit{{
			"nic/demux.go",
			`case p.Source != q.path.Dest:`,
			`case false:`,
		}},
		tests:  []string{"nic TestJudge"},
		unseen: "its attacker has right addresses",
	},
	{
		name: "an overrun of a completion queue is silent",
		edits: []edit{{
			"cq/queue.go",
			`q.dead == nil && used >= q.capacity {`,
			`false {`,
		}},
		tests: []string{"cq TestModerationAndOverrun"},
	},
	{
		name: "queue pairs live on when their completion queue is dead",
		edits: []edit{{
			"nic/completion.go",
			`if qp != nil && (qp.sendCQ == q || qp.recvCQ == q) && !qp.fatal {`,
			`if false {`,
		}},
		tests: []string{"nic TestOverrun"},
	},
	{
		name: "an error is no solicited event",
		edits: []edit{{
			"cq/queue.go",
			`solicited || e.Status != uint8(ib.WCSuccess))`,
			`solicited || ib.WCSuccess != 0)`,
		}},
		tests: []string{"cq TestNotification"},
	},
	{
		name: "an entry is published before it is written",
		edits: []edit{{
			"abi/cqblock.go",
			`	put(&s[0], e.WRID)
`,
			`	atomic.StoreUint64(&s[7], uint64(index+1)<<32)
	put(&s[0], e.WRID)
`,
		}},
		tests:  []string{"abi"},
		unseen: "there one thing happens at a time",
	},
	{
		name: "arming does not look once more",
		edits: []edit{{
			"cq/reader.go",
			`	if r.ready() {
		return true
	}
	r.touch(wordState)
	return`,
			`	r.touch(wordState)
	return`,
		}},
		tests: []string{"cq TestEntriesThatAreThereMakeNoEvent"},
	},
	{
		name: "an arming fires more than once",
		edits: []edit{{
			"cq/event.go",
			`	m.fired = sequence
`,
			``,
		}},
		tests: []string{"cq TestNotification"},
	},
	{
		name: "a doorbell sets the top before the leaf",
		edits: []edit{{
			"abi/doorbell.go",
			`	b.set(offBellLeaf/8+slot>>6, 1<<(slot&63))
	b.set(offBellMiddle/8+slot>>12, 1<<(slot>>6&63))
	b.set(offBellTop/8, 1<<(slot>>12))
`,
			`	b.set(offBellTop/8, 1<<(slot>>12))
	b.set(offBellMiddle/8+slot>>12, 1<<(slot>>6&63))
	b.set(offBellLeaf/8+slot>>6, 1<<(slot&63))
`,
		}},
		tests:  []string{"abi"},
		unseen: "there a ring happens at once",
	},
	{
		name: "an error of an unsignaled request is silent",
		edits: []edit{{
			"nic/queuepair.go",
			`if r.Flags&ib.SendSignaled != 0 || c.Status != ib.WCSuccess {`,
			`if r.Flags&ib.SendSignaled != 0 {`,
		}},
		tests: []string{"nic TestVanishedPayload"},
	},
	{
		name: "a producer index that is ahead by more than the ring is believed",
		edits: []edit{{
			"nic/queuepair.go",
			`	if n > depth {
`,
			`	if n > depth+1 {
`,
		}},
		tests:  []string{"nic TestPostedIndexLies"},
		unseen: "its applications do not lie",
	},
	{
		name: "SRQ_LIMIT_REACHED at the limit instead of below it",
		edits: []edit{{
			"nic/srq.go",
			`	if posted < q.limit {
`,
			`	if posted <= q.limit && q.limit > 0 {
`,
		}},
		tests: []string{"nic TestSRQLimit"},
	},
	{
		name: "a queue pair in error takes receives of its shared queue",
		edits: []edit{{
			"nic/queuepair.go",
			`		if q.state == ib.StateErr {
			return transport.Empty
		}
		return q.srq`,
			`		return q.srq`,
		}},
		tests: []string{"nic TestLastWQEReached|TestSRQIsShared"},
	},
	{
		name: "timers are lost when the wheel turns to them",
		edits: []edit{{
			"nic/timers.go",
			`			w.remove(q)
			w.enter(q)
`,
			`			w.remove(q)
`,
		}},
		tests: []string{"nic TestTimers"},
	},
	{
		name: "memory that its owner may write is sent from where it lies",
		edits: []edit{{
			"link/internal/batch/stage.go",
			`copied := !f.Stable || f.PayloadLen() < gatherFrom*f.Packets()`,
			`copied := false`,
		}},
		tests:  []string{"link/udp TestScribble"},
		unseen: "its network has no stage",
	},
	{
		name: "pieces of a run are copied to the same place",
		edits: []edit{{
			"dma/copy.go",
			`		db = db[p.Len:]
		n += p.Len
`,
			`		n += p.Len
`,
		}},
		tests: []string{"dma TestCopyPayload"},
	},
	{
		name: "a frame that waits for its neighbour is overtaken by the next",
		edits: []edit{{
			"link/raw/hold.go",
			`if h == nil && asking || slices.ContainsFunc(keep, before) {`,
			`if _ = slices.ContainsFunc(keep, before); h == nil && asking {`,
		}},
		tests:  []string{"link/raw TestAnswerAnyTime"},
		unseen: "its network has no neighbours",
	},
	{
		name: "the wide CRC adds vectors a lane too far",
		edits: []edit{{
			"internal/crc/crc_amd64.s",
			`	FOLD(Z1, Z6, Z0, Z10)
`,
			`	FOLD(Z1, Z7, Z0, Z10)
`,
		}},
		tests: []string{"internal/crc TestUpdate"}, // on processors that have such vectors; on others it lives
	},
	{
		name: "what was held is received once more",
		edits: []edit{{
			"link/internal/batch/hold.go",
			`in.discarded[:min(n, recvMessages)], unix.MSG_TRUNC)`,
			`in.discarded[:min(n, recvMessages)], unix.MSG_TRUNC|unix.MSG_PEEK)`,
		}},
		tests:  []string{"link/udp TestHold"},
		unseen: "its ports are not sockets",
	},
	{
		name: "what is held stays when nothing comes any more",
		edits: []edit{{
			"link/internal/batch/hold.go",
			`h.bulk && now.Sub(h.large) <= holdTime && now`,
			`h.bulk && now`,
		}},
		tests:  []string{"link/internal/batch TestHolding"},
		unseen: "its ports are not sockets",
	},
	{
		name: "a shard waits for replies though none come",
		edits: []edit{{
			"nic/answer.go",
			`	w.end(false)
`,
			`	w.until = 0
`,
		}},
		tests:  []string{"nic TestReplyWait"},
		unseen: "its devices are turned by hand",
	},
	{
		name: "who polls keeps the only processor of the program",
		edits: []edit{{
			"verbs/cq.go",
			`n%goschedPolls == 0`,
			`n%goschedPolls > goschedPolls`,
		}},
		tests:  []string{"verbs TestPollLetsOthersRun"},
		unseen: "its applications are no goroutines",
	},
}
