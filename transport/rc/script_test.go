package rc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// A script is a conversation with one engine in virtual time: requests are posted, packets delivered, and what the
// engine sends and completes is compared, line by line.
//
//	s := newScript(t)
//	s.post(send(3000))
//	s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024), sendLast(102, 952))
//	s.deliver(at(10*us), nak(101, wire.NakSequence))
//	s.expect(at(10*us), sendMiddle(101, 1024), sendLast(102, 952))
//	s.deliver(at(20*us), ack(102))
//	s.completes(success(1))
//
// Everything that is sent and completed has to be expected: what is left over at the end of the test fails it.
type script struct {
	t        testing.TB
	e        *Engine
	qp       *fakeQP
	now      clock.Time
	burst    *wire.Burst
	counters transport.Counters
	table    *dma.Table
	pd       *dma.Domain
	memory   []byte // the one region of this side, at base, with every right
	mr       *dma.MR
	budget   int
	sent     []sentPacket
	seen     int // packets of sent that were expected
	attr     ib.QPAttr
}

// setup is what a test may choose before the engine is made.
type setup struct {
	cfg  Config
	attr ib.QPAttr // as they are after RTS
}

const (
	us = time.Microsecond
	ms = time.Millisecond

	base     = 0x10000 // address of the region
	peerQPN  = ib.QPN(0x2222)
	localQPN = ib.QPN(0x1111)
)

func at(d time.Duration) clock.Time { return clock.Time(d) }

var testPath = &wire.Path{HopLimit: 64, SourcePort: 0xc123}

// newScript makes an engine in RTS: path MTU 1024, first PSN 100 for sending and 500 for receiving, no timer, retry_cnt
// and rnr_retry 7, four READs at a time, a window of 64 packets.
func newScript(t testing.TB, choices ...func(*setup)) *script {
	t.Helper()
	s := &script{t: t, pd: &dma.Domain{}, memory: pattern(0, 1<<17), burst: wire.NewBurst(256), budget: 1 << 30}
	s.qp = &fakeQP{t: t}
	random := uint64(1)
	s.table = dma.NewTable(64, func() uint64 {
		random = random*6364136223846793005 + 1442695040888963407
		return random >> 7
	})
	s.mr = &dma.MR{
		Domain: s.pd, Region: dma.NewEmbedded(s.memory), Base: base, Length: uint64(len(s.memory)),
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic,
	}
	if err := s.table.Insert(s.mr); err != nil {
		t.Fatal(err)
	}
	c := setup{
		cfg: Config{
			QPN:    localQPN,
			Cap:    ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 256},
			Domain: s.pd, Table: s.table, QP: s.qp, Counters: &s.counters,
			Limits: Limits{MaxMessage: 1 << 31, Window: 64, AckEvery: 32},
		},
		attr: ib.QPAttr{
			PathMTU: ib.MTU1024, SQPSN: 100, RQPSN: 500, DestQPN: peerQPN,
			AccessFlags: ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic,
			MaxRDAtomic: 4, MaxDestRDAtomic: 4, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
		},
	}
	for _, choose := range choices {
		choose(&c)
	}
	s.qp.lkey = s.mr.LKey
	s.e = New(c.cfg)
	s.attr = c.attr
	s.modify(ib.StateInit, ib.QPAttrPKeyIndex|ib.QPAttrPort|ib.QPAttrAccessFlags)
	s.modify(ib.StateRTR, ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|
		ib.QPAttrMaxDestRDAtomic|ib.QPAttrMinRNRTimer)
	s.modify(ib.StateRTS, ib.QPAttrTimeout|ib.QPAttrRetryCnt|ib.QPAttrRNRRetry|ib.QPAttrSQPSN|ib.QPAttrMaxRDAtomic)
	s.qp.modify = func(st ib.QPState) { s.modify(st, 0) }
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		s.quiet()
		s.completes()
		s.receives()
	})
	return s
}

// Choices for newScript.

func startPSN(p ib.PSN) func(*setup) { return func(c *setup) { c.attr.SQPSN = p } }

// ackTimeout sets the exponent of the local ACK timeout, and retry_cnt.
func ackTimeout(exp, retries uint8) func(*setup) {
	return func(c *setup) { c.attr.Timeout, c.attr.RetryCnt = exp, retries }
}

