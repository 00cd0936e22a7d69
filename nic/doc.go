// Package nic is the device: what a host channel adapter is between its network port and its applications.
//
// A [Device] owns objects (protection domains, memory regions, completion queues, queue pairs), each made in the
// [Context] of an application and gone with it. Control calls come from any goroutine; they build an object fully and
// publish it last. What happens to packets and work requests happens in the device's shards, of which one is common: a
// shard is one goroutine on one thread that runs to completion, round after round: commands, doorbells, packets, deadlines,
// packets to send, and sleep when nothing is left. A queue pair belongs to one shard, which alone touches what its data path
// needs, so that path takes no lock.
//
// The files, from the outside in:
//
//	device.go      the device: making it, turning it, ending it
//	context.go     an application's use of it; quota.go what that may cost
//	profile.go     the device that it presents itself as; limits.go how much of everything
//	memory.go      protection domains and memory regions; rereg.go changes those, window.go is memory windows
//	completion.go  completion queues; resize.go moves them, cqstatus.go lists them; srq.go shared receive queues
//	qp.go          queue pairs: create, query, destroy; service.go chooses their engine
//	modify.go      changing them; transitions.go is the state table, path.go the way to a peer
//	xrc.go         XRC domains; target.go their receiving queue pairs
//	ah.go          address handles; mcast.go groups
//	queuepair.go   a queue pair as its engine sees it: rings that are hostile ground
//	link.go        the network interface below; gid.go its addresses, pkey.go its partitions; change.go what happens to it
//	port.go        what carries frames
//	shard.go       one round of work; inbox.go and members.go are commands, loop.go is waking and sleeping,
//	               answer.go waits for what comes next
//	shards.go      all of them together: grace points, pauses
//	part.go        what a context has on a shard; lane.go how packets get to the right one
//	demux.go       whom a packet is for, and who may not speak; qpn.go finds queue pairs by number
//	scheduler.go   who sends next; timers.go who is waiting for a time, inflight.go who waits for room; bells.go who rang
//	congestion.go  marks, CNPs and rates; dcqcn.go what a CNP does to a rate, flows.go the same for datagrams
//	contain.go     panics and faults, kept to who caused them
//	counters.go    what is counted, of the device; portcounters.go of its port; objects.go what there is
//
//	dev, err := nic.New(nic.Config{Name: "softnic0", Port: port, Now: clock.Monotonic, Random: rand.Reader, Link: link})
//	dev.Start()
//	ctx, err := dev.OpenContext(nic.ContextConfig{Owner: true, Doorbell: page, Async: events})
//	pd, err := ctx.AllocPD()
//	cq, err := ctx.CreateCQ(nic.CQConfig{Block: ring, Entries: 1024})
//	qp, err := ctx.CreateQP(nic.QPConfig{PD: pd, Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: caps, Block: carve})
//	err = ctx.ModifyQP(qp, &attr, mask)
//
// With Config.Manual there is no goroutine, no clock and no waiting: the caller turns the device by [Device.Step], which
// is how test/sim runs whole networks from a seed.
package nic
