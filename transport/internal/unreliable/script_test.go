package unreliable_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/uc"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

// A script is a conversation with an engine of UC or UD in virtual time, from outside: requests are posted and packets
// delivered, and what it sends, completes and reports is compared, line by line.
//
//	s := newUC(t)
//	s.post(send(2000))
//	s.sends("UC_SEND_FIRST 100 1024", "UC_SEND_LAST 101 976")
//	s.completes("send 1 SUCCESS")
//
// What is left over at the end fails the test.
type script struct {
	t        testing.TB
	e        transport.Engine
	qp       *fakeQP
	now      clock.Time
	burst    *wire.Burst
	stuck    bool // the port takes nothing
	counters transport.Counters
	table    *dma.Table
	pd       dma.Domain
	raw      []byte // canary, memory, canary
	memory   []byte
	mr       *dma.MR
	attr     ib.QPAttr
	sent     []string
}

const (
	base      = 0x10000
	buffers   = base + 1<<15 // where receives are
	qkey      = 0x1234567
	localQPN  = ib.QPN(0x1111)
	peerQPN   = ib.QPN(0x2222)
	activeMTU = 1024
	canary    = 64 // bytes on both sides of the memory
)

var path = &wire.Path{Source: v4(1), Dest: v4(2), SourcePort: 0xc123, HopLimit: 64}

func v4(n byte) ib.GID { return ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: n} }

func newScript(t testing.TB, shared bool, engine func(s *script, c uc.Config) transport.Engine) *script {
	t.Helper()
	s := &script{t: t, raw: bytes.Repeat([]byte{0xc5}, canary+1<<16+canary), burst: wire.NewBurst(64)}
	s.memory = s.raw[canary : len(s.raw)-canary]
	for i := range s.memory {
		s.memory[i] = byte(i * 7)
	}
	s.qp = &fakeQP{t: t}
	random := uint64(1)
	s.table = dma.NewTable(16, func() uint64 { random = random*6364136223846793005 + 1; return random >> 7 })
	s.mr = &dma.MR{Domain: &s.pd, Region: dma.NewEmbedded(s.raw), Offset: canary, Base: base, Length: uint64(len(s.memory)),
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite}
	if err := s.table.Insert(s.mr); err != nil {
		t.Fatal(err)
	}
	s.e = engine(s, uc.Config{
		QPN: localQPN, Cap: ib.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
		Domain: &s.pd, Table: s.table, QP: s.qp, Counters: &s.counters, MaxMessage: 1 << 20, SharedRecv: shared,
	})
	s.attr = ib.QPAttr{PathMTU: ib.MTU1024, SQPSN: 100, RQPSN: 500, DestQPN: peerQPN, QKey: qkey, AccessFlags: ib.AccessRemoteWrite}
	s.modify(ib.StateInit)
	s.e.Modify(s.now, s.as(ib.StateRTR), ib.QPAttrState|ib.QPAttrRQPSN|ib.QPAttrAV, path)
	s.modify(ib.StateRTS)
	t.Cleanup(func() {
		if !t.Failed() {
			s.sends()
			s.completes()
		}
		edge := s.raw[len(s.raw)-canary:]
		if !bytes.Equal(s.raw[:canary], edge) || edge[0] != 0xc5 || edge[canary-1] != 0xc5 {
			t.Error("memory beside the region was written")
		}
	})
	return s
}

func newUC(t testing.TB) *script {
	return newScript(t, false, func(_ *script, c uc.Config) transport.Engine { return uc.New(c) })
}

func newSharedUC(t testing.TB) *script {
	return newScript(t, true, func(_ *script, c uc.Config) transport.Engine { return uc.New(c) })
}

func newUD(t testing.TB) *script {
	return newScript(t, false, func(_ *script, c uc.Config) transport.Engine {
		return ud.New(ud.Config{Common: c, ActiveMTU: func() int { return activeMTU }})
	})
}

// both runs a script with an engine of each service.
func both(t *testing.T, f func(s *script)) {
	t.Run("UC", func(t *testing.T) { f(newUC(t)) })
	t.Run("UD", func(t *testing.T) { f(newUD(t)) })
}

