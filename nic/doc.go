// Package nic is the device: what a host channel adapter is between its network port and its applications.
//
// A [Device] owns objects (protection domains, memory regions, completion queues, queue pairs), each made in the
// [Context] of an application and gone with it. Control calls come from any goroutine; they build an object fully and
// publish it last. What happens to packets and work requests happens in the device's shard: one goroutine on one thread
// that runs to completion, round after round: commands, doorbells, packets, deadlines, packets to send, and sleep when
// nothing is left. The shard alone touches what the data path needs, so that path takes no lock.
//
// The parts, each in a file of its own: the state table (transitions.go) and the values a transition carries (modify.go),
// the queue pair as its engine sees it (queuepair.go), demultiplexing (qpn.go, demux.go), the scheduler that divides the
// port between tenants (scheduler.go), the GID table (gid.go), quotas (quota.go), and what keeps a panic or a fault of
// memory within the queue pair or the context that caused it (contain.go).
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
