package rc_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/rc"
	"github.com/softnic/softnicd/wire"
)

// The responder's tests are scripts in which a peer speaks first: it delivers requests, and expects answers, completions,
// events, and what the memory holds then.
//
//	s.post(1, 4096)                  // wr_id, bytes
//	s.deliver(sendOnly(100, 64))     // psn, bytes
//	s.expect(ack(100, 1))            // psn, msn
//	s.completed(received(1, 64))     // wr_id, byte_len

const (
	mtu      = 1024
	epsn     = 100 // rq_psn of every script
	peerQPN  = 0x22
	rnrTimer = 14

	memBase = 0x7f0000001000 // the region that the peer may do everything with
	memSize = 64 << 10
	bufBase = 0x500000000000 // the region of receive buffers
	bufSize = 64 << 10
	canary  = 4096 // bytes on both sides of the region
)

const allRights = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic | ib.AccessMWBind |
	ib.AccessFlushGlobal

// peerScript is an engine with memory, and what came out of it.
type peerScript struct {
	t        testing.TB
	e        *rc.Engine
	qp       receiveQueue
	attr     ib.QPAttr
	counters transport.Counters
	burst    *wire.Burst
	table    *dma.Table
	domain   *dma.Domain
	raw      []byte // canary, memory, canary
	mem      []byte
	buf      []byte
	mr, bufs *dma.MR
	mw       *dma.Window // of scripts that keep one
	data     []byte      // payload of the READ responses that were expected
	slot     uint64      // receive buffers given out
	trace    *trace.Ring
}

func newPeerScript(t testing.TB) *peerScript { return newPeerScriptWith(t, 4, epsn) }

// newPeerScriptWith brings an engine to RTR with max_dest_rd_atomic and rq_psn.
func newPeerScriptWith(t testing.TB, reads uint8, first ib.PSN) *peerScript {
	s := &peerScript{t: t, burst: wire.NewBurst(64), domain: &dma.Domain{Handle: 1}, trace: trace.NewRing(64)}
	seed := uint64(1)
	s.table = dma.NewTable(64, func() uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed ^ seed>>29 })
	s.raw = bytes.Repeat([]byte{0xc5}, canary+memSize+canary)
	s.mem = s.raw[canary : canary+memSize]
	for i := range s.mem {
		s.mem[i] = pattern(i)
	}
	s.mr = s.register(&dma.MR{Domain: s.domain, Region: dma.NewEmbedded(s.raw), Offset: canary, Base: memBase, Length: memSize, Access: allRights})
	s.buf = make([]byte, bufSize)
	s.bufs = s.register(&dma.MR{Domain: s.domain, Region: dma.NewEmbedded(s.buf), Base: bufBase, Length: bufSize, Access: ib.AccessLocalWrite})
	s.attr = ib.QPAttr{
		State: ib.StateInit, PathMTU: ib.MTU1024, DestQPN: peerQPN, RQPSN: first, AccessFlags: allRights,
		MaxDestRDAtomic: reads, MinRNRTimer: rnrTimer,
	}
	s.connect(&s.qp)
	return s
}

// connect makes the engine and brings it to RTR.
func (s *peerScript) connect(qp transport.QueuePair) {
	s.e = rc.New(rc.Config{
		QPN:      0x11,
		Cap:      ib.QPCap{MaxSendWR: 4, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 4},
		Domain:   s.domain,
		Table:    s.table,
		QP:       qp,
		Counters: &s.counters,
		Trace:    s.trace,
		Limits:   rc.Limits{MaxMessage: 1 << 30, Window: 64, AckEvery: 16},
	})
	s.attr.State = ib.StateInit
	s.e.Modify(0, &s.attr, ib.QPAttrState|ib.QPAttrAccessFlags, nil)
	s.modify(ib.StateRTR, ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN|ib.QPAttrMaxDestRDAtomic|ib.QPAttrMinRNRTimer)
	s.qp.events = nil
}

// pattern is the byte at offset i of memory that nobody wrote.
func pattern(i int) byte { return byte(i*7 + i>>8) }

func (s *peerScript) register(mr *dma.MR) *dma.MR {
	if err := s.table.Insert(mr); err != nil {
		s.t.Fatal(err)
	}
	return mr
}

func (s *peerScript) modify(state ib.QPState, mask ib.QPAttrMask) {
	s.attr.State = state
	s.qp.state = state
	s.e.Modify(0, &s.attr, mask|ib.QPAttrState, &wire.Path{SourcePort: 0xc001})
}