func (s *script) as(state ib.QPState) *ib.QPAttr {
	s.attr.State = state
	return &s.attr
}

func (s *script) modify(state ib.QPState) {
	s.e.Modify(s.now, s.as(state), ib.QPAttrState, nil)
}

// send is a SEND of n bytes from the beginning of memory.
func send(n int) transport.Request {
	return transport.Request{
		Opcode: ib.WRSend, Flags: ib.SendSignaled, Length: uint64(n), SGE: []ib.SGE{{Addr: base, Length: uint32(n)}},
		Datagram: transport.Datagram{Path: path, QPN: peerQPN, QKey: qkey},
	}
}

func (s *script) post(requests ...transport.Request) {
	for _, r := range requests {
		r.Index = s.qp.posted
		r.WRID = uint64(r.Index) + 1
		for i := range r.SGE {
			if r.SGE[i].LKey == 0 {
				r.SGE[i].LKey = s.mr.LKey
			}
		}
		s.qp.posted++
		s.qp.sends = append(s.qp.sends, r)
	}
}

// postRecv posts receives of one entry each; their wr_ids count from 1001.
func (s *script) postRecv(lengths ...uint32) {
	for _, n := range lengths {
		i := s.qp.postedRecvs
		s.qp.postedRecvs++
		s.qp.recvs = append(s.qp.recvs, transport.Receive{Index: i, WRID: 1001 + uint64(i), Length: uint64(n),
			SGE: []ib.SGE{{Addr: buffers, Length: n, LKey: s.mr.LKey}}})
	}
}

// run turns the engine until it has nothing to do at this time.
func (s *script) run() {
	s.t.Helper()
	for i := 0; ; i++ {
		if i > 1000 {
			s.t.Fatal("the engine never has enough")
		}
		_, more := s.e.Transmit(s.now, s.burst, 1<<20)
		if !s.stuck {
			s.leave()
		}
		if !more && s.e.Deadline() > s.now {
			return
		}
		s.e.Expire(s.now)
	}
}

// leave has the port take what is in the burst.
func (s *script) leave() {
	frames := s.burst.Frames()
	for i := range frames {
		f := &frames[i]
		s.sent = append(s.sent, fmt.Sprintf("%v %d %d", f.BTH().Opcode(), f.BTH().PSN(), f.PayloadLen()))
		if f.BTH().AckReq() || f.BTH().DestQP() != peerQPN || f.QPN != localQPN || f.Path != path {
			s.t.Errorf("%v: AckReq %v to %v on the way of %v", f.BTH().Opcode(), f.BTH().AckReq(), f.BTH().DestQP(), f.Path)
		}
	}
	s.burst.Consume(len(frames))
}

func (s *script) sends(want ...string) {
	s.t.Helper()
	s.run()
	if !slices.Equal(s.sent, want) {
		s.t.Fatalf("sent %q, want %q", s.sent, want)
	}
	s.sent = nil
}

func (s *script) completes(want ...string) {
	s.t.Helper()
	s.run()
	if !slices.Equal(s.qp.done, want) {
		s.t.Fatalf("completed %q, want %q", s.qp.done, want)
	}
	s.qp.done = nil
}

func (s *script) inState(want ib.QPState) {
	s.t.Helper()
	var a ib.QPAttr
	s.e.Query(&a)
	if a.State != want {
		s.t.Fatalf("state %v, want %v", a.State, want)
	}
}

// packet is one from the peer.
type packet struct {
	op      wire.Opcode
	psn     ib.PSN
	n       int // bytes of payload, each of them fill
	fill    byte
	va      uint64 // of a WRITE, with the region's key
	size    int    // of the whole WRITE
	flip    ib.RKey
	badPad  bool
	qkey    ib.QKey
	v6      bool
	service bool // solicited
}

