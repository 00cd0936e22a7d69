package rc_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"github.com/softnic/softnicd/wire"
)

// FuzzXRC lets a hostile peer loose on an XRC target that serves two processes (IBA A14). The input is read as steps of
// eight bytes. Whatever comes: a packet that names a queue of one process leaves the other's memory, counter and window
// alone; the answer of a READ holds the bytes of the process that was named; a receive ends once, with the process that
// posted it; and nobody writes outside of the regions.
func FuzzXRC(f *testing.F) {
	step := func(action byte, op wire.Opcode, psn, va, length, n, flags byte) []byte {
		return []byte{action, byte(op), psn, va, length, n, flags, 0}
	}
	join := func(steps ...[]byte) []byte { return bytes.Join(steps, nil) }
	const a, b, nobody = 0, 1, 2
	f.Add(join(step(a, wire.RCSendOnly, 0, 0, 1, 1, 1), step(b, wire.RCSendOnly, 0, 0, 1, 1, 1), step(8, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(a, wire.RCWriteFirst, 0, 0, 3, 2, 1), step(a, wire.RCWriteLast, 0, 0, 0, 5, 1), step(b, wire.RCReadRequest, 0, 0, 5, 0, 0), step(8, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(b, wire.RCFetchAdd, 0, 0, 1, 0, 1), step(a, wire.RCFetchAdd, 0xff, 0, 1, 0, 1), step(a, wire.RCFetchAdd, 0, 0, 0, 0, 8), step(8, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(a, wire.RCSendFirst, 0, 0, 0, 2, 0), step(b, wire.RCSendLast, 0, 0, 0, 1, 0)))
	f.Add(join(step(a, wire.RCSendFirst, 0, 0, 0, 2, 0), step(9, 0, 0, 0, 0, 0, 0), step(a, wire.RCSendLast, 0, 0, 0, 1, 0)))
	f.Add(join(step(a, wire.RCReadRequest, 0, 0, 5, 0, 0), step(b, wire.RCWriteOnly, 0, 4, 1, 1, 0), step(b, wire.RCReadRequest, 0xfe, 0, 3, 0, 0), step(8, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(a, wire.RCSendOnlyInv, 0, 0, 0, 1, 0), step(b, wire.RCSendOnlyInv, 0, 0, 0, 1, 8)))
	f.Add(join(step(nobody, wire.RCWriteOnly, 0, 0, 0, 0, 1), step(11, 0, 0, 0, 0, 0, 0)))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 8*200 {
			return
		}
		x := newXRCFuzz(t)
		for ; len(in) >= 8; in = in[8:] {
			switch in[0] % 16 {
			case 8:
				x.transmit(1 << 20)
			case 9:
				x.gone[in[1]%2] = !x.gone[in[1]%2]
			case 10:
				x.transmit(int(in[1]))
			case 11:
				x.post(x.processes[in[1]%2])
			case 12:
				x.e.Faulted(0, 1<<63|uint64(x.expected().Add(-uint32(in[1]))))
			case 13:
				if in[1] == 7 {
					_ = x.table.Remove(x.processes[in[2]%2].mr) // gone already, perhaps
				}
			default:
				x.deliver(in)
			}
		}
		x.finish()
	})
}

// xrcFuzz is an XRC target and the two processes that it serves. It is the domain that the engine asks for queues, and the
// queue pair.
type xrcFuzz struct {
	t         *testing.T
	e         *rc.Engine
	attr      ib.QPAttr
	table     *dma.Table
	burst     *wire.Burst
	counters  transport.Counters
	processes [2]*xrcProcess
	gone      [2]bool // the queue was destroyed
	selected  *xrcProcess
	inHand    *xrcProcess // whose receive the engine has
	state     ib.QPState
	asked     map[ib.PSN]*xrcProcess // by the PSNs of a READ's responses
	taken     uint64
	ended     uint64
}

// xrcProcess is a process with a shared receive queue. Every byte that it owns, and that a peer gives it, has its mark in
// the upper four bits.
type xrcProcess struct {
	srqn    uint32
	mark    byte
	domain  dma.Domain
	raw     []byte // canary, memory, canary
	word    []byte // canary, a counter, canary
	mr      *dma.MR
	counter *dma.MR
	window  ib.RKey
	posted  []transport.Receive
	lkey    ib.LKey
}

const (
	xrcSize   = 4 * mtu // of each process's memory; receives are in its second half
	xrcCanary = 64
)

func newXRCFuzz(t *testing.T) *xrcFuzz {
	x := &xrcFuzz{t: t, burst: wire.NewBurst(64), asked: make(map[ib.PSN]*xrcProcess)}
	seed := uint64(1)
	x.table = dma.NewTable(64, func() uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed ^ seed>>29 })
	insert := func(mr *dma.MR) *dma.MR {
		if err := x.table.Insert(mr); err != nil {
			t.Fatal(err)
		}
		return mr
	}
	for i := range x.processes {
		p := &xrcProcess{srqn: 5 + uint32(i), mark: 0xa0 + 0x10*byte(i)}
		p.raw = bytes.Repeat([]byte{p.mark}, xrcCanary+xrcSize+xrcCanary)
		p.word = make([]byte, xrcCanary+8+xrcCanary)
		p.mr = insert(&dma.MR{Domain: &p.domain, Region: dma.NewEmbedded(p.raw), Offset: xrcCanary, Base: memBase, Length: xrcSize / 2, Access: allRights})
		p.lkey = insert(&dma.MR{Domain: &p.domain, Region: dma.NewEmbedded(p.raw), Offset: xrcCanary, Base: memBase, Length: xrcSize, Access: ib.AccessLocalWrite}).LKey
		p.counter = insert(&dma.MR{Domain: &p.domain, Region: dma.NewEmbedded(p.word), Offset: xrcCanary, Length: 8, Access: ib.AccessRemoteAtomic | ib.AccessLocalWrite})
		w := &dma.Window{Domain: &p.domain, Type: ib.MWType2}
		if err := x.table.InsertWindow(w); err != nil {
			t.Fatal(err)
		}
		p.window = w.RKey().Inc()
		b := dma.Bind{Key: p.window, LKey: p.mr.LKey, Addr: memBase, Length: mtu, Access: ib.AccessRemoteRead | ib.AccessRemoteWrite}
		if v := x.table.Bind(&p.domain, localQPN, &b); v != dma.OK {
			t.Fatal(v)
		}
		x.processes[i] = p
		x.post(p)
		x.post(p)
	}
	x.e = rc.New(rc.Config{
		QPN: localQPN, Service: wire.ServiceXRC, Target: x, Cap: ib.QPCap{MaxRecvSGE: 1}, Table: x.table, QP: x,
		Counters: &x.counters, Limits: rc.Limits{MaxMessage: 1 << 30},
	})
	x.attr = ib.QPAttr{
		State: ib.StateRTR, PathMTU: ib.MTU1024, DestQPN: peerQPN, RQPSN: 0xfffff0, AccessFlags: allRights, MaxDestRDAtomic: 3, MinRNRTimer: rnrTimer,
	}
	x.state = ib.StateRTR
	x.e.Modify(0, &x.attr, ib.QPAttrState|ib.QPAttrRQPSN|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrMaxDestRDAtomic, &wire.Path{})
	return x
}

// post posts a receive of a little more than a packet.
func (x *xrcFuzz) post(p *xrcProcess) {
	const n = mtu + 100
	p.posted = append(p.posted, transport.Receive{SGE: []ib.SGE{{Addr: memBase + xrcSize/2, Length: n, LKey: p.lkey}}, Length: n})
}

func (x *xrcFuzz) expected() ib.PSN {
	var a ib.QPAttr
	x.e.Query(&a)
	return a.RQPSN
}

// Select implements rc.Target.
func (x *xrcFuzz) Select(srqn uint32) *dma.Domain {
	for i, p := range x.processes {
		if p.srqn == srqn && !x.gone[i] {
			x.selected = p
			return &p.domain
		}
	}
	return nil
}

func (x *xrcFuzz) FetchSend(*transport.Request) transport.Fetched { return transport.Empty }
func (x *xrcFuzz) CompleteSend(*transport.Request, *transport.Completion) {
	x.t.Error("a target completes a send")
}
func (x *xrcFuzz) SetState(s ib.QPState) { x.state = s }
func (x *xrcFuzz) Event(ib.EventType)    {}

func (x *xrcFuzz) FetchRecv(r *transport.Receive) transport.Fetched {
	p := x.selected
	if x.state == ib.StateErr || p == nil || len(p.posted) == 0 {
		return transport.Empty
	}
	if x.inHand != nil {
		x.t.Error("a second receive is taken while one is in hand")
	}
	list := append(r.SGE[:0], p.posted[0].SGE...)
	*r = p.posted[0]
	r.SGE, r.WRID = list, x.taken
	x.taken++
	x.inHand, p.posted = p, p.posted[1:]
	return transport.Ready
}

func (x *xrcFuzz) CompleteRecv(r *transport.Receive, _ *transport.Completion) {
	if x.inHand == nil || x.inHand != x.selected || r.WRID != x.ended {
		x.t.Errorf("receive %d ends, after %d that have: in hand is one of %p, selected is %p", r.WRID, x.ended, x.inHand, x.selected)
	}
	x.inHand = nil
	x.ended++
}

// deliver makes a request of a step: any opcode of the service, a PSN near the expected one, addresses and lengths at edges,
// naming a queue and a key, which need not be of the same process.
func (x *xrcFuzz) deliver(in []byte) {
	var named *xrcProcess
	srqn := uint32(7)
	if i := in[0] % 3; i < 2 {
		named = x.processes[i]
		srqn = named.srqn
	}
	owner := x.processes[in[6]>>3&1^in[0]%2]
	before := x.expected()
	r := request{
		op:    0xa0 | wire.Opcode(in[1]&31),
		psn:   before.Add(uint32(int32(int8(in[2])))),
		va:    []uint64{memBase, memBase + xrcSize/2 - 8, memBase - 4, ^uint64(0) - 1023, memBase + mtu, memBase + 4}[in[3]%6],
		size:  []uint32{0, 8, mtu, 2 * mtu, mtu + 1, mtu + 4, 1<<31 + 1, 1<<32 - 1}[in[4]%8],
		n:     []int{0, 8, mtu, 4, 1, mtu + 4}[in[5]%6],
		quiet: in[6]&1 == 0,
		key:   owner.mr.RKey,
		inv:   owner.window + ib.RKey(in[7]&1),
		level: ib.FlushLevel(in[7] >> 1 & 3), places: ib.FlushPlacement(in[7] >> 3 & 3),
	}
	if in[6]&4 != 0 {
		r.pad = 1
	}
	if in[6]&2 != 0 {
		r.key = owner.window
	}
	switch op := r.op & 31; op {
	case wire.RCFetchAdd, wire.RCCompareSwap:
		// Only additions of one, so that the words count what was executed.
		r.op, r.swap, r.key, r.va = 0xa0|wire.RCFetchAdd, 1, owner.counter.RKey, uint64(in[3]%2)*uint64(in[3])
	}
	p := r.build()
	if h := wire.FindXRCETH(p.Header); h != nil {
		h.SetSRQN(srqn)
	}
	mark := byte(0xc0)
	if named != nil {
		mark = named.mark
	}
	if in[6]&16 != 0 {
		p.Local, p.Payload, p.Len = true, []wire.Piece{{Mem: &broken{1 << 20}, Len: r.n}}, r.n
	} else {
		p.SetPayload(bytes.Repeat([]byte{mark | in[7]&15}, r.n))
	}

	var raw, word [2][]byte
	for i, q := range x.processes {
		raw[i], word[i] = bytes.Clone(q.raw), bytes.Clone(q.word)
	}
	windows := x.windows()
	x.e.Receive(0, p)
	for i, q := range x.processes {
		if q != named && (!bytes.Equal(raw[i], q.raw) || !bytes.Equal(word[i], q.word) || windows[i] != x.windows()[i]) {
			x.t.Fatalf("%v that names queue %d changed what process %d has", r.op, srqn, q.srqn)
		}
	}
	if r.op&31 == wire.RCReadRequest && r.psn == before && x.state == ib.StateRTR {
		for psn := before; psn != x.expected() && len(x.asked) < 1<<16; psn = psn.Next() {
			x.asked[psn] = named
		}
	}
}

// windows reports whose windows are bound.
func (x *xrcFuzz) windows() (bound [2]bool) {
	for i, p := range x.processes {
		bound[i] = x.table.Usable(&p.domain, localQPN, p.window, ib.AccessRemoteRead) == dma.OK
	}
	return bound
}

// transmit looks at the answers.
func (x *xrcFuzz) transmit(budget int) {
	expected, state := x.expected(), x.state
	x.e.Transmit(0, x.burst, budget)
	frames := x.burst.Frames()
	for i := range frames {
		f := &frames[i]
		op, psn := f.BTH().Opcode(), f.BTH().PSN()
		if op.Service() != wire.ServiceXRC || !op.IsResponse() || f.BTH().DestQP() != peerQPN {
			x.t.Fatalf("sent %v to %v", op, f.BTH().DestQP())
		}
		if state == ib.StateRTR && psn.After(expected) {
			x.t.Errorf("%v about %v, but %v is expected", op, psn, expected)
		}
		payload := make([]byte, f.PayloadLen())
		if err := dma.ReadPieces(payload, f.Payload()); err != nil {
			x.e.Faulted(0, f.Cookie)
			continue
		}
		for _, b := range payload {
			if p := x.asked[psn]; p == nil || b&0xf0 != p.mark {
				x.t.Fatalf("%v %v holds %#x, asked of %+v", op, psn, b, p)
			}
		}
	}
	x.burst.Consume(len(frames))
}

// finish ends the target and counts what it has done.
func (x *xrcFuzz) finish() {
	x.attr.State, x.state = ib.StateErr, ib.StateErr
	x.e.Modify(0, &x.attr, ib.QPAttrState, nil)
	for range 4 {
		x.transmit(1 << 20)
	}
	if x.ended != x.taken {
		x.t.Errorf("%d receives were taken, %d ended", x.taken, x.ended)
	}
	var executed uint64
	for _, p := range x.processes {
		executed += binary.NativeEndian.Uint64(p.word[xrcCanary:])
		for i := range xrcCanary {
			if p.raw[i] != p.mark || p.raw[xrcCanary+xrcSize+i] != p.mark || p.word[i] != 0 || p.word[xrcCanary+8+i] != 0 {
				x.t.Fatal("memory beside a region was written")
			}
		}
	}
	if executed != x.counters.RxAtomicRequests {
		x.t.Errorf("%d atomics were executed, the words hold %d", x.counters.RxAtomicRequests, executed)
	}
}
