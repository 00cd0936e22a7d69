package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// perfHost says where a side finds its device.
type perfHost struct {
	device, socket string
}

func (h perfHost) options() []verbs.Option { return socketOption(h.socket) }

// perfPeer is one side of one measurement: what any verbs program has, and where it stands.
type perfPeer struct {
	plan   perfPlan
	link   *perfLink
	ctx    *verbs.Context
	pd     *verbs.PD
	mr     *verbs.MR
	mem    []byte
	cq     *verbs.CQ
	ch     *verbs.CompChannel // with --events
	xrcd   *verbs.XRCD        // with XRC
	lanes  []perfLane
	byQPN  map[ib.QPN]*perfLane
	remote perfSide
	daemon perfProcess
	cpu    cpuMeter

	// The waiting context of --events ends when the peer is done.
	sleep context.Context
	awake context.CancelFunc
	whole context.Context // of the command

	wc          []verbs.WC
	events      uint64
	completions uint64
	polls       int // in a row that found nothing
}

// perfLane is a queue pair with what it has under way.
type perfLane struct {
	index    int
	qp       *verbs.QP
	sent     int64       // messages posted
	done     int64       // messages that completed
	posting  int64       // receives posted
	received int64       // messages that came
	posted   []time.Time // of message n at n modulo the depth
	sends    []verbs.SendWR
	recvs    []verbs.RecvWR
	owed     int  // receives to be posted again
	waiting  bool // in the list of lanes that may have room
	sges     []verbs.SGE
	recvSGEs []verbs.SGE
	ah       *verbs.AH // of datagrams, which go to peer
	peer     ib.QPN
	target   *verbs.QP  // with XRC
	srq      *verbs.SRQ // that the target receives into
	srqn     uint32     // of the peer's
}