func (s *script) packet(p packet) *wire.Packet {
	made := new(wire.Packet)
	f := wire.NewBurst(1).Next()
	h := f.SetHeader(p.op)
	f.BTH().SetPSN(p.psn)
	f.BTH().SetPadCount(uint8(-p.n & 3))
	if p.badPad {
		f.BTH().SetPadCount(uint8(-p.n&3) ^ 1)
	}
	f.BTH().SetSolicited(p.service)
	if r := wire.FindRETH(h); r != nil {
		r.SetVA(p.va)
		r.SetLength(uint32(p.size))
		r.SetRKey(s.mr.RKey ^ p.flip)
	}
	if d := wire.FindDETH(h); d != nil {
		d.SetQKey(qkey ^ p.qkey)
		d.SetSourceQP(peerQPN)
	}
	if i := wire.FindImmDt(h); i != nil {
		i.SetData(77)
	}
	made.Opcode, made.Header = p.op, slices.Clone(f.Header())
	made.Source, made.Dest, made.TrafficClass, made.HopLimit = v4(2), v4(1), 0x28, 61
	if p.v6 {
		made.Source, made.Dest = ib.GID{0x20, 1, 15: 2}, ib.GID{0x20, 1, 15: 1}
	}
	b := make([]byte, p.n)
	for i := range b {
		b[i] = p.fill
	}
	made.SetPayload(b)
	return made
}

func (s *script) deliver(packets ...packet) {
	for _, p := range packets {
		s.e.Receive(s.now, s.packet(p))
	}
}

// holds says what n bytes of memory from an address on are.
func (s *script) holds(addr uint64, n int, want byte) {
	s.t.Helper()
	for i, b := range s.memory[addr-base:][:n] {
		if b != want {
			s.t.Fatalf("byte %d at %#x is %#x, want %#x", i, addr, b, want)
		}
	}
}

// fakeQP is a queue pair on slices. It holds the engine to completing every request once and in order.
type fakeQP struct {
	t                          testing.TB
	sends                      []transport.Request
	recvs                      []transport.Receive
	posted, postedRecvs        uint32
	ended, endedRecvs          uint32
	malformed, badRecv, broken bool // what the next fetch says
	done                       []string
	ops                        []ib.WCOpcode // of sends
	states                     []ib.QPState
	events                     []ib.EventType
	last                       transport.Completion
	silent                     bool // record nothing, for tests that count allocations
}

func (q *fakeQP) FetchSend(r *transport.Request) transport.Fetched {
	if len(q.sends) == 0 {
		return transport.Empty
	}
	from := &q.sends[0]
	list, data := append(r.SGE[:0], from.SGE...), append(r.Inline.B[:0], from.Inline.B...)
	*r = *from
	r.SGE, r.Inline.B = list, data
	q.sends = q.sends[1:]
	if q.malformed {
		q.malformed = false
		return transport.Malformed
	}
	return transport.Ready
}

func (q *fakeQP) FetchRecv(r *transport.Receive) transport.Fetched {
	switch {
	case q.broken:
		return transport.Broken
	case len(q.recvs) == 0:
		return transport.Empty
	}
	from := &q.recvs[0]
	list := append(r.SGE[:0], from.SGE...)
	*r = *from
	r.SGE = list
	q.recvs = q.recvs[1:]
	if q.badRecv {
		q.badRecv = false
		return transport.Malformed
	}
	return transport.Ready
}

func (q *fakeQP) CompleteSend(r *transport.Request, c *transport.Completion) {
	if r.Index != q.ended {
		q.t.Errorf("send %d completed, but it is the turn of %d", r.Index, q.ended)
	}
	q.ended++
	if !q.silent {
		q.done = append(q.done, fmt.Sprintf("send %d %s", r.WRID, c.Status.Name()[len("IBV_WC_"):]))
		q.ops = append(q.ops, c.Opcode)
	}
}

func (q *fakeQP) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if r.Index != q.endedRecvs {
		q.t.Errorf("receive %d completed, but it is the turn of %d", r.Index, q.endedRecvs)
	}
	q.endedRecvs++
	q.last = *c
	if !q.silent {
		q.done = append(q.done, fmt.Sprintf("recv %d %s %d", r.WRID, c.Status.Name()[len("IBV_WC_"):], c.ByteLen))
	}
}

func (q *fakeQP) SetState(s ib.QPState) { q.states = append(q.states, s) }
func (q *fakeQP) Event(e ib.EventType)  { q.events = append(q.events, e) }
