package rc

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

func sendInv(n uint32, key ib.RKey) transport.Request {
	return transport.Request{Opcode: ib.WRSendWithInv, Flags: ib.SendSignaled, SGE: entries(n), Imm: uint32(key)}
}

func localInv(key ib.RKey) transport.Request {
	return transport.Request{Opcode: ib.WRLocalInv, Flags: ib.SendSignaled, Imm: uint32(key)}
}

// atomicWrite has its value in the request.
func atomicWrite(value uint64) transport.Request {
	r := write(0)
	r.Opcode, r.SGE, r.Swap = ib.WRAtomicWrite, nil, value
	return r
}

// flush asks that n bytes become visible to everybody.
func flush(n uint64) transport.Request {
	r := write(0)
	r.Opcode, r.SGE, r.Length, r.Flush.Placement = ib.WRFlush, nil, n, ib.FlushGlobal
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
	inv       *ib.RKey
	feth      *[2]uint8 // placement, level
	srqn      *uint32
	syndrome  *wire.Syndrome
	msn       *uint32
	original  *uint64
	asks      *bool
	solicited *bool
	stable    *bool
	run       int // packets, if more than one
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
func (p packet) invalidates(k ib.RKey) packet { p.inv = &k; return p }
func (p packet) flushes(placement ib.FlushPlacement, l ib.FlushLevel) packet {
	p.feth = &[2]uint8{uint8(placement), uint8(l)}
	return p
}

// xrc makes it the packet of an extended connection, for the shared receive queue if it is a request.
func (p packet) xrc(srqn uint32) packet {
	p.op |= wire.XRCSendFirst
	if p.op.IsRequest() {
		p.srqn = &srqn
	}
	return p
}
func (p packet) asking(v bool) packet         { p.asks = &v; return p }
func (p packet) se(v bool) packet             { p.solicited = &v; return p }
func (p packet) times(n int) packet           { p.run, p.bytes = n, p.bytes*n; return p }
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
	if i := wire.FindIETH(h); i != nil && p.inv != nil {
		i.SetRKey(*p.inv)
	}
	if f := wire.FindFETH(h); f != nil && p.feth != nil {
		f.SetPlacement(p.feth[0])
		f.SetSelectivity(p.feth[1])
	}
	if x := wire.FindXRCETH(h); x != nil && p.srqn != nil {
		x.SetSRQN(*p.srqn)
	}
	out.Opcode, out.Header = p.op, h
	out.SetPayload(data)
	out.SetRun(p.run)
}

// sentPacket is a frame as the port saw it.
type sentPacket struct {
	when   clock.Time
	head   []byte
	data   []byte
	stable bool
	cookie uint64
	run    int // packets
}

func (s *script) capture(f *wire.Frame) sentPacket {
	s.t.Helper()
	p := sentPacket{when: s.now, head: append([]byte(nil), f.Header()...), stable: f.Stable, cookie: f.Cookie, run: f.Packets()}
	p.data = make([]byte, f.PayloadLen())
	if err := dma.ReadPieces(p.data, f.Payload()); err != nil {
		s.t.Fatalf("payload of a frame: %v", err)
	}
	b := f.BTH()
	if f.Path != s.path || f.QPN != localQPN || b.DestQP() != peerQPN || b.PKey() != ib.DefaultPKey || !b.MigReq() {
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
	if p.run > 1 {
		s += fmt.Sprintf(", %d packets", p.run)
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
	case max(p.run, 1) != g.run:
		return "packets of the run"
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
	if i := wire.FindIETH(g.head); p.inv != nil && (i == nil || i.RKey() != *p.inv) {
		return "IETH"
	}
	if f := wire.FindFETH(g.head); p.feth != nil && (f == nil || *p.feth != [2]uint8{f.Placement(), f.Selectivity()}) {
		return "FETH"
	}
	if x := wire.FindXRCETH(g.head); (x != nil) != (p.srqn != nil) || x != nil && x.SRQN() != *p.srqn {
		return "XRCETH"
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