// openPeer makes everything but the connection.
func openPeer(plan perfPlan, h perfHost, link *perfLink) (p *perfPeer, err error) {
	p = &perfPeer{plan: plan, link: link, byQPN: make(map[ib.QPN]*perfLane), wc: make([]verbs.WC, 64)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.ctx, err = verbs.Open(h.device, h.options()...); err != nil {
		return p, err
	}
	pd, err := p.ctx.AllocPD()
	if err != nil {
		return p, err
	}
	p.pd = pd
	buffer, err := pd.AllocBuffer(int(plan.bytes()))
	if err != nil {
		return p, err
	}
	p.mem = buffer.Bytes()
	access := ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic
	if p.mr, err = pd.RegMR(p.mem, access); err != nil {
		return p, err
	}
	if err = p.openCQ(); err != nil {
		return p, err
	}
	p.lanes = make([]perfLane, plan.QPs)
	for i := range p.lanes {
		if err = p.lanes[i].open(p, pd, i); err != nil {
			return p, err
		}
		p.byQPN[p.lanes[i].qp.QPN()] = &p.lanes[i]
		if target := p.lanes[i].target; target != nil {
			p.byQPN[target.QPN()] = &p.lanes[i] // of what it receives
		}
	}
	p.daemon = daemonProcess(h.socket)
	p.cpu.daemon = p.daemon.PID
	return p, nil
}

func (p *perfPeer) openCQ() (err error) {
	// The queue must hold every completion that can be under way: perftest's rule too.
	entries := p.plan.QPs * p.plan.TxDepth
	if p.plan.receives() {
		entries += p.plan.QPs * p.plan.RxDepth
	}
	attr, err := p.ctx.QueryDevice()
	if err != nil {
		return err
	}
	var opts []verbs.CQOption
	if p.plan.Events {
		if p.ch, err = p.ctx.CreateCompChannel(); err != nil {
			return err
		}
		opts = append(opts, verbs.WithChannel(p.ch))
	}
	if p.cq, err = p.ctx.CreateCQ(min(entries, int(attr.MaxCQE)), opts...); err != nil {
		return err
	}
	if p.plan.ModCount > 0 || p.plan.ModPeriod > 0 {
		return p.cq.Modify(p.plan.ModCount, p.plan.ModPeriod)
	}
	return nil
}

func (l *perfLane) open(p *perfPeer, pd *verbs.PD, i int) (err error) {
	plan := &p.plan
	l.index = i
	capacity := verbs.QPCap{
		MaxSendWR: uint32(plan.TxDepth), MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: uint32(plan.Inline),
	}
	if plan.receives() {
		capacity.MaxRecvWR = uint32(plan.RxDepth)
	}
	init := verbs.QPInitAttr{Type: plan.qpType(), SendCQ: p.cq, RecvCQ: p.cq, Cap: capacity}
	if plan.extended() {
		init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = nil, 0, 0
		if err = l.openXRC(p, pd); err != nil {
			return err
		}
	}
	if l.qp, err = pd.CreateQP(init); err != nil {
		return err
	}
	l.posted = make([]time.Time, plan.TxDepth)
	l.sends = make([]verbs.SendWR, plan.PostList)
	l.sges = make([]verbs.SGE, plan.outPlaces())
	for n := range l.sges {
		l.sges[n] = p.mr.SGE(plan.out(i, int64(n)), plan.Size)
	}
	if plan.receives() {
		l.recvs = make([]verbs.RecvWR, min(plan.RxDepth, 64))
		l.recvSGEs = make([]verbs.SGE, plan.inPlaces())
		for n := range l.recvSGEs {
			l.recvSGEs[n] = p.mr.SGE(plan.in(i, int64(n)), plan.received())
		}
		l.owed = plan.RxDepth
	}
	return nil
}

// connect exchanges addresses with the peer, brings the queue pairs up and posts the first receives.
func (p *perfPeer) connect(ctx context.Context) error {
	gid, err := p.ctx.QueryGID(1, 0)
	if err != nil {
		return err
	}
	local := perfSide{Addr: p.mr.Addr(), RKey: p.mr.RKey(), Daemon: p.daemon}
	for i := range p.lanes {
		l := &p.lanes[i]
		local.QPs = append(local.QPs, verbs.Endpoint{QPN: l.qp.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID})
		if p.plan.extended() {
			local.Targets = append(local.Targets, verbs.Endpoint{QPN: l.target.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID})
			local.SRQs = append(local.SRQs, l.srq.Number())
		}
	}
	if err := p.link.send(perfMessage{Kind: kindSide, Side: &local}); err != nil {
		return err
	}
	m, err := p.link.expect(ctx, kindSide)
	if err != nil {
		return err
	}
	if m.Side == nil || len(m.Side.QPs) != len(p.lanes) || p.plan.extended() &&
		(len(m.Side.Targets) != len(p.lanes) || len(m.Side.SRQs) != len(p.lanes)) {
		return errors.New("the peer has another number of queue pairs")
	}
	p.remote = *m.Side
	for i := range p.lanes {
		l := &p.lanes[i]
		if err := p.connectLane(p.pd, l, &local, &p.remote); err != nil {
			return err
		}
		if err := l.repost(); err != nil {
			return err
		}
	}
	return nil
}

// countDaemonOnce leaves a daemon that both sides use to the other side.
func (p *perfPeer) countDaemonOnce() {
	if p.daemon == p.remote.Daemon {
		p.cpu.daemon = 0
	}
}

// start waits for the peer and starts the clocks.
func (p *perfPeer) start(ctx context.Context) error {
	p.whole = ctx
	p.sleep, p.awake = context.WithCancel(ctx)
	p.link.begin(p.awake)
	if err := p.link.barrier(ctx); err != nil {
		return err
	}
	p.cpu.start()
	return nil
}

// target is where message n of a lane goes at the peer.
func (p *perfPeer) target(l *perfLane, n int64) uint64 {
	return p.remote.Addr + uint64(p.plan.in(l.index, n))
}

// post posts messages first to first+n-1 of a lane; the numbers come back as WRID.
func (p *perfPeer) post(l *perfLane, n int, now time.Time) error {
	plan := &p.plan
	for i := range l.sends[:n] {
		m := l.sent + int64(i)
		wr := &l.sends[i]
		*wr = verbs.SendWR{WRID: uint64(m), Opcode: plan.definition.op, RemoteAddr: p.target(l, m), RKey: p.remote.RKey, CompareAdd: 1}
		if (m+1)%int64(plan.CQMod) == 0 || m+1 == int64(plan.Iters) {
			wr.Flags = ib.SendSignaled
			l.posted[m%int64(len(l.posted))] = now
		}
		if l.ah != nil {
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = l.ah, l.peer, perfQKey
		}
		wr.RemoteSRQN = l.srqn
		if plan.Verify {
			p.prepare(l, m)
		}
		if plan.Size <= plan.Inline && (plan.definition.op == ib.WRSend || plan.definition.op == ib.WRRDMAWrite) {
			wr.Flags |= ib.SendInline
			wr.InlineData = p.outgoing(l, m)
			continue
		}
		place := m % int64(len(l.sges))
		wr.SGList = l.sges[place : place+1]
	}
	if err := l.qp.PostSend(l.sends[:n]...); err != nil {
		return err
	}
	l.sent += int64(n)
	return nil
}

func (p *perfPeer) outgoing(l *perfLane, m int64) []byte {
	at := p.plan.out(l.index, m)
	return p.mem[at : at+p.plan.Size]
}

func (p *perfPeer) incoming(l *perfLane, m int64) []byte {
	at := p.plan.in(l.index, m)
	return p.mem[at : at+p.plan.Size]
}

// repost posts the receives that are owed.
func (l *perfLane) repost() error {
	for l.owed > 0 {
		n := min(l.owed, len(l.recvs))
		for i := range l.recvs[:n] {
			place := (l.posting + int64(i)) % int64(len(l.recvSGEs))
			l.recvs[i] = verbs.RecvWR{SGList: l.recvSGEs[place : place+1]}
		}
		post := l.qp.PostRecv
		if l.srq != nil {
			post = l.srq.PostRecv
		}
		if err := post(l.recvs[:n]...); err != nil {
			return err
		}
		l.posting += int64(n)
		l.owed -= n
	}
	return nil
}

// Where long messages are under way by the dozen, who has polled so often in vain rests a little: nobody misses him, since those
// behind the one that he waits for take much longer, and the daemons have the processors meanwhile. Polling took a tenth of what two
// daemons and their applications on two processors had for SENDs of 1 MiB.
const (
	restPolls = 64
	restSize  = 64 << 10
	rest      = 20 * time.Microsecond // and what the kernel adds, some 50
)

// poll returns completions, if there are some. With --events it sleeps until there are, or the peer is done.
func (p *perfPeer) poll() ([]verbs.WC, error) {
	n, err := p.cq.Poll(p.wc)
	if n == 0 && err == nil && p.ch != nil && p.sleep.Err() == nil {
		n, err = p.nap()
	}
	if err != nil {
		return nil, err
	}
	if n == 0 {
		if p.polls++; p.polls&0xff == 0 {
			return nil, p.interrupted()
		}
		if p.polls > restPolls && p.plan.Size >= restSize && !p.plan.definition.latency {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(rest)}, nil)
		}
		return nil, nil
	}
	p.polls = 0
	p.completions += uint64(n)
	for i := range p.wc[:n] {
		if wc := &p.wc[i]; wc.Status != ib.WCSuccess {
			return nil, fmt.Errorf("a completion of QP %#06x says %v (vendor error %#x)", uint32(wc.QPN), wc.Status, wc.VendorErr)
		}
	}
	return p.wc[:n], nil
}

