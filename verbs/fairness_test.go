package verbs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// stream is a program that keeps WRITEs of 1 MiB outstanding on each of its queue pairs.
type stream struct {
	side  *side
	mr    *verbs.MR
	qps   []*verbs.QP
	moved uint64 // messages
}

const (
	streamMessage = 1 << 20
	streamDepth   = 48 // WRITEs outstanding: enough for the device while a busy machine keeps the program waiting
)

// newStream connects n queue pairs of a context of its own with as many of sink's.
func newStream(t *testing.T, d *embedded.Device, sink *side, target *verbs.MR, n int) *stream {
	t.Helper()
	ctx := must(d.Open())
	t.Cleanup(func() { ctx.Close() })
	s := &stream{side: newSide(t, ctx, streamDepth*n+64, smallCap)}
	buf := must(s.side.pd.AllocBuffer(streamMessage))
	s.mr = must(s.side.pd.RegMR(buf.Bytes(), ib.AccessLocalWrite))
	gid := must(ctx.QueryGID(1, 0)).GID
	for range n {
		deep := verbs.QPCap{MaxSendWR: 64, MaxSendSGE: 1}
		from := must(s.side.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: s.side.cq, RecvCQ: s.side.cq, Cap: deep}))
		to := must(sink.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: sink.cq, RecvCQ: sink.cq, Cap: smallCap}))
		a := verbs.Endpoint{QPN: from.QPN(), PSN: verbs.RandomPSN(), GID: gid}
		b := verbs.Endpoint{QPN: to.QPN(), PSN: verbs.RandomPSN(), GID: gid}
		check(t, from.ConnectRC(a, b, verbs.RCAttr{}))
		check(t, to.ConnectRC(b, a, verbs.RCAttr{}))
		s.qps = append(s.qps, from)
	}
	for i, qp := range s.qps {
		for range streamDepth {
			check(t, qp.PostSend(s.write(i, target)))
		}
	}
	return s
}

func (s *stream) write(i int, target *verbs.MR) verbs.SendWR {
	return verbs.SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGList: []verbs.SGE{s.mr.SGE(0, streamMessage)},
		RemoteAddr: target.Addr(), RKey: target.RKey()}
}

// run posts again what completes, until ctx ends.
func (s *stream) run(t *testing.T, ctx context.Context, target *verbs.MR) {
	var wc [64]verbs.WC
	for {
		n, err := s.side.cq.Wait(ctx, wc[:])
		if err != nil {
			return
		}
		for _, c := range wc[:n] {
			if c.Status != ib.WCSuccess {
				t.Errorf("stream: %v", c.Status)
				return
			}
			s.moved++
			if err := s.qps[c.WRID].PostSend(s.write(int(c.WRID), target)); err != nil {
				t.Errorf("stream: %v", err)
				return
			}
		}
	}
}

// Two programs of one user: 64 queue pairs of the one get no more of the port than one queue pair of the other.
func TestProgramsShareThePort(t *testing.T) {
	if testing.Short() {
		t.Skip("moves gigabytes")
	}
	d := must(embedded.New(embedded.Options{}))
	t.Cleanup(func() { d.Close() })
	sinkCtx := must(d.Open())
	t.Cleanup(func() { sinkCtx.Close() })
	sink := newSide(t, sinkCtx, 64, smallCap)
	mem := must(sink.pd.AllocBuffer(streamMessage))
	target := must(sink.pd.RegMR(mem.Bytes(), everything))

	// A machine that is busy with other things starves one of the programs of its processor; then neither saturates.
	var share float64
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		crowd, one := newStream(t, d, sink, target, 64), newStream(t, d, sink, target, 1)
		done := make(chan struct{})
		go func() { defer close(done); crowd.run(t, ctx, target) }()
		one.run(t, ctx, target)
		<-done
		cancel()
		share = float64(one.moved) / float64(one.moved+crowd.moved)
		t.Logf("one queue pair moved %d messages of 1 MiB, the 64 of the other program %d: %.1f %%", one.moved, crowd.moved, 100*share)
		crowd.side.ctx.Close()
		one.side.ctx.Close()
		if share > 0.475 && share < 0.525 {
			return
		}
	}
	t.Errorf("the lone queue pair got %.1f %% of the bytes, want half within 5 %%", 100*share)
}

// A program that sends 64 bytes now and then hardly notices another that saturates the port with 64 queue pairs.
func TestLoneSenderBesideACrowd(t *testing.T) {
	if testing.Short() {
		t.Skip("moves gigabytes")
	}
	d := must(embedded.New(embedded.Options{}))
	t.Cleanup(func() { d.Close() })
	sinkCtx := must(d.Open())
	t.Cleanup(func() { sinkCtx.Close() })
	sink := newSide(t, sinkCtx, 64, smallCap)
	mem := must(sink.pd.AllocBuffer(streamMessage))
	target := must(sink.pd.RegMR(mem.Bytes(), everything))
	smallCtx := must(d.Open())
	t.Cleanup(func() { smallCtx.Close() })
	small := newSide(t, smallCtx, 64, smallCap)
	connectSides(t, small, sink, verbs.RCAttr{})

	measure := func() (p50, p99 time.Duration) {
		var took []time.Duration
		for range 1500 {
			wr := verbs.SendWR{Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGList: []verbs.SGE{small.mr.SGE(0, 64)},
				RemoteAddr: sink.mr.Addr(), RKey: sink.mr.RKey()}
			begun := time.Now()
			check(t, small.qp.PostSend(wr))
			var wc [1]verbs.WC
			for {
				n, err := small.cq.Poll(wc[:])
				check(t, err)
				if n == 1 {
					break
				}
			}
			took = append(took, time.Since(begun))
			time.Sleep(100 * time.Microsecond)
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	var ratio float64
	for range 5 {
		alone50, alone99 := measure()
		ctx, cancel := context.WithCancel(context.Background())
		crowd := newStream(t, d, sink, target, 64)
		done := make(chan struct{})
		go func() { defer close(done); crowd.run(t, ctx, target) }()
		beside50, beside99 := measure()
		cancel()
		<-done
		crowd.side.ctx.Close()
		ratio = float64(beside99) / float64(alone99)
		t.Logf("64 bytes: alone p50 %v p99 %v; beside 64 streams p50 %v p99 %v: %.1f x", alone50, alone99, beside50, beside99, ratio)
		if ratio <= 3 {
			return
		}
	}
	t.Errorf("the p99 of a lone sender is %.1f times what it is alone, want 3 at the most", ratio)
}