// rights makes another region of the same memory with these rights and returns its key.
func (s *peerScript) rights(a ib.AccessFlags) ib.RKey {
	return s.register(&dma.MR{Domain: s.domain, Region: s.mr.Region, Offset: canary, Base: memBase, Length: memSize, Access: a}).RKey
}

// receiveQueue is the queue pair that the engine serves, with the receive side alone.
type receiveQueue struct {
	posted    []transport.Receive
	malformed map[uint64]bool // by wr_id
	done      []completion
	events    []ib.EventType
	state     ib.QPState
	index     uint32
	// overrun, if set, is called when a completion is given.
	overrun func()
}

type completion struct {
	wrid uint64
	transport.Completion
}

func (q *receiveQueue) FetchSend(*transport.Request) transport.Fetched         { return transport.Empty }
func (q *receiveQueue) CompleteSend(*transport.Request, *transport.Completion) {}
func (q *receiveQueue) SetState(s ib.QPState)                                  { q.state = s }
func (q *receiveQueue) Event(e ib.EventType)                                   { q.events = append(q.events, e) }
func (q *receiveQueue) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if q.overrun != nil {
		q.overrun()
		return
	}
	q.done = append(q.done, completion{r.WRID, *c})
}

func (q *receiveQueue) FetchRecv(r *transport.Receive) transport.Fetched {
	if len(q.posted) == 0 {
		return transport.Empty
	}
	p := &q.posted[0]
	r.Index, r.WRID, r.Length = p.Index, p.WRID, p.Length
	r.SGE = append(r.SGE[:0], p.SGE...)
	bad := q.malformed[p.WRID]
	q.posted = q.posted[:copy(q.posted, q.posted[1:])]
	if bad {
		return transport.Malformed
	}
	return transport.Ready
}

// post posts a receive of n bytes.
func (s *peerScript) post(wrid uint64, n uint32) {
	s.postList(wrid, ib.SGE{Addr: bufBase + s.slot, Length: n, LKey: s.bufs.LKey})
	s.slot += uint64(n)
}

func (s *peerScript) postList(wrid uint64, list ...ib.SGE) {
	r := transport.Receive{Index: s.qp.index, WRID: wrid, SGE: list}
	for _, e := range list {
		r.Length += uint64(e.Length)
	}
	s.qp.index++
	s.qp.posted = append(s.qp.posted, r)
}

// request is a request of the peer; what is not said is as an honest one has it.
type request struct {
	op      wire.Opcode
	psn     ib.PSN
	n       int // bytes of payload
	va      uint64
	key     ib.RKey
	size    uint32 // RETH length
	swap    uint64
	compare uint64
	imm     uint32
	inv     ib.RKey
	places  ib.FlushPlacement
	level   ib.FlushLevel
	fill    byte // first byte of the payload; those behind count up
	quiet   bool // A clear
	se      bool
	pad     int         // added to the pad count
	from    *wire.Piece // payload of a local peer
}

func (r request) silent() request                     { r.quiet = true; return r }
func (r request) solicited() request                  { r.se = true; return r }
func (r request) badPad() request                     { r.pad = 1; return r }
func (r request) with(fill byte) request              { r.fill = fill; return r }
func (r request) keyed(k ib.RKey) request             { r.key = k; return r }
func (r request) at(va uint64) request                { r.va = va; return r }
func (r request) sized(n uint32) request              { r.size = n; return r }
func (r request) payload(n int) request               { r.n = n; return r }
func (r request) placing(p ib.FlushPlacement) request { r.places = p; return r }
func (r request) of(l ib.FlushLevel) request          { r.level = l; return r }
func (r request) local(m wire.Memory) request {
	r.from = &wire.Piece{Mem: m, Len: r.n}
	return r
}

func sendFirst(psn ib.PSN) request {
	return request{op: wire.RCSendFirst, psn: psn, n: mtu, quiet: true}
}
func sendMiddle(psn ib.PSN) request {
	return request{op: wire.RCSendMiddle, psn: psn, n: mtu, quiet: true}
}
func sendLast(psn ib.PSN, n int) request { return request{op: wire.RCSendLast, psn: psn, n: n} }
func sendOnly(psn ib.PSN, n int) request { return request{op: wire.RCSendOnly, psn: psn, n: n} }
func sendOnlyImm(psn ib.PSN, n int, imm uint32) request {
	return request{op: wire.RCSendOnlyImm, psn: psn, n: n, imm: imm}
}
func sendLastImm(psn ib.PSN, n int, imm uint32) request {
	return request{op: wire.RCSendLastImm, psn: psn, n: n, imm: imm}
}

