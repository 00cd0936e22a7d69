package scripts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"github.com/softnic/softnicd/wire"
)

// script is one engine, RTS unless it is said otherwise, and everything it can see. Its peer is the script itself. Both
// have memory at the same addresses under the same key, so that a packet reads alike in both directions:
//
//	address   of this side                               of the peer
//	memory    what the peer may name, what sends gather  what requests name
//	results   where READs and atomics put their results
//	buffers   where receives are posted
//
// What was never written holds mine here, theirs there.
type script struct {
	t        testing.TB
	e        transport.Engine
	qp       queuePair
	now      clock.Time
	burst    *wire.Burst
	counters transport.Counters
	table    *dma.Table
	domain   *dma.Domain
	arena    []byte // canary, all of memory, canary
	mr       *dma.MR
	choice   choice
	sent     []sent
	seen     int // packets of sent that were expected
	buffer   uint64
	handles  uint32 // of windows
}

const (
	us = time.Microsecond
	ms = time.Millisecond

	mtu       = 1024 // path MTU of most scripts
	firstPSN  = 100  // of this side's requests
	expectPSN = 500  // of the peer's

	memory    = 0x10000
	results   = memory + 64<<10
	buffers   = memory + 128<<10
	memoryEnd = memory + 256<<10
	canary    = 4096

	here  = ib.QPN(0x1111)
	there = ib.QPN(0x2222)
)

func at(d time.Duration) clock.Time { return clock.Time(d) }

// choice is what a script may choose before the engine is made.
type choice struct {
	cfg  rc.Config
	attr ib.QPAttr // as they are in RTS
	stop ib.QPState
	// engine makes the engine of another service than RC.
	engine func(s *script, c *choice) transport.Engine
}

func timeout(exp, retries uint8) func(*choice) {
	return func(c *choice) { c.attr.Timeout, c.attr.RetryCnt = exp, retries }
}
func retryCnt(n uint8) func(*choice)       { return func(c *choice) { c.attr.RetryCnt = n } }
func rnrRetry(n uint8) func(*choice)       { return func(c *choice) { c.attr.RNRRetry = n } }
func minRNRTimer(code uint8) func(*choice) { return func(c *choice) { c.attr.MinRNRTimer = code } }
func initiatorDepth(n uint8) func(*choice) { return func(c *choice) { c.attr.MaxRDAtomic = n } }
func responderResources(n uint8) func(*choice) {
	return func(c *choice) { c.attr.MaxDestRDAtomic = n }
}
func pathMTU(m ib.MTU) func(*choice) { return func(c *choice) { c.attr.PathMTU = m } }
func sqPSN(p ib.PSN) func(*choice)   { return func(c *choice) { c.attr.SQPSN = p } }
func rqPSN(p ib.PSN) func(*choice)   { return func(c *choice) { c.attr.RQPSN = p } }
func window(n int) func(*choice)     { return func(c *choice) { c.cfg.Limits.Window = n } }
func ackEvery(n int) func(*choice)   { return func(c *choice) { c.cfg.Limits.AckEvery = n } }
func probing(d time.Duration) func(*choice) {
	return func(c *choice) { c.cfg.Limits.Probe = d }
}
func maxMessage(n uint64) func(*choice) {
	return func(c *choice) { c.cfg.Limits.MaxMessage = n }
}
func access(f ib.AccessFlags) func(*choice) { return func(c *choice) { c.attr.AccessFlags = f } }
func without(f ib.AccessFlags) func(*choice) {
	return func(c *choice) { c.attr.AccessFlags &^= f }
}

// only stops on the way to RTS.
func only(st ib.QPState) func(*choice) { return func(c *choice) { c.stop = st } }

const allRights = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic |
	ib.AccessMWBind | ib.AccessFlushGlobal

// newScript connects: path MTU 1024, no ACK timeout, retry_cnt and rnr_retry 7, four READs at a time both ways.
func newScript(t testing.TB) *script {
	s := &script{t: t, domain: &dma.Domain{Handle: 1}, burst: wire.NewBurst(256)}
	seed := uint64(1)
	s.table = dma.NewTable(64, func() uint64 { seed = seed*0x5851f42d4c957f2d + 0x14057b7ef767814f; return seed ^ seed>>31 })
	s.arena = bytes.Repeat([]byte{0xc5}, canary+memoryEnd-memory+canary)
	copy(s.memory(), mine(0, memoryEnd-memory))
	s.mr = s.register(allRights)
	s.with()
	return s
}

