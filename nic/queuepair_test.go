package nic

import (
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// newServed returns a queue pair that is connected to nothing, as its engine sees it, and as its application does.
func newServed(t *testing.T, edit func(*QPConfig)) (*served, *endpoint) {
	_, a, _ := newPair(t, nil)
	x := a.newQP(t, edit)
	return (*served)(x.qp), x
}

func newRequest() *transport.Request {
	r := &transport.Request{SGE: make([]ib.SGE, 0, testCap.MaxSendSGE)}
	r.Inline.B = make([]byte, 0, testCap.MaxInlineData)
	return r
}

func TestFetchSend(t *testing.T) {
	q, x := newServed(t, nil)
	r := newRequest()
	if got := q.FetchSend(r); got != transport.Empty {
		t.Fatalf("from an empty queue: %v", got)
	}
	x.postSend(abi.SendWQE{WRID: 5, Opcode: uint8(ib.WRAtomicCmpAndSwp), Flags: uint8(ib.SendFence), RemoteAddr: 1, RKey: 2,
		Operand: 3, Compare: 4}, x.sge(8, 8))
	x.block.PutSendInline(x.sends, &abi.SendWQE{Opcode: uint8(ib.WRSendWithImm), Imm: 9}, []byte("hello "), []byte("world"))
	x.sends++
	x.block.PublishSend(x.sends)
	if got := q.FetchSend(r); got != transport.Ready || r.Index != 0 || r.WRID != 5 || r.Opcode != ib.WRAtomicCmpAndSwp ||
		r.Flags != ib.SendFence || r.Remote != 1 || r.RKey != 2 || r.Swap != 3 || r.Compare != 4 || r.Length != 8 ||
		r.IsInline || !slices.Equal(r.SGE, []ib.SGE{x.sge(8, 8)}) {
		t.Errorf("%v %+v", got, r)
	}
	if got := q.FetchSend(r); got != transport.Ready || r.Index != 1 || !r.IsInline || string(r.Inline.B) != "hello world" ||
		r.Length != 11 || r.Imm != 9 || len(r.SGE) != 0 {
		t.Errorf("%v %+v", got, r)
	}
	if got := q.FetchSend(r); got != transport.Empty {
		t.Errorf("from a queue that was emptied: %v", got)
	}
}

func TestFetchSendSignalsAll(t *testing.T) {
	q, x := newServed(t, func(c *QPConfig) { c.SigAll = true })
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend)})
	if r := newRequest(); q.FetchSend(r) != transport.Ready || r.Flags != ib.SendSignaled || r.Length != 0 {
		t.Errorf("%+v", r)
	}
}

// What makes no sense is offered once, as malformed; the queue goes on behind it.
func TestFetchSendMalformed(t *testing.T) {
	q, x := newServed(t, nil)
	four := []ib.SGE{{Length: 1}, {Length: 1}, {Length: 1}, {Length: 1}}
	for name, tt := range map[string]struct {
		w    abi.SendWQE
		list []ib.SGE
		raw  bool // write Count as it is
	}{
		"opcode 10":          {w: abi.SendWQE{Opcode: 10}},
		"opcode 255":         {w: abi.SendWQE{Opcode: 255}},
		"flag 0x80":          {w: abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: 0x80}},
		"2^31+1 bytes":       {w: abi.SendWQE{Opcode: uint8(ib.WRSend)}, list: []ib.SGE{{Length: 1 << 31}, {Length: 1}}},
		"2^34 bytes":         {w: abi.SendWQE{Opcode: uint8(ib.WRSend)}, list: []ib.SGE{{Length: 1<<32 - 1}, {Length: 1<<32 - 1}, {Length: 1<<32 - 1}, {Length: 1<<32 - 1}}},
		"five entries":       {w: abi.SendWQE{Opcode: uint8(ib.WRSend)}, list: append(four, ib.SGE{Length: 1})},
		"inline READ":        {w: abi.SendWQE{Opcode: uint8(ib.WRRDMARead), Flags: uint8(ib.SendInline)}, raw: true},
		"65535 bytes inline": {w: abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendInline), Count: 65535}, raw: true},
		"129 bytes inline":   {w: abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendInline), Count: 129}, raw: true},
	} {
		if tt.raw {
			// PutSend sets count and clears the flag; PutSendInline with the bytes at hand writes what is wanted as far as
			// the slot goes.
			putRaw(x, &tt.w)
		} else {
			x.postSend(tt.w, tt.list...)
		}
		if r := newRequest(); q.FetchSend(r) != transport.Malformed || r.Index != x.sends-1 {
			t.Errorf("%s: taken for good: %+v", name, r)
		}
		x.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend)}, four...)
		if r := newRequest(); q.FetchSend(r) != transport.Ready || r.Length != 4 {
			t.Errorf("after %s: %+v", name, r)
		}
	}
	if x.block.State() != ib.StateReset || q.doomed {
		t.Error("a malformed request ended the queue pair before its engine said so")
	}
}

