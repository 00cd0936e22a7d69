package scripts

import (
	"bytes"
	"fmt"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Requests of this side. They name memory from its beginning, there and here; results go to results.

func request(op ib.WROpcode, list ...ib.SGE) transport.Request {
	return transport.Request{Opcode: op, Flags: ib.SendSignaled, SGE: list, Remote: memory}
}

func gather(n uint32) ib.SGE { return ib.SGE{Addr: memory, Length: n} }
func result(n uint32) ib.SGE { return ib.SGE{Addr: results, Length: n} }

func send(n uint32) transport.Request  { return request(ib.WRSend, gather(n)) }
func write(n uint32) transport.Request { return request(ib.WRRDMAWrite, gather(n)) }
func read(n uint32) transport.Request  { return request(ib.WRRDMARead, result(n)) }

func sendImm(n, imm uint32) transport.Request {
	r := request(ib.WRSendWithImm, gather(n))
	r.Imm = imm
	return r
}

func writeImm(n, imm uint32) transport.Request {
	r := request(ib.WRRDMAWriteWithImm, gather(n))
	r.Imm = imm
	return r
}

func sendInv(n uint32, key ib.RKey) transport.Request {
	r := request(ib.WRSendWithInv, gather(n))
	r.Imm = uint32(key)
	return r
}

func compareSwap(compare, swap uint64) transport.Request {
	r := request(ib.WRAtomicCmpAndSwp, result(8))
	r.Compare, r.Swap = compare, swap
	return r
}

func fetchAdd(add uint64) transport.Request {
	r := request(ib.WRAtomicFetchAdd, result(8))
	r.Swap = add
	return r
}

func atomicWrite(value uint64) transport.Request {
	r := request(ib.WRAtomicWrite)
	r.Swap = value
	return r
}

func flush(n uint64) transport.Request {
	r := request(ib.WRFlush)
	r.Length, r.Flush.Placement = n, ib.FlushGlobal
	return r
}

func localInv(key ib.RKey) transport.Request {
	r := request(ib.WRLocalInv)
	r.Imm = uint32(key)
	return r
}

// bind binds a window to n bytes of memory under key.
func (s *script) bind(w *dma.Window, key ib.RKey, n uint64, rights ib.AccessFlags) transport.Request {
	r := request(ib.WRBindMW)
	r.RKey, r.Length = key, n
	r.Bind = transport.Bind{Window: w.Handle, LKey: s.mr.LKey, Access: rights}
	return r
}

func inline(data string) transport.Request {
	r := request(ib.WRSend)
	r.Flags |= ib.SendInline
	r.IsInline, r.Inline.B, r.Length = true, []byte(data), uint64(len(data))
	return r
}

func flagged(r transport.Request, f ib.SendFlags) transport.Request {
	r.Flags |= f
	return r
}

func unsignaled(r transport.Request) transport.Request {
	r.Flags &^= ib.SendSignaled
	return r
}

// packet is one that the peer sends, or that is wanted of the engine. When it is delivered, what is not said is as an
// honest peer has it; when it is wanted, only what is said is compared.
type packet struct {
	op     wire.Opcode
	psn    ib.PSN
	n      int // bytes of payload
	data   []byte
	off    int // of the payload in the sender's memory, if known
	known  bool
	pad    int // added to the right pad count
	v6     bool
	fields []field
}

// field is the value of a header field. One description serves both directions.
type field struct {
	*kind
	value uint64
}

type kind struct {
	name string
	set  func(h []byte, v uint64)
	get  func(h []byte) uint64
}

func bth(h []byte) *wire.BTH { return (*wire.BTH)(h) }

func bit(v bool) uint64 {
	if v {
		return 1
	}
	return 0
}

var (
	fieldA   = kind{"A", func(h []byte, v uint64) { bth(h).SetAckReq(v != 0) }, func(h []byte) uint64 { return bit(bth(h).AckReq()) }}
	fieldSE  = kind{"SE", func(h []byte, v uint64) { bth(h).SetSolicited(v != 0) }, func(h []byte) uint64 { return bit(bth(h).Solicited()) }}
	fieldM   = kind{"M", func(h []byte, v uint64) { bth(h).SetMigReq(v != 0) }, func(h []byte) uint64 { return bit(bth(h).MigReq()) }}
	fieldKey = kind{"P_Key", func(h []byte, v uint64) { bth(h).SetPKey(ib.PKey(v)) }, func(h []byte) uint64 { return uint64(bth(h).PKey()) }}
	fieldCN  = kind{"BECN", func(h []byte, v uint64) { bth(h).SetBECN(v != 0) }, func(h []byte) uint64 { return bit(bth(h).BECN()) }}
	fieldPad = kind{"PadCnt", func(h []byte, v uint64) { bth(h).SetPadCount(uint8(v)) }, func(h []byte) uint64 { return uint64(bth(h).PadCount()) }}
	fieldQP  = kind{"DestQP", func(h []byte, v uint64) { bth(h).SetDestQP(ib.QPN(v)) }, func(h []byte) uint64 { return uint64(bth(h).DestQP()) }}
	// The reserved bits of bytes 4 and 8.
	fieldReserved = kind{"reserved", func(h []byte, v uint64) { h[4] |= byte(v) & 63; h[8] |= byte(v) & 127 },
		func(h []byte) uint64 { return uint64(h[4]&63 | h[8]&127) }}

	fieldSyndrome = kind{"syndrome", func(h []byte, v uint64) { wire.FindAETH(h).SetSyndrome(wire.Syndrome(v)) },
		func(h []byte) uint64 { return uint64(wire.FindAETH(h).Syndrome()) }}
	fieldMSN = kind{"MSN", func(h []byte, v uint64) { wire.FindAETH(h).SetMSN(uint32(v)) },
		func(h []byte) uint64 { return uint64(wire.FindAETH(h).MSN()) }}
	fieldOriginal = kind{"original value", func(h []byte, v uint64) { wire.FindAtomicAckETH(h).SetOriginal(v) },
		func(h []byte) uint64 { return wire.FindAtomicAckETH(h).Original() }}

	fieldVA = kind{"VA", func(h []byte, v uint64) {
		if a := wire.FindAtomicETH(h); a != nil {
			a.SetVA(v)
			return
		}
		wire.FindRETH(h).SetVA(v)
	}, func(h []byte) uint64 {
		if a := wire.FindAtomicETH(h); a != nil {
			return a.VA()
		}
		return wire.FindRETH(h).VA()
	}}
	fieldRKey = kind{"R_Key", func(h []byte, v uint64) {
		if a := wire.FindAtomicETH(h); a != nil {
			a.SetRKey(ib.RKey(v))
			return
		}
		wire.FindRETH(h).SetRKey(ib.RKey(v))
	}, func(h []byte) uint64 {
		if a := wire.FindAtomicETH(h); a != nil {
			return uint64(a.RKey())
		}
		return uint64(wire.FindRETH(h).RKey())
	}}
	fieldLength = kind{"DMA length", func(h []byte, v uint64) { wire.FindRETH(h).SetLength(uint32(v)) },
		func(h []byte) uint64 { return uint64(wire.FindRETH(h).Length()) }}
	fieldSwap = kind{"swap or add", func(h []byte, v uint64) { wire.FindAtomicETH(h).SetSwapAdd(v) },
		func(h []byte) uint64 { return wire.FindAtomicETH(h).SwapAdd() }}
	fieldCompare = kind{"compare", func(h []byte, v uint64) { wire.FindAtomicETH(h).SetCompare(v) },
		func(h []byte) uint64 { return wire.FindAtomicETH(h).Compare() }}
	fieldImm = kind{"immediate", func(h []byte, v uint64) { wire.FindImmDt(h).SetData(uint32(v)) },
		func(h []byte) uint64 { return uint64(wire.FindImmDt(h).Data()) }}
	fieldInv = kind{"IETH", func(h []byte, v uint64) { wire.FindIETH(h).SetRKey(ib.RKey(v)) },
		func(h []byte) uint64 { return uint64(wire.FindIETH(h).RKey()) }}
	fieldPlacement = kind{"placement type", func(h []byte, v uint64) { wire.FindFETH(h).SetPlacement(uint8(v)) },
		func(h []byte) uint64 { return uint64(wire.FindFETH(h).Placement()) }}
	fieldSRQN = kind{"SRQ number", func(h []byte, v uint64) { wire.FindXRCETH(h).SetSRQN(uint32(v)) },
		func(h []byte) uint64 { return uint64(wire.FindXRCETH(h).SRQN()) }}
	fieldQKey = kind{"Q_Key", func(h []byte, v uint64) { wire.FindDETH(h).SetQKey(ib.QKey(v)) },
		func(h []byte) uint64 { return uint64(wire.FindDETH(h).QKey()) }}
	fieldSource = kind{"source QP", func(h []byte, v uint64) { wire.FindDETH(h).SetSourceQP(ib.QPN(v)) },
		func(h []byte) uint64 { return uint64(wire.FindDETH(h).SourceQP()) }}
	fieldLevel = kind{"selectivity", func(h []byte, v uint64) { wire.FindFETH(h).SetSelectivity(uint8(v)) },
		func(h []byte) uint64 { return uint64(wire.FindFETH(h).Selectivity()) }}
)

func (p packet) has(k *kind, v uint64) packet {
	// A new list: packets are values, and may share their beginning.
	p.fields = append(p.fields[:len(p.fields):len(p.fields)], field{k, v})
	return p
}

func (p packet) asks() packet                 { return p.has(&fieldA, 1) }
func (p packet) silent() packet               { return p.has(&fieldA, 0) }
func (p packet) se() packet                   { return p.has(&fieldSE, 1) }
func (p packet) notSE() packet                { return p.has(&fieldSE, 0) }
func (p packet) says(y wire.Syndrome) packet  { return p.has(&fieldSyndrome, uint64(y)) }
func (p packet) msn(n uint64) packet          { return p.has(&fieldMSN, n) }
func (p packet) original(v uint64) packet     { return p.has(&fieldOriginal, v) }
func (p packet) to(va uint64) packet          { return p.has(&fieldVA, va) }
func (p packet) key(k ib.RKey) packet         { return p.has(&fieldRKey, uint64(k)) }
func (p packet) length(n uint64) packet       { return p.has(&fieldLength, n) }
func (p packet) operand(v uint64) packet      { return p.has(&fieldSwap, v) }
func (p packet) comparing(v uint64) packet    { return p.has(&fieldCompare, v) }
func (p packet) imm(v uint64) packet          { return p.has(&fieldImm, v) }
func (p packet) invalidates(k ib.RKey) packet { return p.has(&fieldInv, uint64(k)) }
func (p packet) places(v ib.FlushPlacement, l ib.FlushLevel) packet {
	return p.has(&fieldPlacement, uint64(v)).has(&fieldLevel, uint64(l))
}
func (p packet) badPad() packet { p.pad = 1; return p }

// at says where in the sender's memory the payload comes from.
func (p packet) at(off int) packet { p.off, p.known = off, true; return p }

// carries says what the payload is.
func (p packet) carries(b []byte) packet { p.data, p.n = b, len(b); return p }

func of(op wire.Opcode, psn ib.PSN, n int) packet { return packet{op: op, psn: psn, n: n} }

func sendFirst(psn ib.PSN, n int) packet   { return of(wire.RCSendFirst, psn, n) }
func sendMiddle(psn ib.PSN, n int) packet  { return of(wire.RCSendMiddle, psn, n) }
func sendLast(psn ib.PSN, n int) packet    { return of(wire.RCSendLast, psn, n) }
func sendOnly(psn ib.PSN, n int) packet    { return of(wire.RCSendOnly, psn, n) }
func writeFirst(psn ib.PSN, n int) packet  { return of(wire.RCWriteFirst, psn, n) }
func writeMiddle(psn ib.PSN, n int) packet { return of(wire.RCWriteMiddle, psn, n) }
func writeLast(psn ib.PSN, n int) packet   { return of(wire.RCWriteLast, psn, n) }
func writeOnly(psn ib.PSN, n int) packet   { return of(wire.RCWriteOnly, psn, n) }

func sendOnlyImm(psn ib.PSN, n int, imm uint64) packet {
	return of(wire.RCSendOnlyImm, psn, n).imm(imm)
}
func sendLastImm(psn ib.PSN, n int, imm uint64) packet {
	return of(wire.RCSendLastImm, psn, n).imm(imm)
}
func writeOnlyImm(psn ib.PSN, n int, imm uint64) packet {
	return of(wire.RCWriteOnlyImm, psn, n).imm(imm)
}
func writeLastImm(psn ib.PSN, n int, imm uint64) packet {
	return of(wire.RCWriteLastImm, psn, n).imm(imm)
}
func sendOnlyInv(psn ib.PSN, n int, key ib.RKey) packet {
	return of(wire.RCSendOnlyInv, psn, n).invalidates(key)
}
func sendLastInv(psn ib.PSN, n int, key ib.RKey) packet {
	return of(wire.RCSendLastInv, psn, n).invalidates(key)
}

// readRequest asks for n bytes.
func readRequest(psn ib.PSN, n uint64) packet { return of(wire.RCReadRequest, psn, 0).length(n) }
func compareSwapRequest(psn ib.PSN, compare, swap uint64) packet {
	return of(wire.RCCompareSwap, psn, 0).comparing(compare).operand(swap)
}
func fetchAddRequest(psn ib.PSN, add uint64) packet { return of(wire.RCFetchAdd, psn, 0).operand(add) }
func atomicWriteRequest(psn ib.PSN, value []byte) packet {
	return of(wire.RCAtomicWrite, psn, 8).carries(value).length(8)
}
func flushRequest(psn ib.PSN, n uint64) packet {
	return of(wire.RCFlush, psn, 0).length(n).places(ib.FlushGlobal, ib.FlushRange)
}

func nak(psn ib.PSN, y wire.Syndrome) packet { return of(wire.RCAcknowledge, psn, 0).says(y) }
func ack(psn ib.PSN) packet                  { return nak(psn, wire.AckSyndrome) }
func rnrNak(psn ib.PSN, code uint8) packet   { return nak(psn, wire.RNRNak(code)) }
func atomicAck(psn ib.PSN, original uint64) packet {
	return of(wire.RCAtomicAcknowledge, psn, 0).says(wire.AckSyndrome).original(original)
}

// READ responses say from which offset of memory they are.
func readFirst(psn ib.PSN, off int) packet   { return of(wire.RCReadResponseFirst, psn, mtu).at(off) }
func readMiddle(psn ib.PSN, off int) packet  { return of(wire.RCReadResponseMiddle, psn, mtu).at(off) }
func readLast(psn ib.PSN, off, n int) packet { return of(wire.RCReadResponseLast, psn, n).at(off) }
func readOnly(psn ib.PSN, off, n int) packet { return of(wire.RCReadResponseOnly, psn, n).at(off) }

func (p packet) String() string {
	s := fmt.Sprintf("%v psn %d, %d bytes", p.op, uint32(p.psn), p.n)
	for _, f := range p.fields {
		if f.kind == &fieldSyndrome {
			s += ", " + wire.Syndrome(f.value).String()
			continue
		}
		s += fmt.Sprintf(", %s %#x", f.name, f.value)
	}
	return s
}

// build makes what the engine receives.
func (s *script) build(p packet) *wire.Packet {
	h := make([]byte, max(p.op.HeaderLen(), wire.BTHSize))
	b := bth(h)
	b.SetOpcode(p.op)
	b.SetPKey(ib.DefaultPKey)
	b.SetDestQP(here)
	b.SetPSN(p.psn)
	if p.data == nil {
		p.data = theirs(p.off, p.n)
	}
	b.SetPadCount(uint8(-len(p.data) + p.pad))
	// Only responders of reliable services can be asked.
	b.SetAckReq(p.op.IsRequest() && p.op.Ends() && (p.op.Service() == wire.ServiceRC || p.op.Service() == wire.ServiceXRC))
	if wire.FindXRCETH(h) != nil {
		fieldSRQN.set(h, ours)
	}
	if wire.FindDETH(h) != nil {
		fieldQKey.set(h, qkey)
		fieldSource.set(h, uint64(there))
	}
	if wire.FindRETH(h) != nil || wire.FindAtomicETH(h) != nil {
		fieldVA.set(h, memory)
		fieldRKey.set(h, uint64(s.mr.RKey))
	}
	if wire.FindRETH(h) != nil {
		fieldLength.set(h, uint64(p.n))
	}
	if wire.FindAETH(h) != nil {
		fieldSyndrome.set(h, uint64(wire.AckSyndrome))
	}
	for _, f := range p.fields {
		f.set(h, f.value)
	}
	out := &wire.Packet{Opcode: p.op, Header: h, Source: v4(2), Dest: v4(1), TrafficClass: 0x28, HopLimit: 61}
	if p.v6 {
		out.Source, out.Dest = v6(2), v6(1)
	}
	out.SetPayload(p.data)
	return out
}

// sent is a frame as the port saw it.
type sent struct {
	when   clock.Time
	head   []byte
	data   []byte
	stable bool
}

// capture reads a frame, unless its memory is gone, and holds it to what every packet of the connection has.
func (s *script) capture(f *wire.Frame) (sent, bool) {
	s.t.Helper()
	p := sent{when: s.now, head: bytes.Clone(f.Header()), stable: f.Stable, data: make([]byte, f.PayloadLen())}
	if dma.ReadPieces(p.data, f.Payload()) != nil {
		return p, false
	}
	b := f.BTH()
	if b.DestQP() != there || f.QPN != here || f.Path != path || b.TVer() != 0 || int(b.PadCount()) != -len(p.data)&3 ||
		fieldReserved.get(p.head) != 0 || b.FECN() || b.BECN() {
		s.t.Fatalf("header of %v is not what the connection's are", p)
	}
	return p, true
}

func (p sent) String() string {
	b := bth(p.head)
	s := fmt.Sprintf("%v psn %d, %d bytes", b.Opcode(), uint32(b.PSN()), len(p.data))
	if a := wire.FindAETH(p.head); a != nil {
		s += fmt.Sprintf(", %v, MSN %d", a.Syndrome(), a.MSN())
	}
	if r := wire.FindRETH(p.head); r != nil {
		s += fmt.Sprintf(", VA %#x, %d bytes", r.VA(), r.Length())
	}
	if b.AckReq() {
		s += ", A"
	}
	return fmt.Sprintf("%s at %v", s, time.Duration(p.when))
}

// differs says what is wrong with a packet, if anything.
func (s *script) differs(want *packet, got *sent, when clock.Time) string {
	b := bth(got.head)
	switch {
	case b.Opcode() != want.op:
		return "opcode"
	case b.PSN() != want.psn:
		return "PSN"
	case len(got.data) != want.n:
		return "bytes"
	case got.when != when:
		return "time"
	case want.known && !bytes.Equal(got.data, mine(want.off, want.n)), want.data != nil && !bytes.Equal(got.data, want.data):
		return "payload"
	}
	for _, f := range want.fields {
		if v := f.get(got.head); v != f.value {
			return fmt.Sprintf("%s is %#x", f.name, v)
		}
	}
	return ""
}