func rnrRetry(n uint8) func(*setup)       { return func(c *setup) { c.attr.RNRRetry = n } }
func retryCnt(n uint8) func(*setup)       { return func(c *setup) { c.attr.RetryCnt = n } }
func maxRDAtomic(n uint8) func(*setup)    { return func(c *setup) { c.attr.MaxRDAtomic = n } }
func pathMTU(m ib.MTU) func(*setup)       { return func(c *setup) { c.attr.PathMTU = m } }
func windowOf(n int) func(*setup)         { return func(c *setup) { c.cfg.Limits.Window = n } }
func askEvery(n int) func(*setup)         { return func(c *setup) { c.cfg.Limits.AckEvery = n } }
func maxMessage(n uint64) func(*setup)    { return func(c *setup) { c.cfg.Limits.MaxMessage = n } }
func sendQueue(depth uint32) func(*setup) { return func(c *setup) { c.cfg.Cap.MaxSendWR = depth } }

// modify changes the state, and whatever the test changed in s.attr.
func (s *script) modify(st ib.QPState, mask ib.QPAttrMask) {
	s.attr.State = st
	s.e.Modify(s.now, &s.attr, mask|ib.QPAttrState, testPath)
}

// What a script does.

// post posts sends; wr_id counts from 1.
func (s *script) post(requests ...transport.Request) {
	for _, r := range requests {
		r.Index = s.qp.posted
		r.WRID = uint64(r.Index) + 1
		for i := range r.SGE {
			if r.SGE[i].LKey == 0 {
				r.SGE[i].LKey = s.mr.LKey
			}
			r.Length += uint64(r.SGE[i].Length)
		}
		s.qp.posted++
		s.qp.sends = append(s.qp.sends, r)
	}
}

// postRecv posts receives of one entry at an offset of the region; wr_id counts from 1001.
func (s *script) postRecv(off uint64, lengths ...uint32) {
	for _, n := range lengths {
		r := transport.Receive{
			Index: s.qp.postedRecvs, WRID: 1001 + uint64(s.qp.postedRecvs), Length: uint64(n),
			SGE: []ib.SGE{{Addr: base + off, Length: n, LKey: s.mr.LKey}},
		}
		s.qp.postedRecvs++
		s.qp.recvs = append(s.qp.recvs, r)
	}
}

// run lets virtual time pass: the engine sends whenever it can, and its timers fire exactly when they are due.
func (s *script) run(until clock.Time) {
	s.t.Helper()
	if until.Before(s.now) {
		s.t.Fatalf("the script goes back in time, to %v from %v", time.Duration(until), time.Duration(s.now))
	}
	for {
		s.transmit()
		d := s.e.Deadline()
		if d.After(until) {
			break
		}
		s.now = max(s.now, d)
		s.e.Expire(s.now)
	}
	s.now = until
}

func (s *script) transmit() {
	s.t.Helper()
	for i := 0; ; i++ {
		if i > 1<<16 {
			s.t.Fatal("Transmit never has enough")
		}
		_, more := s.e.Transmit(s.now, s.burst, s.budget)
		frames := s.burst.Frames()
		for i := range frames {
			s.sent = append(s.sent, s.capture(&frames[i]))
		}
		s.burst.Consume(len(frames))
		if !more {
			return
		}
	}
}

// expect lets time pass and compares what was sent since the last expect, all of it at that time.
func (s *script) expect(when clock.Time, want ...packet) {
	s.t.Helper()
	s.run(when)
	got := s.sent[s.seen:]
	s.seen = len(s.sent)
	var b strings.Builder
	same := len(got) == len(want)
	for i := range max(len(got), len(want)) {
		g, w, mark := "nothing", "nothing", "!"
		if i < len(got) {
			g = got[i].String()
		}
		if i < len(want) {
			w = fmt.Sprintf("%v at %v", want[i], time.Duration(when))
		}
		if i < len(got) && i < len(want) {
			if why := want[i].differs(&got[i], when); why == "" {
				mark = " "
			} else {
				same, w = false, w+" ("+why+")"
			}
		}
		fmt.Fprintf(&b, "%s sent %-60s want %s\n", mark, g, w)
	}
	if !same {
		s.t.Fatalf("packets:\n%s", b.String())
	}
}