// with connects anew, with other choices.
func (s *script) with(choices ...func(*choice)) {
	s.qp = queuePair{t: s.t}
	s.choice = choice{
		cfg: rc.Config{
			QPN:    here,
			Cap:    ib.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 32, MaxRecvSGE: 32, MaxInlineData: 256},
			Domain: s.domain, Table: s.table, QP: &s.qp, Counters: &s.counters,
			Limits: rc.Limits{MaxMessage: 1 << 31, Window: 64, AckEvery: 32},
		},
		attr: ib.QPAttr{
			PathMTU: ib.MTU1024, SQPSN: firstPSN, RQPSN: expectPSN, DestQPN: there, AccessFlags: allRights,
			MaxRDAtomic: 4, MaxDestRDAtomic: 4, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
		},
		stop: ib.StateRTS,
	}
	for _, choose := range choices {
		choose(&s.choice)
	}
	if s.choice.engine != nil {
		s.e = s.choice.engine(s, &s.choice)
	} else {
		s.e = rc.New(s.choice.cfg)
	}
	for st := ib.StateInit; st <= s.choice.stop; st++ {
		s.modify(st)
	}
}

// given is which attributes each state asks for (IBA 10.3.1).
var given = map[ib.QPState]ib.QPAttrMask{
	ib.StateInit: ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags,
	ib.StateRTR: ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN | ib.QPAttrMaxDestRDAtomic |
		ib.QPAttrMinRNRTimer,
	ib.StateRTS: ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrSQPSN | ib.QPAttrMaxRDAtomic,
}

// modify changes the state.
func (s *script) modify(st ib.QPState) {
	mask := given[st]
	if s.choice.attr.State == ib.StateSQD {
		mask = 0
	}
	s.choice.attr.State = st
	s.e.Modify(s.now, &s.choice.attr, mask|ib.QPAttrState, path)
}

// change changes attributes without a transition.
func (s *script) change(mask ib.QPAttrMask, set func(*ib.QPAttr)) {
	set(&s.choice.attr)
	s.e.Modify(s.now, &s.choice.attr, mask, path)
}

var path = &wire.Path{HopLimit: 64, SourcePort: 0xc123}

func (s *script) memory() []byte { return s.arena[canary : len(s.arena)-canary] }

// register makes another region of the same memory; its key goes into requests as .key.
func (s *script) register(rights ib.AccessFlags) *dma.MR {
	mr := &dma.MR{Domain: s.domain, Region: dma.NewEmbedded(s.arena), Offset: canary, Base: memory,
		Length: memoryEnd - memory, Access: rights}
	s.insert(mr)
	return mr
}

func (s *script) insert(mr *dma.MR) {
	if err := s.table.Insert(mr); err != nil {
		s.t.Fatal(err)
	}
}

// post posts sends; wr_id counts from 1. Whatever names no key means the region of this side, or of the peer.
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
		if r.RKey == 0 {
			r.RKey = s.mr.RKey
		}
		s.qp.posted++
		s.qp.sends = append(s.qp.sends, r)
	}
}

// postRecv posts receives of so many bytes, one behind the other in buffers; wr_id counts from 1001.
func (s *script) postRecv(lengths ...uint32) {
	for _, n := range lengths {
		s.postList(ib.SGE{Addr: buffers + s.buffer, Length: n, LKey: s.mr.LKey})
		s.buffer += uint64(n)
	}
}

func (s *script) postList(list ...ib.SGE) {
	r := transport.Receive{Index: s.qp.postedRecvs, WRID: 1001 + uint64(s.qp.postedRecvs), SGE: list}
	for i := range list {
		r.Length += uint64(list[i].Length)
	}
	s.qp.postedRecvs++
	s.qp.recvs = append(s.qp.recvs, r)
}

// run lets virtual time pass: the engine sends whenever it may, and its timers fire when they are due.
func (s *script) run(until clock.Time) {
	s.t.Helper()
	if until.Before(s.now) {
		s.t.Fatalf("the script goes back in time, from %v to %v", time.Duration(s.now), time.Duration(until))
	}
	for {
		s.transmit()
		due := s.e.Deadline()
		if due.After(until) {
			break
		}
		s.now = max(s.now, due)
		s.e.Expire(s.now)
	}
	s.now = until
}

func (s *script) transmit() {
	s.t.Helper()
	for more, turns := true, 0; more; turns++ {
		if turns > 1<<16 {
			s.t.Fatal("Transmit never has enough")
		}
		_, more = s.e.Transmit(s.now, s.burst, 1<<30)
		frames := s.burst.Frames()
		for i := range frames {
			if f, ok := s.capture(&frames[i]); ok {
				s.sent = append(s.sent, f)
			} else {
				more = s.e.Faulted(s.now, frames[i].Cookie) || more
			}
		}
		s.burst.Consume(len(frames))
	}
}