// putRaw writes a request with flags and count as given, as only a hostile application does.
func putRaw(x *endpoint, w *abi.SendWQE) {
	l := x.block.Layout()
	at := abi.QPHeaderSize + (x.sends%l.SendDepth)*l.SendStride
	x.raw[at+8], x.raw[at+9], x.raw[at+10], x.raw[at+11] = w.Opcode, w.Flags, byte(w.Count), byte(w.Count>>8)
	x.sends++
	x.block.PublishSend(x.sends)
}

func TestFetchRecv(t *testing.T) {
	q, x := newServed(t, nil)
	r := &transport.Receive{SGE: make([]ib.SGE, 0, testCap.MaxRecvSGE)}
	if got := q.FetchRecv(r); got != transport.Empty {
		t.Fatalf("from an empty queue: %v", got)
	}
	x.postRecv(3, x.sge(0, 10), x.sge(20, 30))
	if got := q.FetchRecv(r); got != transport.Ready || r.WRID != 3 || r.Length != 40 || len(r.SGE) != 2 || x.block.RecvTaken() != 1 {
		t.Errorf("%v %+v", got, r)
	}
	x.postRecv(4, ib.SGE{}, ib.SGE{}, ib.SGE{}, ib.SGE{}, ib.SGE{})
	if got := q.FetchRecv(r); got != transport.Malformed || r.WRID != 4 {
		t.Errorf("five entries: %v %+v", got, r)
	}
	x.postRecv(5, ib.SGE{Length: 1 << 31}, ib.SGE{Length: 1})
	if got := q.FetchRecv(r); got != transport.Malformed {
		t.Errorf("2^31+1 bytes: %v %+v", got, r)
	}
}

// A posted index that cannot be: the queue pair goes to ERR with QP_FATAL, whichever queue lies, and nothing of the ring
// is believed.
func TestPostedIndexLies(t *testing.T) {
	for _, lie := range []uint32{65, 1 << 31, ^uint32(0)} {
		for name, tell := range map[string]func(x, y *endpoint){
			"send":    func(x, _ *endpoint) { x.block.PublishSend(lie) },
			"receive": func(x, y *endpoint) { x.block.PublishRecv(lie); y.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend)}) },
		} {
			w, a, b := newPair(t, nil)
			x, y := a.newQP(t, nil), b.newQP(t, nil)
			x.connect(t, y)
			y.connect(t, x)
			tell(x, y)
			x.bell.Ring(x.qp.Slot())
			w.run(50 * time.Millisecond)
			if got := x.take(); !slices.Contains(got, event{ib.EventQPFatal, 7}) || len(got) > 2 {
				t.Errorf("%s index %#x: events %v, want one QP_FATAL", name, lie, got)
			}
			if s := x.block.State(); s != ib.StateErr {
				t.Errorf("%s index %#x: state %s", name, lie, s)
			}
			if c := x.poll(t); len(c) != 0 {
				t.Errorf("%s index %#x: completions %+v", name, lie, c)
			}
			// RESET makes it whole again.
			x.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
			y.modify(t, ib.QPAttr{State: ib.StateReset}, ib.QPAttrState)
			x.sends, x.recvs, y.sends, y.recvs = 0, 0, 0, 0
			y.poll(t)
			x.connect(t, y)
			y.connect(t, x)
			y.postRecv(1)
			x.postSend(abi.SendWQE{WRID: 8, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)})
			w.run(time.Second)
			if c := x.poll(t); len(c) != 1 || c[0].Status != 0 {
				t.Errorf("%s index %#x: after RESET: %+v", name, lie, c)
			}
		}
	}
}