func (s *peerScript) writeFirst(psn ib.PSN, off uint64, size uint32) request {
	return request{op: wire.RCWriteFirst, psn: psn, n: mtu, va: memBase + off, size: size, key: s.mr.RKey, quiet: true}
}
func writeMiddle(psn ib.PSN) request {
	return request{op: wire.RCWriteMiddle, psn: psn, n: mtu, quiet: true}
}
func writeLast(psn ib.PSN, n int) request { return request{op: wire.RCWriteLast, psn: psn, n: n} }
func writeLastImm(psn ib.PSN, n int, imm uint32) request {
	return request{op: wire.RCWriteLastImm, psn: psn, n: n, imm: imm}
}
func (s *peerScript) writeOnly(psn ib.PSN, off uint64, n int) request {
	return request{op: wire.RCWriteOnly, psn: psn, n: n, va: memBase + off, size: uint32(n), key: s.mr.RKey}
}
func (s *peerScript) writeOnlyImm(psn ib.PSN, off uint64, n int, imm uint32) request {
	return request{op: wire.RCWriteOnlyImm, psn: psn, n: n, va: memBase + off, size: uint32(n), key: s.mr.RKey, imm: imm}
}
func (s *peerScript) read(psn ib.PSN, off uint64, n uint32) request {
	return request{op: wire.RCReadRequest, psn: psn, va: memBase + off, size: n, key: s.mr.RKey}
}
func (s *peerScript) fetchAdd(psn ib.PSN, off, add uint64) request {
	return request{op: wire.RCFetchAdd, psn: psn, va: memBase + off, swap: add, key: s.mr.RKey}
}
func (s *peerScript) compareSwap(psn ib.PSN, off, compare, swap uint64) request {
	return request{op: wire.RCCompareSwap, psn: psn, va: memBase + off, compare: compare, swap: swap, key: s.mr.RKey}
}

func (s *peerScript) flush(psn ib.PSN, off uint64, n uint32) request {
	return request{op: wire.RCFlush, psn: psn, va: memBase + off, size: n, key: s.mr.RKey, places: ib.FlushGlobal}
}
func (s *peerScript) atomicWrite(psn ib.PSN, off uint64) request {
	return request{op: wire.RCAtomicWrite, psn: psn, n: 8, va: memBase + off, size: 8, key: s.mr.RKey}
}
func sendOnlyInv(psn ib.PSN, n int, key ib.RKey) request {
	return request{op: wire.RCSendOnlyInv, psn: psn, n: n, inv: key}
}
func sendLastInv(psn ib.PSN, n int, key ib.RKey) request {
	return request{op: wire.RCSendLastInv, psn: psn, n: n, inv: key}
}

// build makes the packet.
func (r request) build() *wire.Packet {
	n := max(r.op.HeaderLen(), wire.BTHSize)
	p := &wire.Packet{Opcode: r.op, Header: make([]byte, n)}
	b := p.BTH()
	b.SetOpcode(r.op)
	b.SetPKey(ib.DefaultPKey)
	b.SetDestQP(0x11)
	b.SetPSN(r.psn)
	b.SetAckReq(!r.quiet)
	b.SetSolicited(r.se)
	b.SetPadCount(uint8(-r.n + r.pad))
	if h := wire.FindRETH(p.Header); h != nil {
		h.SetVA(r.va)
		h.SetRKey(r.key)
		h.SetLength(r.size)
	}
	if h := wire.FindAtomicETH(p.Header); h != nil {
		h.SetVA(r.va)
		h.SetRKey(r.key)
		h.SetSwapAdd(r.swap)
		h.SetCompare(r.compare)
	}
	if h := wire.FindImmDt(p.Header); h != nil {
		h.SetData(r.imm)
	}
	if h := wire.FindIETH(p.Header); h != nil {
		h.SetRKey(r.inv)
	}
	if h := wire.FindFETH(p.Header); h != nil {
		h.SetPlacement(uint8(r.places))
		h.SetSelectivity(uint8(r.level))
	}
	if r.from != nil {
		p.Local, p.Payload, p.Len = true, []wire.Piece{*r.from}, r.n
		return p
	}
	p.SetPayload(r.bytes())
	return p
}

// bytes is the payload.
func (r request) bytes() []byte {
	b := make([]byte, r.n)
	for i := range b {
		b[i] = r.fill + byte(i)
	}
	return b
}

func (s *peerScript) deliver(rs ...request) {
	for _, r := range rs {
		s.e.Receive(0, r.build())
	}
}