// deliver lets time pass and hands packets to the engine, one behind the other.
func (s *script) deliver(when clock.Time, packets ...packet) {
	s.t.Helper()
	s.run(when)
	for _, p := range packets {
		s.e.Receive(s.now, s.build(p))
	}
}

// expect lets time pass and compares everything that was sent since, all of it at that time.
func (s *script) expect(when clock.Time, want ...packet) {
	s.t.Helper()
	s.run(when)
	got := s.sent[s.seen:]
	s.seen = len(s.sent)
	var report strings.Builder
	same := true
	for i := range max(len(got), len(want)) {
		var g, w, why string
		switch {
		case i >= len(got):
			g, w, why = "nothing", want[i].String(), "missing"
		case i >= len(want):
			g, w, why = got[i].String(), "nothing", "too many"
		default:
			g, w, why = got[i].String(), want[i].String(), s.differs(&want[i], &got[i], when)
		}
		fmt.Fprintf(&report, "sent %s, want %s  %s\n", g, w, why)
		same = same && why == ""
	}
	if !same {
		s.t.Fatalf("at %v:\n%s", time.Duration(when), report.String())
	}
}

// completes compares the send completions since the last time, all of them.
func (s *script) completes(want ...completion) {
	s.t.Helper()
	s.transmit()
	s.compare("send completions", &s.qp.sendDone, want)
}

// receives compares the receive completions.
func (s *script) receives(want ...completion) {
	s.t.Helper()
	s.transmit()
	s.compare("receive completions", &s.qp.recvDone, want)
}

// raises compares the events since the last time.
func (s *script) raises(want ...ib.EventType) {
	s.t.Helper()
	s.transmit()
	if !slices.Equal(s.qp.events, want) {
		s.t.Fatalf("events: got %v, want %v", s.qp.events, want)
	}
	s.qp.events = nil
}

// inState asks engine and device alike.
func (s *script) inState(want ib.QPState) {
	s.t.Helper()
	s.transmit()
	if got := s.query().State; got != want {
		s.t.Fatalf("state %v, want %v", got, want)
	}
}

func (s *script) query() (a ib.QPAttr) {
	s.e.Query(&a)
	return a
}

// refuses is how a responder ends a connection: this NAK and nothing else, the error state, these events. What comes later
// is dropped.
func (s *script) refuses(nak packet, events ...ib.EventType) {
	s.t.Helper()
	s.expect(s.now, nak)
	s.raises(events...)
	s.inState(ib.StateErr)
	s.deliver(s.now, sendOnly(nak.psn, 4))
	s.expect(s.now)
}

// holds compares memory of this side.
func (s *script) holds(addr uint64, want []byte) {
	s.t.Helper()
	if got := s.memory()[addr-memory:][:len(want)]; !bytes.Equal(got, want) {
		s.t.Fatalf("memory at %#x: got % x..., want % x...", addr, got[:min(16, len(got))], want[:min(16, len(want))])
	}
}

// untouched says that n bytes hold what they held at first.
func (s *script) untouched(addr uint64, n int) {
	s.t.Helper()
	s.holds(addr, mine(int(addr-memory), n))
}

// word is the eight bytes at addr, in host order.
func (s *script) word(addr uint64) uint64 {
	return binary.NativeEndian.Uint64(s.memory()[addr-memory:])
}

func (s *script) setWord(addr, v uint64) { binary.NativeEndian.PutUint64(s.memory()[addr-memory:], v) }

// same compares anything else.
func same[T comparable](s *script, what string, got, want T) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// finish says that nothing is left over, and that nothing beside the region was written.
func (s *script) finish() {
	s.t.Helper()
	s.expect(s.now)
	s.completes()
	s.receives()
	s.raises()
	edge := bytes.Repeat([]byte{0xc5}, canary)
	if !bytes.Equal(s.arena[:canary], edge) || !bytes.Equal(s.arena[len(s.arena)-canary:], edge) {
		s.t.Fatal("memory beside the region was written")
	}
}

// mine is what this side's memory holds, n bytes at an offset of it, theirs the peer's.
func mine(off, n int) []byte   { return fill(off, n, 0x2d) }
func theirs(off, n int) []byte { return fill(off, n, 0x91) }

func fill(off, n int, salt byte) []byte {
	b := make([]byte, n)
	for i := range b {
		k := uint32(off+i) * 0x9e3779b1
		b[i] = byte(k>>24) ^ salt
	}
	return b
}

// window makes a memory window, bound to nothing.
func (s *script) window(t ib.MWType) *dma.Window {
	s.handles++
	w := &dma.Window{Domain: s.domain, Type: t, Handle: s.handles}
	if err := s.table.InsertWindow(w); err != nil {
		s.t.Fatal(err)
	}
	return w
}