// Every queue pair on a CQ that overruns goes to ERR with QP_FATAL, after one CQ_ERR; others are left alone.
func TestOverrun(t *testing.T) {
	w, a, b := newPair(t, nil)
	small, smallReader := a.newCQ(t, 1)
	onSmall := func(c *QPConfig) { c.SendCQ = small }
	x, x2, other := a.newQP(t, onSmall), a.newQP(t, func(c *QPConfig) { c.RecvCQ = small; c.Handle = 8 }), a.newQP(t, nil)
	y, y2, peer := b.newQP(t, nil), b.newQP(t, nil), b.newQP(t, nil)
	for _, p := range [][2]*endpoint{{x, y}, {x2, y2}, {other, peer}} {
		p[0].connect(t, p[1])
		p[1].connect(t, p[0])
	}
	write := abi.SendWQE{Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(b.mr.RKey()), RemoteAddr: 0x10000}
	for i := range 66 {
		if i == 40 {
			w.run(time.Second) // the ring holds 64
		}
		x.postSend(write, x.sge(0, 8))
	}
	w.run(time.Second)
	want := []event{{ib.EventCQErr, 99}, {ib.EventQPFatal, 8}, {ib.EventQPFatal, 7}} // it that noticed is the last
	if got := a.take(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	for e, want := range map[*endpoint]ib.QPState{x: ib.StateErr, x2: ib.StateErr, other: ib.StateRTS} {
		if s := e.block.State(); s != want {
			t.Errorf("state %s, want %s", s, want)
		}
	}
	var c [100]abi.CQE
	if n, _ := smallReader.Poll(c[:]); n != 64 {
		t.Errorf("%d entries are left, want all 64 that fitted", n)
	}
	other.postSend(write, other.sge(0, 8))
	w.run(time.Second)
	if c := other.poll(t); len(c) != 1 || c[0].Status != 0 {
		t.Errorf("another queue pair: %+v", c)
	}
}

// A message whose completion is lost is not acknowledged, though it was another that found the CQ full: a queue pair made on
// a dead CQ, and those of several shards that share it.
func TestOverrunIsNotAcknowledged(t *testing.T) {
	for _, shards := range []int{1, 2} {
		w, h := newLoops(t, shards, nil)
		small, _ := h.newCQ(t, 1)
		for i := range small.Capacity() + 1 {
			if took := small.queue.Post(0, &abi.CQE{}, false); took != (i < small.Capacity()) {
				t.Fatalf("entry %d: %v", i, took)
			}
		}
		if shards > 1 {
			small.overrun.Store(true) // the other shard has noticed, and its word has not come yet
		}
		x, y := h.newQP(t, nil), h.newQP(t, func(c *QPConfig) { c.RecvCQ, c.Handle = small, 8 })
		x.connect(t, y)
		y.connect(t, x)
		y.postRecv(1, y.sge(1<<20, 100))
		x.postSend(sendWQE(2), x.sge(0, 10))
		w.run(time.Millisecond)
		if c := h.poll(t); len(c) != 0 {
			t.Errorf("%d shards: the send ends although nobody heard of it: %+v", shards, c)
		}
		if n := len(slices.DeleteFunc(h.take(), func(e event) bool { return e != event{ib.EventQPFatal, 8} })); n != 1 {
			t.Errorf("%d shards: QP_FATAL %d times", shards, n)
		}
		if s := y.block.State(); s != ib.StateErr {
			t.Errorf("%d shards: state %s", shards, s)
		}
	}
}

func TestServedAllocatesNothing(t *testing.T) {
	q, x := newServed(t, nil)
	r, c := newRequest(), &transport.Completion{}
	r.Flags = ib.SendSignaled
	v := &transport.Receive{SGE: make([]ib.SGE, 0, testCap.MaxRecvSGE)}
	var e [4]abi.CQE
	if n := testing.AllocsPerRun(200, func() {
		x.postSend(abi.SendWQE{Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 8))
		x.postRecv(1)
		if q.FetchSend(r) != transport.Ready || q.FetchRecv(v) != transport.Ready {
			panic("test: nothing fetched")
		}
		q.CompleteSend(r, c)
		q.CompleteRecv(v, c)
		if n, _ := x.cqr.Poll(e[:]); n != 2 {
			panic("test: no completions")
		}
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