// quiet says that nothing more was sent.
func (s *script) quiet() {
	s.t.Helper()
	s.expect(s.now)
}

// skip lets time pass and returns what was sent since, unjudged.
func (s *script) skip(when clock.Time) []sentPacket {
	s.t.Helper()
	s.run(when)
	got := s.sent[s.seen:]
	s.seen = len(s.sent)
	return got
}

// deliver lets time pass and hands packets to the engine.
func (s *script) deliver(when clock.Time, packets ...packet) {
	s.t.Helper()
	s.run(when)
	for i := range packets {
		s.receive(packets[i])
	}
}

// receive hands a packet to the engine, which gets no chance to send before or after it.
func (s *script) receive(p packet) bool {
	var made wire.Packet
	p.make(&made)
	return s.e.Receive(s.now, &made)
}

// completes compares the send completions since the last time, all of them.
func (s *script) completes(want ...completed) {
	s.t.Helper()
	s.transmit()
	s.qp.compare("send completions", s.qp.sendDone, want)
	s.qp.sendDone = nil
}

// receives compares the receive completions.
func (s *script) receives(want ...completed) {
	s.t.Helper()
	s.transmit()
	s.qp.compare("receive completions", s.qp.recvDone, want)
	s.qp.recvDone = nil
}

// inState says what state the engine is in.
func (s *script) inState(want ib.QPState) {
	s.t.Helper()
	var a ib.QPAttr
	s.e.Query(&a)
	if a.State != want {
		s.t.Fatalf("state %v, want %v", a.State, want)
	}
}

// counts compares one counter.
func (s *script) counts(name string, got, want uint64) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s is %d, want %d", name, got, want)
	}
}

// Requests.

func sge(off uint64, n uint32) ib.SGE { return ib.SGE{Addr: base + off, Length: n} }

func entries(n uint32) []ib.SGE { return []ib.SGE{sge(0, n)} }

const (
	remoteVA  = uint64(0x7000_0000)
	remoteKey = ib.RKey(0xabcd00)
)

func send(n uint32) transport.Request {
	return transport.Request{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGE: entries(n)}
}

func sendImm(n, imm uint32) transport.Request {
	return transport.Request{Opcode: ib.WRSendWithImm, Flags: ib.SendSignaled, SGE: entries(n), Imm: imm}
}

func write(n uint32) transport.Request {
	return transport.Request{
		Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGE: entries(n), Remote: remoteVA, RKey: remoteKey,
	}
}

func writeImm(n, imm uint32) transport.Request {
	r := write(n)
	r.Opcode, r.Imm = ib.WRRDMAWriteWithImm, imm
	return r
}

// read places its data at 64 KiB of the region.
func read(n uint32) transport.Request {
	r := write(n)
	r.Opcode, r.SGE = ib.WRRDMARead, []ib.SGE{sge(1<<16, n)}
	return r
}

func compareSwap(compare, swap uint64) transport.Request {
	r := read(8)
	r.Opcode, r.Compare, r.Swap = ib.WRAtomicCmpAndSwp, compare, swap
	return r
}

func fetchAdd(add uint64) transport.Request {
	r := read(8)
	r.Opcode, r.Swap = ib.WRAtomicFetchAdd, add
	return r
}

func inline(data string) transport.Request {
	return transport.Request{
		Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, IsInline: true,
		Inline: wire.Buffer{B: []byte(data)}, Length: uint64(len(data)),
	}
}

func with(r transport.Request, flags ib.SendFlags) transport.Request {
	r.Flags |= flags
	return r
}

func unsignaled(r transport.Request) transport.Request {
	r.Flags &^= ib.SendSignaled
	return r
}

// Packets. A packet in an expect is compared by opcode, PSN and bytes, and by what else was set.

type packet struct {
	op        wire.Opcode
	psn       ib.PSN
	bytes     int
	data      []byte
	reth      *[3]uint64 // address, key, length
	atomic    *[4]uint64 // address, key, swap or add, compare
	imm       *uint32
	syndrome  *wire.Syndrome
	msn       *uint32
	original  *uint64
	asks      *bool
	solicited *bool
	stable    *bool
}

func of(op wire.Opcode, psn ib.PSN, n int) packet { return packet{op: op, psn: psn, bytes: n} }

