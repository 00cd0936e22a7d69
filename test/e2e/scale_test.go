package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// 1,000 queue pairs are made, connected, used and destroyed, and the daemon's memory is back where it was: what two rounds
// left is all that there is after six.
func TestThousandQueuePairs(t *testing.T) {
	slow(t)
	d := newDaemon(t, "--device", onLoopback)
	// The collector runs often, so that what is resident is what lives.
	d.cmd.Env = append(os.Environ(), "GOGC=20")
	d.start()
	pid := d.cmd.Process.Pid
	ctx := d.open("softnic0")
	idle := counters(t, ctx)
	for range 2 { // the second brings what the first left to be reused into use
		thousand(t, ctx)
	}
	t.Log("after two rounds: ", describeProcess(t, pid))
	rss, fds, maps := status(t, pid, "VmRSS"), descriptors(t, pid), mapped(t, pid)
	for range 4 {
		thousand(t, ctx)
	}
	t.Log("after six rounds: ", describeProcess(t, pid))
	if now := descriptors(t, pid); now != fds {
		t.Errorf("descriptors: %d after two rounds, %d after six", fds, now)
	}
	if now := mapped(t, pid); now != maps {
		t.Errorf("mappings of the application: %d after two rounds, %d after six", maps, now)
	}
	// 3 MiB are less than 800 bytes for each queue pair that was made since; the runtime's own noise is 1 MiB.
	if now := status(t, pid, "VmRSS"); now > rss+3<<10 {
		t.Errorf("resident: %d KiB after two rounds, %d KiB after six", rss, now)
	}
	after := counters(t, ctx)
	for _, name := range []string{"retransmissions", "out_of_sequence", "rx_unknown_qpn", "local_ack_timeout_err"} {
		if after[name] != idle[name] {
			t.Logf("%s: %d", name, after[name]-idle[name])
		}
	}
	// And all is gone with the application.
	check(t, ctx.Close())
	eventually(t, "the daemon has unmapped everything", patience, func() bool { return mapped(t, pid) == 0 })
}

func thousand(t *testing.T, ctx *verbs.Context) {
	t.Helper()
	const pairs = 500
	begin := time.Now()
	pd, err := ctx.AllocPD()
	check(t, err)
	cq, err := ctx.CreateCQ(4 * pairs)
	check(t, err)
	buf, err := pd.AllocBuffer(pairs * 2 * 64)
	check(t, err)
	mr, err := pd.RegMR(buf.Bytes(), everything)
	check(t, err)
	gid, err := ctx.QueryGID(1, 0)
	check(t, err)
	fill(buf.Bytes()[:pairs*64], 1)
	clear(buf.Bytes()[pairs*64:])

	var qps []*verbs.QP
	var ends []verbs.Endpoint
	for range 2 * pairs {
		qp, err := pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq, SigAll: true,
			Cap: verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}})
		check(t, err)
		qps = append(qps, qp)
		ends = append(ends, verbs.Endpoint{QPN: qp.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID})
	}
	for i, qp := range qps {
		check(t, qp.ConnectRC(ends[i], ends[i^1], verbs.RCAttr{}))
	}
	for i := range pairs {
		check(t, qps[2*i+1].PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE((pairs+i)*64, 64)}}))
		check(t, qps[2*i].PostSend(verbs.SendWR{WRID: uint64(pairs + i), Opcode: ib.WRSend, SGList: []verbs.SGE{mr.SGE(i*64, 64)}}))
	}
	seen := map[uint64]bool{}
	var wc [64]verbs.WC
	for end := time.Now().Add(patience); len(seen) < 2*pairs; {
		n, err := cq.Poll(wc[:])
		check(t, err)
		for _, c := range wc[:n] {
			if c.Status != ib.WCSuccess || seen[c.WRID] {
				t.Fatalf("completion %+v", c)
			}
			seen[c.WRID] = true
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d completions; states %v and %v; %v", len(seen), 2*pairs, qps[0].State(), qps[1].State(), counters(t, ctx))
		}
	}
	for i := range pairs * 64 {
		if buf.Bytes()[i] != buf.Bytes()[pairs*64+i] {
			t.Fatalf("byte %d of the messages differs", i)
		}
	}
	for _, qp := range qps {
		check(t, qp.Close())
	}
	check(t, mr.Dereg())
	check(t, buf.Free())
	check(t, cq.Close())
	check(t, pd.Dealloc())
	t.Logf("%d queue pairs in %v", len(qps), time.Since(begin))
}

