// Package verbs is RDMA for Go programs: protection domains, memory regions, completion queues and queue pairs of a
// softnicd device, in the words of libibverbs.
//
// What ibv_open_device is to a C program, [Open] is here. A [Context] makes a [PD], the PD makes an [MR] and a [QP], the
// context makes a [CQ]; work is posted to the queue pair and its completions are polled from the queue:
//
//	ctx, err := verbs.Open("softnic0")
//	pd, err := ctx.AllocPD()
//	buf, err := pd.AllocBuffer(4096)
//	mr, err := pd.RegMR(buf.Bytes(), ib.AccessLocalWrite|ib.AccessRemoteWrite)
//	cq, err := ctx.CreateCQ(1024)
//	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq,
//		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
//	// Tell the peer qp.QPN(), a starting PSN and the GID; learn the peer's; then bring the queue pair up:
//	err = qp.Modify(&attr, mask)                    // as ibv_modify_qp, or
//	err = qp.ConnectRC(local, remote, verbs.RCAttr{}) // all three transitions at once
//
//	err = qp.PostSend(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{mr.SGE(0, 4096)}})
//	var wc [16]verbs.WC
//	n, err := cq.Poll(wc[:])
//
// Constants and small types are those of package ib (ib.StateRTS, ib.WRSend, ib.WCSuccess); the structs that every
// program writes have an alias here. Errors wrap a syscall.Errno where libibverbs would return one, and read as a
// sentence.
//
// # What costs a system call
//
// Posting and polling work on memory that the application and the daemon share. PostSend makes a system call only when the
// daemon sleeps, PostRecv none, and Poll none when something is there; a poll that finds nothing for the fifth time in a
// row yields the processor. None of them allocates. Everything else is a request to the daemon.
//
// # Completion queues
//
// [CQ.Poll] takes completions and never waits; [CQ.PollEach] reads only the fields that are asked for. Who would rather
// sleep has the choice of [CQ.Wait], which polls for a moment, arms, looks once more and sleeps; of [CQ.ReqNotify] with
// [CompChannel.GetEvent], as in C; and of [CQ.HandleEvents], which calls a function for each event. [CQ.Modify] makes one
// event of many completions. A queue that is too small overruns, and everything that completes into it fails: [CQ.Resize]
// makes it larger while it is in use, and [CQ.Status] tells how full it has been. [QP.Drain] is the way down: it returns
// when everything that was posted is flushed and polled.
//
// # Memory
//
// [PD.AllocBuffer] gives memory that the daemon maps too, which is the fast kind. Any other memory, a Go slice for
// example, can be registered as well if the program runs as the daemon's own user: it is pinned while it is registered and
// the daemon reaches it by system calls.
//
// An [MW] is a window to a part of a region: a key that is bound and taken away by work requests, in order with the others
// of a queue pair, without asking the daemon.
//
// # When the daemon dies
//
// Polls, waits, posts and requests return [ErrDeviceFatal], at the latest 100 ms after. Nothing hangs, and what was
// completed before can still be polled.
//
// Everything is safe for several goroutines. A device inside the own process, for tests, is in package verbs/embedded.
package verbs
