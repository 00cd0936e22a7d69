package rc

import (
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
	window   *dma.Window // of type 2, made by bind
	budget   int
	sent     []sentPacket
	seen     int // packets of sent that were expected
	attr     ib.QPAttr
	path     *wire.Path
	single   wire.Single // of a run that came
}

// setup is what a test may choose before the engine is made.
type setup struct {
	cfg  Config
	attr ib.QPAttr // as they are after RTS
	path *wire.Path
}

const (
	us = time.Microsecond
	ms = time.Millisecond

	base     = 0x10000 // address of the region
	peerQPN  = ib.QPN(0x2222)
	localQPN = ib.QPN(0x1111)
)

func at(d time.Duration) clock.Time { return clock.Time(d) }

var (
	testPath = &wire.Path{HopLimit: 64, SourcePort: 0xc123}
	runsPath = &wire.Path{HopLimit: 64, SourcePort: 0xc123, MaxRun: wire.MaxRun}
)

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
		Access: ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessMWBind |
			ib.AccessFlushGlobal,
	}
	if err := s.table.Insert(s.mr); err != nil {
		t.Fatal(err)
	}
	c := setup{
		path: testPath,
		cfg: Config{
			QPN:    localQPN,
			Cap:    ib.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 256},
			Domain: s.pd, Table: s.table, QP: s.qp, Counters: &s.counters,
			Limits: Limits{MaxMessage: 1 << 31, Window: 64, AckEvery: 32},
		},
		attr: ib.QPAttr{
			PathMTU: ib.MTU1024, SQPSN: 100, RQPSN: 500, DestQPN: peerQPN,
			AccessFlags: ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessFlushGlobal,
			MaxRDAtomic: 4, MaxDestRDAtomic: 4, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
		},
	}
	for _, choose := range choices {
		choose(&c)
	}
	s.qp.lkey = s.mr.LKey
	s.e = New(c.cfg)
	s.attr, s.path = c.attr, c.path
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

func rnrRetry(n uint8) func(*setup)    { return func(c *setup) { c.attr.RNRRetry = n } }
func retryCnt(n uint8) func(*setup)    { return func(c *setup) { c.attr.RetryCnt = n } }
func maxRDAtomic(n uint8) func(*setup) { return func(c *setup) { c.attr.MaxRDAtomic = n } }
func pathMTU(m ib.MTU) func(*setup)    { return func(c *setup) { c.attr.PathMTU = m } }
func takingRuns(c *setup)              { c.path = runsPath }
func runsOf(n int) func(*setup) {
	return func(c *setup) { p := *runsPath; p.MaxRun = n; c.path = &p }
}
func windowOf(n int) func(*setup)         { return func(c *setup) { c.cfg.Limits.Window = n } }
func askEvery(n int) func(*setup)         { return func(c *setup) { c.cfg.Limits.AckEvery = n } }
func maxMessage(n uint64) func(*setup)    { return func(c *setup) { c.cfg.Limits.MaxMessage = n } }
func sendQueue(depth uint32) func(*setup) { return func(c *setup) { c.cfg.Cap.MaxSendWR = depth } }

// modify changes the state, and whatever the test changed in s.attr.
func (s *script) modify(st ib.QPState, mask ib.QPAttrMask) {
	s.attr.State = st
	s.e.Modify(s.now, &s.attr, mask|ib.QPAttrState, s.path)
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
			r.Length += uint64(r.SGE[i].Length) // of nothing else: BIND_MW and FLUSH have no list
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

// take hands a packet to the engine, or a run as a device does: at once, and if it is not taken so, packet by packet.
func (s *script) take(p *wire.Packet) (taken bool) {
	if p.Packets() == 1 {
		s.e.Receive(s.now, p)
		return true
	}
	if _, taken = s.e.ReceiveRun(s.now, p); !taken {
		for i := range p.Packets() {
			s.e.Receive(s.now, s.single.Of(p, i))
		}
	}
	return taken
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