func sendFirst(p ib.PSN, n int) packet   { return of(wire.RCSendFirst, p, n) }
func sendMiddle(p ib.PSN, n int) packet  { return of(wire.RCSendMiddle, p, n) }
func sendLast(p ib.PSN, n int) packet    { return of(wire.RCSendLast, p, n) }
func sendOnly(p ib.PSN, n int) packet    { return of(wire.RCSendOnly, p, n) }
func writeFirst(p ib.PSN, n int) packet  { return of(wire.RCWriteFirst, p, n) }
func writeMiddle(p ib.PSN, n int) packet { return of(wire.RCWriteMiddle, p, n) }
func writeLast(p ib.PSN, n int) packet   { return of(wire.RCWriteLast, p, n) }
func writeOnly(p ib.PSN, n int) packet   { return of(wire.RCWriteOnly, p, n) }

// readRequest asks for n bytes at off of the peer's memory.
func readRequest(p ib.PSN, off uint64, n uint32) packet {
	return of(wire.RCReadRequest, p, 0).to(remoteVA+off, remoteKey, n)
}

func (p packet) to(va uint64, key ib.RKey, n uint32) packet {
	p.reth = &[3]uint64{va, uint64(key), uint64(n)}
	return p
}
func (p packet) operand(va uint64, key ib.RKey, swap, compare uint64) packet {
	p.atomic = &[4]uint64{va, uint64(key), swap, compare}
	return p
}
func (p packet) imme(v uint32) packet         { p.imm = &v; return p }
func (p packet) asking(v bool) packet         { p.asks = &v; return p }
func (p packet) se(v bool) packet             { p.solicited = &v; return p }
func (p packet) isStable(v bool) packet       { p.stable = &v; return p }
func (p packet) holds(b []byte) packet        { p.data, p.bytes = b, len(b); return p }
func (p packet) says(s wire.Syndrome) packet  { p.syndrome = &s; return p }
func (p packet) completing(msn uint32) packet { p.msn = &msn; return p }
func (p packet) wasThere(v uint64) packet     { p.original = &v; return p }

func ack(p ib.PSN) packet                  { return nak(p, wire.AckSyndrome) }
func nak(p ib.PSN, s wire.Syndrome) packet { return of(wire.RCAcknowledge, p, 0).says(s) }
func rnrNak(p ib.PSN, code uint8) packet   { return nak(p, wire.RNRNak(code)) }
func atomicAck(p ib.PSN, v uint64) packet {
	return of(wire.RCAtomicAcknowledge, p, 0).says(wire.AckSyndrome).wasThere(v)
}

// The data of READ responses is the pattern of the peer's memory from off on.
func readFirst(p ib.PSN, off, n int) packet  { return response(wire.RCReadResponseFirst, p, off, n) }
func readMiddle(p ib.PSN, off, n int) packet { return response(wire.RCReadResponseMiddle, p, off, n) }
func readLast(p ib.PSN, off, n int) packet   { return response(wire.RCReadResponseLast, p, off, n) }
func readOnly(p ib.PSN, off, n int) packet   { return response(wire.RCReadResponseOnly, p, off, n) }

func response(op wire.Opcode, p ib.PSN, off, n int) packet {
	return of(op, p, n).holds(peerPattern(off, n))
}

// pattern is what this side's memory holds, peerPattern the peer's.
func pattern(off, n int) []byte     { return fill(off, n, 3) }
func peerPattern(off, n int) []byte { return fill(off, n, 101) }

func fill(off, n int, salt byte) []byte {
	b := make([]byte, n)
	for i := range b {
		v := off + i
		b[i] = byte(v) ^ byte(v>>8)*31 ^ byte(v>>16)*7 ^ salt
	}
	return b
}

func (p packet) String() string {
	s := fmt.Sprintf("%v psn %d, %d bytes", p.op, uint32(p.psn), p.bytes)
	if p.syndrome != nil {
		s += ", " + p.syndrome.String()
	}
	if p.reth != nil {
		s += fmt.Sprintf(", reth %#x", *p.reth)
	}
	if p.asks != nil && *p.asks {
		s += ", A"
	}
	return s
}