// reply is a frame of the responder.
type reply struct {
	op       wire.Opcode
	psn      ib.PSN
	syndrome wire.Syndrome
	msn      uint32
	n        int
	original uint64
}

func (r reply) String() string {
	return fmt.Sprintf("%v psn %v %v msn %d, %d bytes, original %#x", r.op, r.psn, r.syndrome, r.msn, r.n, r.original)
}

func ack(psn ib.PSN, msn uint32) reply {
	return reply{op: wire.RCAcknowledge, psn: psn, syndrome: wire.AckSyndrome, msn: msn}
}
func nak(psn ib.PSN, y wire.Syndrome, msn uint32) reply {
	return reply{op: wire.RCAcknowledge, psn: psn, syndrome: y, msn: msn}
}
func readFirst(psn ib.PSN, msn uint32) reply {
	return reply{op: wire.RCReadResponseFirst, psn: psn, syndrome: wire.AckSyndrome, msn: msn, n: mtu}
}
func readMiddle(psn ib.PSN) reply { return reply{op: wire.RCReadResponseMiddle, psn: psn, n: mtu} }
func readLast(psn ib.PSN, n int, msn uint32) reply {
	return reply{op: wire.RCReadResponseLast, psn: psn, syndrome: wire.AckSyndrome, msn: msn, n: n}
}
func readOnly(psn ib.PSN, n int, msn uint32) reply {
	return reply{op: wire.RCReadResponseOnly, psn: psn, syndrome: wire.AckSyndrome, msn: msn, n: n}
}
func atomicAck(psn ib.PSN, original uint64, msn uint32) reply {
	return reply{op: wire.RCAtomicAcknowledge, psn: psn, syndrome: wire.AckSyndrome, msn: msn, original: original}
}

// transmit turns the engine once and returns what it said. Payload goes to s.data.
func (s *peerScript) transmit(budget int) (replies []reply, more bool) {
	_, more = s.e.Transmit(0, s.burst, budget)
	frames := s.burst.Frames()
	for i := range frames {
		f := &frames[i]
		b := f.BTH()
		if b.DestQP() != peerQPN || b.AckReq() || b.PKey() != ib.DefaultPKey || f.Stable {
			s.t.Errorf("frame %v: destination %v, A %v, P_Key %#x, stable %v", b.Opcode(), b.DestQP(), b.AckReq(), b.PKey(), f.Stable)
		}
		r := reply{op: b.Opcode(), psn: b.PSN(), n: f.PayloadLen()}
		if h := wire.FindAETH(f.Header()); h != nil {
			r.syndrome, r.msn = h.Syndrome(), h.MSN()
		}
		if h := wire.FindAtomicAckETH(f.Header()); h != nil {
			r.original = h.Original()
		}
		payload := make([]byte, f.PayloadLen())
		if err := dma.ReadPieces(payload, f.Payload()); err != nil {
			more = s.e.Faulted(0, f.Cookie) || more
			continue
		}
		s.data = append(s.data, payload...)
		replies = append(replies, r)
	}
	s.burst.Consume(len(frames))
	return replies, more
}

// expect compares all that the responder has to say, in order.
func (s *peerScript) expect(want ...reply) {
	s.t.Helper()
	s.data = s.data[:0]
	var got []reply
	for more := true; more; {
		var r []reply
		r, more = s.transmit(1 << 20)
		got = append(got, r...)
	}
	s.compare(got, want)
}

func (s *peerScript) compare(got, want []reply) {
	s.t.Helper()
	if !slices.Equal(got, want) {
		s.t.Errorf("answers\n got %v\nwant %v", got, want)
	}
}

func received(wrid uint64, n uint32) completion {
	return completion{wrid, transport.Completion{Opcode: ib.WCRecv, ByteLen: n, SrcQP: peerQPN}}
}

func receivedImm(wrid uint64, n, imm uint32) completion {
	c := received(wrid, n)
	c.Flags, c.Imm = ib.WCWithImm, imm
	return c
}

func writtenImm(wrid uint64, n, imm uint32) completion {
	c := receivedImm(wrid, n, imm)
	c.Opcode = ib.WCRecvRDMAWithImm
	return c
}

func receivedInv(wrid uint64, n uint32, key ib.RKey) completion {
	c := received(wrid, n)
	c.Flags, c.Imm = ib.WCWithInv, uint32(key)
	return c
}

func failed(wrid uint64, s ib.WCStatus, v transport.VendorErr) completion {
	return completion{wrid, transport.Completion{Status: s, VendorErr: v}}
}