// nap arms the queue, looks once more and sleeps: where messages may be lost, no longer than one is waited for.
func (p *perfPeer) nap() (int, error) {
	missed, err := p.cq.ReqNotify(false)
	if err != nil {
		return 0, err
	}
	if !missed {
		sleep := p.sleep
		if !p.plan.reliable() {
			limited, cancel := context.WithTimeout(sleep, perfLost)
			defer cancel()
			sleep = limited
		}
		q, err := p.ch.GetEvent(sleep)
		if err != nil && sleep.Err() == nil {
			return 0, err
		}
		if err == nil {
			p.events++
			q.AckEvents(1)
		}
	}
	return p.cq.Poll(p.wc)
}

// interrupted tells whether somebody ended the measurement.
func (p *perfPeer) interrupted() error {
	if p.link.broken.Load() {
		return p.link.failure()
	}
	return context.Cause(p.whole)
}

// finish tells the peer what this side has sent and saw acknowledged.
func (p *perfPeer) finish() error {
	sent := make([]int64, len(p.lanes))
	for i := range p.lanes {
		sent[i] = p.lanes[i].sent
	}
	return p.link.send(perfMessage{Kind: kindDone, Sent: sent})
}

// settle exchanges what there is to say after the measurement.
func (p *perfPeer) settle(ctx context.Context, own perfShare) (perfShare, error) {
	own.CPU, own.Events, own.Completions = p.cpu.used(), p.events, p.completions
	if err := p.link.send(perfMessage{Kind: kindShare, Share: &own}); err != nil {
		return own, err
	}
	m, err := p.link.expect(ctx, kindShare)
	if err != nil {
		return own, err
	}
	if m.Share == nil {
		return own, errors.New("the peer's share is empty")
	}
	m.Share.CPU += own.CPU
	m.Share.Events += own.Events
	m.Share.Completions += own.Completions
	return *m.Share, nil
}

func (p *perfPeer) close() {
	if p.awake != nil {
		p.awake()
	}
	if p.ctx != nil {
		if err := p.ctx.Close(); err != nil && !errors.Is(err, syscall.EPIPE) {
			p.link.fail(err)
		}
	}
}