// make builds the packet that the engine receives.
func (p *packet) make(out *wire.Packet) {
	var f wire.Frame
	h := append([]byte(nil), f.SetHeader(p.op)...)
	bth := (*wire.BTH)(h)
	bth.SetPKey(ib.DefaultPKey)
	bth.SetDestQP(localQPN)
	bth.SetPSN(p.psn)
	data := p.data
	if data == nil {
		data = peerPattern(0, p.bytes)
	}
	bth.SetPadCount(uint8(-len(data) & 3))
	if p.asks != nil {
		bth.SetAckReq(*p.asks)
	}
	if p.solicited != nil {
		bth.SetSolicited(*p.solicited)
	}
	if a := wire.FindAETH(h); a != nil {
		a.SetSyndrome(wire.AckSyndrome)
		if p.syndrome != nil {
			a.SetSyndrome(*p.syndrome)
		}
		if p.msn != nil {
			a.SetMSN(*p.msn)
		}
	}
	if a := wire.FindAtomicAckETH(h); a != nil && p.original != nil {
		a.SetOriginal(*p.original)
	}
	if r := wire.FindRETH(h); r != nil && p.reth != nil {
		r.SetVA(p.reth[0])
		r.SetRKey(ib.RKey(p.reth[1]))
		r.SetLength(uint32(p.reth[2]))
	}
	if a := wire.FindAtomicETH(h); a != nil && p.atomic != nil {
		a.SetVA(p.atomic[0])
		a.SetRKey(ib.RKey(p.atomic[1]))
		a.SetSwapAdd(p.atomic[2])
		a.SetCompare(p.atomic[3])
	}
	if i := wire.FindImmDt(h); i != nil && p.imm != nil {
		i.SetData(*p.imm)
	}
	out.Opcode, out.Header = p.op, h
	out.SetPayload(data)
}

// sentPacket is a frame as the port saw it.
type sentPacket struct {
	when   clock.Time
	head   []byte
	data   []byte
	stable bool
	cookie uint64
}

func (s *script) capture(f *wire.Frame) sentPacket {
	s.t.Helper()
	p := sentPacket{when: s.now, head: append([]byte(nil), f.Header()...), stable: f.Stable, cookie: f.Cookie}
	p.data = make([]byte, f.PayloadLen())
	if err := dma.ReadPieces(p.data, f.Payload()); err != nil {
		s.t.Fatalf("payload of a frame: %v", err)
	}
	b := f.BTH()
	if f.Path != testPath || f.QPN != localQPN || b.DestQP() != peerQPN || b.PKey() != ib.DefaultPKey || !b.MigReq() {
		s.t.Fatalf("header of %v is not the connection's", p)
	}
	if int(b.PadCount()) != -len(p.data)&3 {
		s.t.Fatalf("%v has pad count %d", p, b.PadCount())
	}
	return p
}

func (p sentPacket) bth() *wire.BTH { return (*wire.BTH)(p.head) }
func (p sentPacket) psn() ib.PSN    { return p.bth().PSN() }

func (p sentPacket) String() string {
	s := fmt.Sprintf("%v psn %d, %d bytes", p.bth().Opcode(), uint32(p.psn()), len(p.data))
	if a := wire.FindAETH(p.head); a != nil {
		s += fmt.Sprintf(", %v, msn %d", a.Syndrome(), a.MSN())
	}
	if r := wire.FindRETH(p.head); r != nil {
		s += fmt.Sprintf(", reth %#x %#x %d", r.VA(), uint32(r.RKey()), r.Length())
	}
	if p.bth().AckReq() {
		s += ", A"
	}
	return fmt.Sprintf("%s at %v", s, time.Duration(p.when))
}

