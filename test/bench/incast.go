package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// incast is many who write to one: each sender has a device and an address of its own, the receiver one device. All
// applications are one process, since what is measured is the devices.
type incast struct {
	Senders  string // socket of the daemon with their devices
	Receiver string
	Devices  []string // of those who send
	Length   time.Duration
}

// incastResult is what came of it.
type incastResult struct {
	Gbit []float64 // by sender
	Err  string
}

const (
	incastVariable = "SOFTNICD_BENCH_INCAST"
	incastSize     = 1 << 20
	incastDepth    = 8
)

// run measures in a process of its own.
func (c *incast) run() (r incastResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience+10*c.Length)
	defer cancel()
	child := exec.CommandContext(ctx, self, "child", "incast")
	child.Env, child.Stderr = append(os.Environ(), incastVariable+"="+string(text)), os.Stderr
	out, err := child.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err == nil && r.Err != "" {
		err = fmt.Errorf("incast: %s", r.Err)
	}
	return r, err
}

// total is what arrived.
func (r *incastResult) total() (sum float64) {
	for _, v := range r.Gbit {
		sum += v
	}
	return sum
}

// spread is how far from the mean the sender is who is farthest, as a share of the mean: 0 if all had the same.
func (r *incastResult) spread() (most float64) {
	mean := r.total() / float64(len(r.Gbit))
	for _, v := range r.Gbit {
		most = max(most, math.Abs(v-mean)/mean)
	}
	return most
}

// incastMain is the process.
func incastMain() {
	var c incast
	var r incastResult
	err := json.Unmarshal([]byte(os.Getenv(incastVariable)), &c)
	if err == nil {
		r.Gbit, err = c.write()
	}
	if err != nil {
		r.Err = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(&r)
}

// sender is one who writes.
type sender struct {
	qp      *verbs.QP
	cq      *verbs.CQ
	from    verbs.SGE
	to      uint64
	key     ib.RKey
	posted  int
	counted int
}

func (c *incast) write() ([]float64, error) {
	ctx, err := verbs.Open("", verbs.WithSocket(c.Receiver))
	if err != nil {
		return nil, err
	}
	defer ctx.Close()
	target, err := newBuffered(ctx)
	if err != nil {
		return nil, err
	}
	senders := make([]sender, len(c.Devices))
	for i, device := range c.Devices {
		ctx, err := verbs.Open(device, verbs.WithSocket(c.Senders))
		if err != nil {
			return nil, err
		}
		defer ctx.Close()
		if err := senders[i].connect(ctx, target); err != nil {
			return nil, err
		}
	}
	from := time.Now().Add(c.Length / 5)
	end := from.Add(c.Length)
	var wc [16]verbs.WC
	for now := time.Now(); now.Before(end); now = time.Now() {
		found := 0
		for i := range senders {
			s := &senders[i]
			n, err := s.cq.Poll(wc[:])
			if err != nil {
				return nil, err
			}
			found += n
			for k := range wc[:n] {
				if wc[k].Status != ib.WCSuccess {
					return nil, fmt.Errorf("sender %d: %v", i, wc[k].Status)
				}
				s.posted--
				if now.After(from) {
					s.counted++
				}
			}
			for ; s.posted < incastDepth; s.posted++ {
				if err := s.qp.PostSend(verbs.SendWR{Opcode: ib.WRRDMAWrite, RemoteAddr: s.to, RKey: s.key, SGList: []verbs.SGE{s.from}}); err != nil {
					return nil, err
				}
			}
		}
		if found == 0 {
			runtime.Gosched()
			time.Sleep(20 * time.Microsecond) // the devices need the processors
		}
	}
	gbit := make([]float64, len(senders))
	for i := range senders {
		gbit[i] = float64(senders[i].counted) * incastSize * 8 / c.Length.Seconds() / 1e9
	}
	return gbit, nil
}

// buffered is a side: a context with memory.
type buffered struct {
	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	gid verbs.GIDEntry
}

func newBuffered(ctx *verbs.Context) (b *buffered, err error) {
	b = &buffered{ctx: ctx}
	if b.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if b.cq, err = ctx.CreateCQ(256); err != nil {
		return nil, err
	}
	memory, err := b.pd.AllocBuffer(incastSize)
	if err != nil {
		return nil, err
	}
	if b.mr, err = b.pd.RegMR(memory.Bytes(), ib.AccessLocalWrite|ib.AccessRemoteWrite); err != nil {
		return nil, err
	}
	b.gid, err = ctx.QueryGID(1, 0)
	return b, err
}

func (b *buffered) queuePair() (*verbs.QP, verbs.Endpoint, error) {
	qp, err := b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 2 * incastDepth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return nil, verbs.Endpoint{}, err
	}
	return qp, verbs.Endpoint{QPN: qp.QPN(), PSN: verbs.RandomPSN(), GID: b.gid.GID}, nil
}

func (s *sender) connect(ctx *verbs.Context, target *buffered) error {
	own, err := newBuffered(ctx)
	if err != nil {
		return err
	}
	qp, here, err := own.queuePair()
	if err != nil {
		return err
	}
	peer, there, err := target.queuePair()
	if err != nil {
		return err
	}
	if err := peer.ConnectRC(there, here, verbs.RCAttr{}); err != nil {
		return err
	}
	s.qp, s.cq, s.from, s.to, s.key = qp, own.cq, own.mr.SGE(0, incastSize), target.mr.Addr(), target.mr.RKey()
	return qp.ConnectRC(here, there, verbs.RCAttr{})
}