// 1,000 armed CQs send their events to one completion channel that nobody reads, while another application plays ping
// pong undisturbed. Then all 1,000 are read.
func TestThousandEvents(t *testing.T) {
	slow(t)
	d := startDaemon(t, "--device", onLoopback)
	calm := pingPong(t, d)

	const n = 1000
	ctx := d.open("softnic0")
	pd, err := ctx.AllocPD()
	check(t, err)
	ch, err := ctx.CreateCompChannel()
	check(t, err)
	own, err := ctx.CreateCQ(64)
	check(t, err)
	buf, err := pd.AllocBuffer(4096)
	check(t, err)
	mr, err := pd.RegMR(buf.Bytes(), everything)
	check(t, err)
	armed := map[*verbs.CQ]int{}
	var qps []*verbs.QP
	for i := range n {
		cq, err := ctx.CreateCQ(1, verbs.WithChannel(ch))
		check(t, err)
		armed[cq] = i
		// A receive on a queue pair in ERR completes at once, flushed: it needs no peer.
		qp, err := pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: own, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		check(t, err)
		check(t, qp.Modify(&verbs.QPAttr{State: ib.StateInit, PortNum: 1}, ib.QPAttrState|ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags))
		check(t, qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.QPAttrState))
		if missed, err := cq.ReqNotify(false); err != nil || missed {
			t.Fatalf("arming: %v, %v", missed, err)
		}
		qps = append(qps, qp)
	}
	for i, qp := range qps {
		check(t, qp.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(0, 1)}}))
	}
	for cq := range armed {
		eventually(t, "the completion is there", patience, func() bool { n, err := cq.Peek(1); return n == 1 && err == nil })
	}
	busy := pingPong(t, d)
	t.Logf("ping pong: %v alone, %v beside 1,000 events that nobody reads", calm, busy)
	// The machine has noise of its own; standing still for one blocked write would be seconds.
	if busy > 10*calm+100*time.Millisecond {
		t.Errorf("another application's ping pong took %v, %v before", busy, calm)
	}

	for limit := timeout(t); len(armed) > 0; {
		cq, err := ch.GetEvent(limit)
		if err != nil {
			t.Fatalf("%d events are lost: %v", len(armed), err)
		}
		i, ok := armed[cq]
		if !ok {
			t.Fatal("a queue has two events")
		}
		delete(armed, cq)
		cq.AckEvents(1)
		var wc [2]verbs.WC
		if got, err := cq.Poll(wc[:]); err != nil || got != 1 || wc[0].WRID != uint64(i) || wc[0].Status != ib.WCWRFlushErr {
			t.Fatalf("queue %d: %d completions, %+v, %v", i, got, wc[0], err)
		}
	}
}

// pingPong measures 500 round trips of 64 bytes by an application of its own.
func pingPong(t *testing.T, d *daemon) time.Duration {
	t.Helper()
	ctx, err := verbs.Open("softnic0", verbs.WithSocket(d.socket))
	check(t, err)
	defer ctx.Close()
	a, b := newSide(ctx, 4096), newSide(ctx, 4096)
	join(a, b)
	limit := timeout(t)
	begin := time.Now()
	for i := range uint64(500) {
		check(t, b.recv(i, 0, 64))
		check(t, a.recv(i, 0, 64))
		for _, step := range [][2]*side{{a, b}, {b, a}} {
			check(t, step[0].send(1000+i, 64, 64))
			// Of the two of one side either may be first, but the sender's own comes before the peer's answer.
			check(t, step[0].expect(limit, 1000+i))
			check(t, step[1].expect(limit, i))
		}
	}
	return time.Since(begin)
}

// READs of a region in which its owner scribbles, over UDP: what is read may be old or new, but every packet is whole,
// and not one has a wrong ICRC.
func TestScribble(t *testing.T) {
	d := startDaemon(t, "--device", onLoopback, "--device", "softnic1=127.0.0.2")
	const size = 1 << 20
	reader, owner := newSide(d.open("softnic0"), size), newSide(d.open("softnic1"), size)
	join(reader, owner)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := byte(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for k := 0; k < size; k += 61 {
				owner.mem[k] = i
			}
		}
	}()
	const reads = 60
	for i := range uint64(reads) {
		check(t, reader.rdma(i, ib.WRRDMARead, 0, size, owner.mr.Addr(), owner.mr.RKey()))
		check(t, reader.expect(timeout(t), i))
	}
	close(stop)
	<-stopped
	check(t, reader.rdma(reads, ib.WRRDMARead, 0, size, owner.mr.Addr(), owner.mr.RKey()))
	check(t, reader.expect(timeout(t), reads))
	if string(reader.mem) != string(owner.mem) {
		t.Error("the last READ, of memory at rest, has other bytes")
	}
	for _, s := range []*side{reader, owner} {
		c := counters(t, s.ctx)
		if c["rx_icrc_encapsulated"] != 0 {
			t.Errorf("%s: %d packets with a wrong ICRC", s.ctx.Name(), c["rx_icrc_encapsulated"])
		}
		if s == reader && c["port_rcv_packets"] < (reads+1)*size/4096 {
			t.Errorf("only %d packets came over UDP", c["port_rcv_packets"])
		}
		t.Logf("%s: %s", s.ctx.Name(), pick(c, "port_rcv_packets", "retransmissions", "rx_socket_drops", "rx_icrc_encapsulated"))
	}
}

func pick(c map[string]uint64, names ...string) (s string) {
	for _, n := range names {
		s += fmt.Sprintf("%s %d  ", n, c[n])
	}
	return s
}