func flushed(wrid uint64) completion { return failed(wrid, ib.WCWRFlushErr, transport.VendorFlushed) }

// completed compares the completions since it was asked last.
func (s *peerScript) completed(want ...completion) {
	s.t.Helper()
	if !slices.Equal(s.qp.done, want) {
		s.t.Errorf("completions\n got %+v\nwant %+v", s.qp.done, want)
	}
	s.qp.done = s.qp.done[:0]
}

// raised compares the events since the script began; COMM_EST of the first packet is not among them.
func (s *peerScript) raised(want ...ib.EventType) {
	s.t.Helper()
	got := slices.DeleteFunc(slices.Clone(s.qp.events), func(e ib.EventType) bool { return e == ib.EventCommEst })
	if !slices.Equal(got, want) {
		s.t.Errorf("events: got %v, want %v", got, want)
	}
}

func (s *peerScript) state(want ib.QPState) {
	s.t.Helper()
	var a ib.QPAttr
	s.e.Query(&a)
	if a.State != want || s.qp.state != want {
		s.t.Errorf("state: engine %v, device was told %v, want %v", a.State, s.qp.state, want)
	}
}

// expectedPSN asks through Query.
func (s *peerScript) expectedPSN(want ib.PSN) {
	s.t.Helper()
	var a ib.QPAttr
	s.e.Query(&a)
	if a.RQPSN != want {
		s.t.Errorf("expected PSN: got %v, want %v", a.RQPSN, want)
	}
}

// dies expects a NAK and nothing else, the error state, and these events.
func (s *peerScript) dies(want reply, events ...ib.EventType) {
	s.t.Helper()
	s.expect(want)
	s.state(ib.StateErr)
	s.raised(events...)
	s.safe()
	// The connection is over: what comes now is dropped.
	s.deliver(sendOnly(want.psn, 4), s.writeOnly(want.psn, 0, 4))
	s.expect()
}

// wrote compares memory at an offset of the region.
func (s *peerScript) wrote(off int, want []byte) {
	s.t.Helper()
	if got := s.mem[off : off+len(want)]; !bytes.Equal(got, want) {
		s.t.Errorf("memory at %d: got %x..., want %x...", off, got[:min(16, len(got))], want[:min(16, len(want))])
	}
}

// untouched says that n bytes of the region hold what they held at first.
func (s *peerScript) untouched(off, n int) {
	s.t.Helper()
	for i := off; i < off+n; i++ {
		if s.mem[i] != pattern(i) {
			s.t.Errorf("memory at %d was written", i)
			return
		}
	}
}

// returned says that the READ responses carried the region's bytes at off.
func (s *peerScript) returned(off, n int) {
	s.t.Helper()
	if !bytes.Equal(s.data, s.mem[off:off+n]) {
		s.t.Errorf("READ returned %d bytes that are not the %d at %d", len(s.data), n, off)
	}
}

func (s *peerScript) word(off int) uint64 { return binary.NativeEndian.Uint64(s.mem[off:]) }

// safe says that nothing outside the region was written.
func (s *peerScript) safe() {
	s.t.Helper()
	for i, b := range s.raw[:canary] {
		if b != 0xc5 || s.raw[canary+memSize+i] != 0xc5 {
			s.t.Fatalf("memory beside the region was written, %d bytes from its start or end", i)
		}
	}
}

// broken is memory that is registered and gone.
type broken struct{ size uint64 }

func (b *broken) Size() uint64               { return b.size }
func (b *broken) Bytes(uint64, int) []byte   { return nil }
func (b *broken) Read([]byte, uint64) error  { return &dma.Fault{Mem: b} }
func (b *broken) Write([]byte, uint64) error { return &dma.Fault{Mem: b} }
func (b *broken) Close() error               { return nil }
func (b *broken) Atomic(uint64, dma.AtomicOp, uint64, uint64) (uint64, error) {
	return 0, &dma.Fault{Mem: b}
}

// brokenMR registers broken memory.
func (s *peerScript) brokenMR() *dma.MR {
	return s.register(&dma.MR{Domain: s.domain, Region: &broken{memSize}, Base: memBase, Length: memSize, Access: allRights})
}

// script is a conversation with a name and the clause it is about.
type script struct {
	name, clause string
	play         func(s *peerScript)
}

func play(t *testing.T, scripts []script) {
	t.Helper()
	for _, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			s := newPeerScript(t)
			c.play(s)
			s.safe()
			if t.Failed() {
				t.Logf("see %s", c.clause)
			}
		})
	}
}
