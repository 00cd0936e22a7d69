package nic

import (
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// Each wrong value is refused with a sentence, and nothing has changed.
func TestModifyRefusesValues(t *testing.T) {
	_, a, _ := newPair(t, func(c *Config) { c.Link.MTU = 1500 })
	x := a.newQP(t, nil)
	at := map[ib.QPState]func(){
		ib.StateInit: func() { x.modify(t, initAttr(), initMask) },
		ib.StateRTR: func() {
			r := rtrAttr("10.0.0.2", 5)
			r.PathMTU = ib.MTU1024
			x.modify(t, r, rtrMask)
		},
	}
	for _, tt := range []struct {
		state ib.QPState
		name  string
		edit  func(a *ib.QPAttr) ib.QPAttrMask
		errno syscall.Errno
	}{
		{ib.StateInit, "port 0", func(a *ib.QPAttr) ib.QPAttrMask { a.PortNum = 0; return 0 }, syscall.EINVAL},
		{ib.StateInit, "port 2", func(a *ib.QPAttr) ib.QPAttrMask { a.PortNum = 2; return 0 }, syscall.EINVAL},
		{ib.StateInit, "P_Key index 1", func(a *ib.QPAttr) ib.QPAttrMask { a.PKeyIndex = 1; return 0 }, syscall.EINVAL},
		{ib.StateInit, "0x400", func(a *ib.QPAttr) ib.QPAttrMask { a.AccessFlags = 1 << 10; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "path MTU 0", func(a *ib.QPAttr) ib.QPAttrMask { a.PathMTU = 0; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "path MTU 6", func(a *ib.QPAttr) ib.QPAttrMask { a.PathMTU = 6; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "active MTU is 1024", func(a *ib.QPAttr) ib.QPAttrMask { a.PathMTU = ib.MTU2048; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "max_dest_rd_atomic 129", func(a *ib.QPAttr) ib.QPAttrMask { a.MaxDestRDAtomic = 129; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "min_rnr_timer 32", func(a *ib.QPAttr) ib.QPAttrMask { a.MinRNRTimer = 32; return 0 }, syscall.EINVAL},
		{ib.StateRTR, "multicast", func(a *ib.QPAttr) ib.QPAttrMask { a.AH = av("224.0.0.1", 0); return 0 }, syscall.EINVAL},
		{ib.StateRTR, "path migration", func(*ib.QPAttr) ib.QPAttrMask { return ib.QPAttrAltPath }, syscall.EOPNOTSUPP},
		{ib.StateRTS, "max_rd_atomic 129", func(a *ib.QPAttr) ib.QPAttrMask { a.MaxRDAtomic = 129; return 0 }, syscall.EINVAL},
		{ib.StateRTS, "timeout 32", func(a *ib.QPAttr) ib.QPAttrMask { a.Timeout = 32; return 0 }, syscall.EINVAL},
		{ib.StateRTS, "retry_cnt 8", func(a *ib.QPAttr) ib.QPAttrMask { a.RetryCnt = 8; return 0 }, syscall.EINVAL},
		{ib.StateRTS, "rnr_retry 8", func(a *ib.QPAttr) ib.QPAttrMask { a.RNRRetry = 8; return 0 }, syscall.EINVAL},
		{ib.StateRTS, "path migration state 1", func(a *ib.QPAttr) ib.QPAttrMask { a.PathMigState = 1; return ib.QPAttrPathMigState }, syscall.EINVAL},
		{ib.StateRTS, "current state INIT", func(a *ib.QPAttr) ib.QPAttrMask { a.CurState = ib.StateInit; return ib.QPAttrCurState }, syscall.EINVAL},
		{ib.StateRTS, "current state SQD", func(a *ib.QPAttr) ib.QPAttrMask { a.CurState = ib.StateSQD; return ib.QPAttrCurState }, syscall.EINVAL},
		{ib.StateRTS, "invalid transition", func(a *ib.QPAttr) ib.QPAttrMask { a.State = ib.StateSQE; return 0 }, syscall.EINVAL},
	} {
		x.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
		attr, mask := initAttr(), initMask
		switch tt.state {
		case ib.StateRTR:
			at[ib.StateInit]()
			attr, mask = rtrAttr("10.0.0.2", 5), rtrMask
			attr.PathMTU = ib.MTU1024
		case ib.StateRTS:
			at[ib.StateInit]()
			at[ib.StateRTR]()
			attr, mask = rtsAttr(), rtsMask
		}
		before, _, _ := x.ctx.QueryQP(x.qp)
		bad := attr
		extra := tt.edit(&bad)
		err := x.ctx.ModifyQP(x.qp, &bad, mask|extra)
		if errno(err) != tt.errno || !strings.Contains(err.Error(), tt.name) || !strings.HasPrefix(err.Error(), "modify qp 0x") {
			t.Errorf("%s: error %v", tt.name, err)
		}
		after, _, _ := x.ctx.QueryQP(x.qp)
		if !reflect.DeepEqual(before, after) || x.block.State() != before.State {
			t.Errorf("%s: the refused modification changed\n%+v to\n%+v", tt.name, before, after)
		}
		if err := x.ctx.ModifyQP(x.qp, &attr, mask); err != nil {
			t.Errorf("%s: what is right is refused too: %v", tt.name, err)
		}
	}
}

func TestModifyCurState(t *testing.T) {
	_, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.modify(t, initAttr(), initMask)
	x.modify(t, rtrAttr(y.addr, y.qp.QPN()), rtrMask)
	r := rtsAttr()
	r.CurState = ib.StateRTR
	x.modify(t, r, rtsMask|ib.QPAttrCurState)
	got, capacity, sigAll := x.ctx.QueryQP(x.qp)
	if got.State != ib.StateRTS || got.CurState != ib.StateRTS || got.Timeout != 14 || got.DestQPN != y.qp.QPN() || got.PathMTU != ib.MTU4096 {
		t.Errorf("query: %+v", got)
	}
	if capacity != x.qp.Cap() || sigAll {
		t.Errorf("query: capacities %+v, sig_all %v", capacity, sigAll)
	}
}

// RESET forgets everything: what was posted vanishes, both sides count from 0, and the queue pair can be used again.
func TestResetAndAgain(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	for round := range 3 {
		x.connect(t, y)
		y.connect(t, x)
		y.postRecv(uint64(round), y.sge(0, 100))
		y.postRecv(77, y.sge(0, 100))
		x.postSend(abi.SendWQE{WRID: uint64(round), Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 100))
		w.run(time.Second)
		if c := x.poll(t); len(c) != 1 || c[0].Status != 0 || c[0].WRID != uint64(round) {
			t.Fatalf("round %d: sends %+v", round, c)
		}
		if c := y.poll(t); len(c) != 1 || c[0].Status != 0 || c[0].WRID != uint64(round) {
			t.Fatalf("round %d: receives %+v", round, c)
		}
		for _, e := range []*endpoint{x, y} {
			e.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
			e.sends, e.recvs = 0, 0
			if got, _, _ := e.ctx.QueryQP(e.qp); got.State != ib.StateReset || got.AH != (ib.AHAttr{}) || got.Timeout != 0 {
				t.Errorf("after RESET: %+v", got)
			}
			if e.block.SendDone() != 0 || e.block.SendPosted() != 0 || e.block.RecvTaken() != 0 || e.block.State() != ib.StateReset {
				t.Error("after RESET the ring is not that of a new queue pair")
			}
		}
		w.run(time.Second)
		if c := y.poll(t); len(c) != 0 {
			t.Errorf("RESET made completions: %+v", c)
		}
	}
}

// ERR flushes what is posted on both queues, also what is posted later, in order.
func TestErrFlushes(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	x.postRecv(1, x.sge(0, 8))
	x.postRecv(2, x.sge(0, 8))
	x.modify(t, ib.QPAttr{State: ib.StateErr}, ib.QPAttrState)
	x.postRecv(3)
	x.postSend(abi.SendWQE{WRID: 10, Opcode: uint8(ib.WRSend)})
	w.run(time.Second)
	x.postSend(abi.SendWQE{WRID: 11, Opcode: uint8(ib.WRSend)})
	w.run(time.Second)
	var sends, recvs []uint64
	for _, c := range x.poll(t) {
		if ib.WCStatus(c.Status) != ib.WCWRFlushErr {
			t.Errorf("completion %+v, want a flush", c)
		}
		if c.Queue == abi.QueueSend {
			sends = append(sends, c.WRID)
		} else {
			recvs = append(recvs, c.WRID)
		}
	}
	if !reflect.DeepEqual(sends, []uint64{10, 11}) || !reflect.DeepEqual(recvs, []uint64{1, 2, 3}) {
		t.Errorf("flushed sends %v, receives %v", sends, recvs)
	}
}

// SQD drains, says so, and lets the drained queue pair have another path.
func TestDrainedQueueChangesPath(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	y.postRecv(1, y.sge(0, 1<<20))
	y.postRecv(2, y.sge(0, 1<<20))
	x.postSend(abi.SendWQE{WRID: 1, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 1<<20))
	x.dev().Step(w.now) // some of it is on its way
	sqd := ib.QPAttr{State: ib.StateSQD, EnSQDAsyncNotify: true}
	x.modify(t, sqd, ib.QPAttrState|ib.QPAttrEnSQDAsyncNotify)
	x.postSend(abi.SendWQE{WRID: 2, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 10))
	if got, _, _ := x.ctx.QueryQP(x.qp); !got.SQDraining {
		t.Error("query does not say that the queue drains")
	}
	change := ib.QPAttr{AH: av(y.addr, 0), Timeout: 3}
	change.AH.GRH.TrafficClass = 0x20
	if err := x.ctx.ModifyQP(x.qp, &change, ib.QPAttrAV); errno(err) != syscall.EINVAL {
		t.Errorf("another path while draining: %v, want EINVAL", err)
	}
	w.run(time.Second)
	if got, _, _ := x.ctx.QueryQP(x.qp); got.SQDraining || got.State != ib.StateSQD {
		t.Errorf("query after the drain: %+v", got)
	}
	if e := x.take(); len(e) != 1 || e[0] != (event{ib.EventSQDrained, 7}) {
		t.Errorf("events %v, want SQ_DRAINED", e)
	}
	if c := x.poll(t); len(c) != 1 || c[0].WRID != 1 {
		t.Errorf("completions in SQD: %+v, want the message that was under way", c)
	}
	x.modify(t, change, ib.QPAttrAV|ib.QPAttrTimeout)
	x.modify(t, ib.QPAttr{State: ib.StateRTS}, ib.QPAttrState)
	w.run(time.Second)
	if c := x.poll(t); len(c) != 1 || c[0].WRID != 2 || c[0].Status != 0 {
		t.Errorf("completions after SQD: %+v", c)
	}
	if got, _, _ := x.ctx.QueryQP(x.qp); got.AH.GRH.TrafficClass != 0x20 || got.Timeout != 3 {
		t.Errorf("query: %+v", got)
	}
}

func (e *endpoint) dev() *Device { return e.ctx.dev }
