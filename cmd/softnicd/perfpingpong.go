package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/yield"
)

// pingPong is a latency measurement: one message at a time. SEND and WRITE go to and fro and count half of the way, READ
// and atomics bring something back by themselves.
type pingPong struct {
	*perfPeer
	client  bool
	latency histogram
	tell    *progress
	heard   int64 // messages of the peer that were noticed
}

// warmUpMessages are not counted, nor is the first tenth of few.
const warmUpMessages = 200

func (g *pingPong) lane() *perfLane { return &g.lanes[0] }

// run plays until the client has had enough.
func (g *pingPong) run() (perfShare, error) {
	var err error
	switch oneWay := g.plan.receives() || g.plan.definition.op == ib.WRRDMAWrite; {
	case g.client:
		err = g.serve(oneWay)
	case oneWay:
		err = g.answer()
	default:
		<-g.sleep.Done()
		err = g.interrupted()
	}
	if err == nil {
		err = g.drain()
	}
	if err == nil {
		err = g.finish()
	}
	share := perfShare{Sent: g.lane().sent}
	if g.latency.n > 0 {
		share.BytesPerS = float64(g.plan.Size) * float64(g.latency.n) / (g.latency.sum / 1e9)
		share.Peak = share.BytesPerS // there are no stretches
	}
	return share, err
}

// serve is the client's side: it begins each round and measures it.
func (g *pingPong) serve(oneWay bool) error {
	skip := int64(warmUpMessages)
	if g.plan.Iters > 0 {
		skip = min(skip, int64(g.plan.Iters)/10)
	}
	end := time.Now().Add(g.plan.Duration)
	before := time.Now()
	for m := int64(0); ; m++ {
		if g.plan.Iters > 0 && m >= int64(g.plan.Iters)+skip || g.plan.Iters == 0 && before.After(end) && m > skip {
			return nil
		}
		if err := g.ping(before); err != nil {
			return err
		}
		if err := g.await(m, oneWay); err != nil {
			return err
		}
		now := time.Now()
		took := now.Sub(before)
		if before = now; oneWay {
			took /= 2
		}
		if m >= skip {
			g.latency.add(took)
			g.tell.count.Store(int64(g.latency.n))
		}
	}
}

// await waits until round m has come back.
func (g *pingPong) await(m int64, oneWay bool) error {
	if oneWay {
		_, err := g.hear(m)
		return err
	}
	for g.lane().done <= m {
		if _, err := g.reap(); err != nil {
			return err
		}
	}
	return nil
}

// answer is the other side.
func (g *pingPong) answer() error {
	for m := int64(0); ; m++ {
		more, err := g.hear(m)
		if err != nil || !more {
			return err
		}
		if err := g.ping(time.Time{}); err != nil {
			return err
		}
	}
}

// ping posts the next message.
func (g *pingPong) ping(now time.Time) error {
	l, plan := g.lane(), &g.plan
	for l.sent-l.done >= int64(plan.TxDepth) {
		if _, err := g.reap(); err != nil {
			return err
		}
	}
	if plan.definition.op == ib.WRRDMAWrite && !plan.Verify {
		b := g.outgoing(l, l.sent)
		b[len(b)-1] = pollByte(l.sent)
	}
	return g.post(l, 1, now)
}

// pollByte is the last byte of message m of a write-lat, never what was there before.
func pollByte(m int64) byte { return byte(m%255) + 1 }

// hear waits for message m of the peer; false if the peer is done and none will come.
func (g *pingPong) hear(m int64) (bool, error) {
	var began time.Time
	if !g.plan.reliable() {
		began = time.Now()
	}
	if g.plan.receives() {
		for g.heard <= m {
			n, err := g.reap()
			if err != nil {
				return false, err
			}
			if n == 0 && g.quits(m) {
				return false, nil
			}
			// Who has slept has slept long.
			if n == 0 && (g.ch != nil || g.polls&0xfff == 0xfff) {
				if err := g.lost(began); err != nil {
					return false, err
				}
			}
		}
		return true, nil
	}
	b := g.incoming(g.lane(), m)
	last := len(b) - 1
	for i := 1; peek(b, last) != pollByte(m); i++ {
		if i%spinsBeforeYield == 0 {
			yield.Thread()
		}
		if i%256 == 0 {
			runtime.Gosched()
			// An error shows in the completion queue only.
			if _, err := g.reap(); err != nil {
				return false, err
			}
			if g.quits(m) {
				return false, nil
			}
			if err := g.lost(began); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// quits tells whether the peer ended before message m.
func (g *pingPong) quits(m int64) bool { return g.link.peerDone.Load() && g.link.peerSent[0] <= m }

// spinsBeforeYield is how often memory is looked at before another process gets the processor.
const spinsBeforeYield = 8

// peek reads a byte that another process writes. It is a call, so that each look is one.
//
//go:noinline
func peek(b []byte, i int) byte { return b[i] }

// reap takes what has completed and returns how many entries that were.
func (g *pingPong) reap() (int, error) {
	wcs, err := g.poll()
	if err != nil {
		return 0, err
	}
	l := g.lane()
	for i := range wcs {
		wc := &wcs[i]
		if wc.Opcode&ib.WCRecv != 0 {
			if err := g.checkReceived(l, g.heard); err != nil {
				return 0, err
			}
			g.heard++
			l.received++
			if l.owed++; l.owed >= max(len(l.recvs)/2, 1) {
				if err := l.repost(); err != nil {
					return 0, err
				}
			}
			continue
		}
		m := int64(wc.WRID)
		if err := g.checkSent(l, l.done, m+1); err != nil {
			return 0, err
		}
		l.done = m + 1
	}
	return len(wcs), nil
}

// drain waits for the acknowledgement of everything that was sent. Unsignaled messages are not known to have arrived, but
// the last round has shown that they did.
func (g *pingPong) drain() error {
	if l := g.lane(); l.sent%int64(g.plan.CQMod) != 0 {
		return nil
	}
	limit := time.Now().Add(perfPatience)
	for g.lane().done < g.lane().sent {
		if _, err := g.reap(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d messages were not acknowledged", g.lane().sent-g.lane().done)
		}
	}
	return nil
}