// differs says what is wrong with a packet that was sent, if anything.
func (p *packet) differs(g *sentPacket, when clock.Time) string {
	b := g.bth()
	switch {
	case b.Opcode() != p.op:
		return "opcode"
	case b.PSN() != p.psn:
		return "psn"
	case len(g.data) != p.bytes:
		return "bytes"
	case g.when != when:
		return "time"
	case p.data != nil && !bytes.Equal(p.data, g.data):
		return "payload"
	case p.asks != nil && *p.asks != b.AckReq():
		return "A"
	case p.solicited != nil && *p.solicited != b.Solicited():
		return "SE"
	case p.stable != nil && *p.stable != g.stable:
		return "Stable"
	}
	if r := wire.FindRETH(g.head); p.reth != nil &&
		(r == nil || *p.reth != [3]uint64{r.VA(), uint64(r.RKey()), uint64(r.Length())}) {
		return "RETH"
	}
	if a := wire.FindAtomicETH(g.head); p.atomic != nil &&
		(a == nil || *p.atomic != [4]uint64{a.VA(), uint64(a.RKey()), a.SwapAdd(), a.Compare()}) {
		return "AtomicETH"
	}
	if i := wire.FindImmDt(g.head); p.imm != nil && (i == nil || i.Data() != *p.imm) {
		return "immediate"
	}
	a := wire.FindAETH(g.head)
	if p.syndrome != nil && (a == nil || a.Syndrome() != *p.syndrome) {
		return "syndrome"
	}
	if p.msn != nil && (a == nil || a.MSN() != *p.msn) {
		return "MSN"
	}
	if o := wire.FindAtomicAckETH(g.head); p.original != nil && (o == nil || o.Original() != *p.original) {
		return "original value"
	}
	return ""
}

// Completions.

type completed struct {
	wrid   uint64
	status ib.WCStatus
	detail transport.Completion
}

func success(wrid uint64) completed { return completed{wrid: wrid} }

func failed(wrid uint64, s ib.WCStatus) completed { return completed{wrid: wrid, status: s} }

func flushed(wrids ...uint64) (c []completed) {
	for _, id := range wrids {
		c = append(c, failed(id, ib.WCWRFlushErr))
	}
	return c
}

// fakeQP is a queue pair on slices. It holds the engine to completing every request once and in order.
type fakeQP struct {
	t           testing.TB
	lkey        ib.LKey
	sends       []transport.Request
	recvs       []transport.Receive
	posted      uint32
	postedRecvs uint32
	malformed   map[uint32]bool // indexes of sends that make no sense
	ended       uint32          // sends that have ended, silent ones included
	endedRecvs  uint32
	silent      int
	sendDone    []completed
	recvDone    []completed
	states      []ib.QPState
	events      []ib.EventType
	overrun     bool // the next entry does not fit the CQ
	modify      func(ib.QPState)
	forget      bool // record nothing, for tests that count allocations
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
	if q.malformed[r.Index] {
		return transport.Malformed
	}
	return transport.Ready
}

func (q *fakeQP) FetchRecv(r *transport.Receive) transport.Fetched {
	if len(q.recvs) == 0 {
		return transport.Empty
	}
	from := &q.recvs[0]
	list := append(r.SGE[:0], from.SGE...)
	*r = *from
	r.SGE = list
	q.recvs = q.recvs[1:]
	return transport.Ready
}

func (q *fakeQP) CompleteSend(r *transport.Request, c *transport.Completion) {
	if r.Index != q.ended {
		q.t.Errorf("send %d completed, but it is the turn of %d", r.Index, q.ended)
	}
	q.ended++
	switch {
	case q.forget:
	case c.Status == ib.WCSuccess && r.Flags&ib.SendSignaled == 0:
		q.silent++
	default:
		q.sendDone = append(q.sendDone, completed{r.WRID, c.Status, *c})
	}
	if q.overrun {
		q.overrun = false
		q.modify(ib.StateErr)
	}
}

func (q *fakeQP) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if r.Index != q.endedRecvs {
		q.t.Errorf("receive %d completed, but it is the turn of %d", r.Index, q.endedRecvs)
	}
	q.endedRecvs++
	if !q.forget {
		q.recvDone = append(q.recvDone, completed{r.WRID, c.Status, *c})
	}
}

func (q *fakeQP) SetState(s ib.QPState) { q.states = append(q.states, s) }
func (q *fakeQP) Event(e ib.EventType)  { q.events = append(q.events, e) }

func (q *fakeQP) compare(what string, got, want []completed) {
	q.t.Helper()
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].wrid == want[i].wrid && got[i].status == want[i].status
	}
	if !same {
		q.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// vendor compares vendor_err of a send completion that was not yet compared.
func (q *fakeQP) vendor(i int, want transport.VendorErr) {
	q.t.Helper()
	if i >= len(q.sendDone) || q.sendDone[i].detail.VendorErr != want {
		q.t.Fatalf("send completions %v: vendor_err of number %d is not %#x", q.sendDone, i, want)
	}
}

func (c completed) String() string { return fmt.Sprintf("%d:%d", c.wrid, c.status) }
