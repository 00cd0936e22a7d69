package ud

import (
	"encoding/binary"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Receive implements transport.Engine. A datagram that does not fit, has the wrong Q_Key or finds no receive is dropped,
// and leaves receive and state as they were: who sends it may be anybody (IBA 9.8.3.2). Only what is wrong with the receive
// itself, or with the queue it comes from, takes the queue pair to the error state.
//
// The first 40 bytes of a receive are for the network header, and count in byte_len: that of IPv6, or 20 bytes of zero and
// that of IPv4 with a right checksum, by which programs tell them apart.
func (e *Engine) Receive(_ clock.Time, p *wire.Packet) bool {
	if !e.Hears() || p.Opcode.Service() != wire.ServiceUD {
		return false
	}
	deth := wire.FindDETH(p.Header)
	switch {
	case deth == nil, deth.QKey() != e.Attr().QKey, !p.Opcode.Payload().Fits(p.Len, maxDatagram),
		p.BTH().PadCount() != uint8(-p.Len&3):
		e.cfg.Counters.MessagesDropped++
		return false
	}
	r := e.Take()
	if r == nil {
		e.cfg.Counters.MessagesDropped++
		return e.State() == ib.StateErr
	}
	if r.Length < ib.GRHSize+uint64(p.Len) {
		e.cfg.Counters.RespLocalLengthError++
		e.cfg.Counters.MessagesDropped++
		return false
	}
	putGRH(e.grh.B, p)
	if !e.Scatter(0, p, e.piece[:]) || p.Len > 0 && !e.Scatter(ib.GRHSize, p, p.Payload) {
		return e.State() == ib.StateErr
	}
	wc := transport.Completion{
		Opcode: ib.WCRecv, Flags: ib.WCGRH, ByteLen: ib.GRHSize + uint32(p.Len), SrcQP: deth.SourceQP(), SL: p.SL,
		Network: networkType(p), Solicited: p.BTH().Solicited(),
	}
	if h := wire.FindImmDt(p.Header); h != nil {
		wc.Flags |= ib.WCWithImm
		wc.Imm = h.Data()
	}
	e.End(wc)
	return e.State() == ib.StateErr
}

// Fields of the network headers. A port of UDP sockets sees addresses, traffic class and hop limit; what it does not see,
// identification, fragment flags and flow label, is 0.
const (
	ipv4Size = 20
	udpSize  = 8
	protoUDP = 17
)

// networkType tells which header stands in the GRH's place.
func networkType(p *wire.Packet) ib.NetworkType {
	if p.Source.Is4() {
		return ib.NetworkIPv4
	}
	return ib.NetworkIPv6
}

// putGRH writes the 40 bytes in front of a datagram.
func putGRH(b []byte, p *wire.Packet) {
	clear(b)
	n := udpSize + len(p.Header) + p.Len + int(p.BTH().PadCount()) + wire.ICRCSize
	if !p.Source.Is4() {
		b[0], b[1] = 6<<4|p.TrafficClass>>4, p.TrafficClass<<4
		binary.BigEndian.PutUint16(b[4:], uint16(n))
		b[6], b[7] = protoUDP, p.HopLimit
		copy(b[8:], p.Source[:])
		copy(b[24:], p.Dest[:])
		return
	}
	h := b[ib.GRHSize-ipv4Size:]
	h[0], h[1] = 4<<4|ipv4Size/4, p.TrafficClass
	binary.BigEndian.PutUint16(h[2:], uint16(ipv4Size+n))
	h[8], h[9] = p.HopLimit, protoUDP
	copy(h[12:], p.Source[12:])
	copy(h[16:], p.Dest[12:])
	binary.BigEndian.PutUint16(h[10:], Checksum(h))
}

// Checksum is the header checksum of IPv4 (RFC 791) over h, whose own field counts as 0; of a header with a right one it
// is 0.
func Checksum(h []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
