package rxe

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// flow is what one side of a connection asked of the other, and the answers.
type flow struct {
	name      string // of the capture
	requester end
	responder end
	frames    []*frame // in their order; requests of the requester and responses to it, no others
	mtu       ib.MTU
	messages  []*message
}

// end is one queue pair of a connection.
type end struct {
	gid ib.GID
	qpn ib.QPN
}

// connection is both directions. rxe gives both the same UDP source port, made from the two queue pairs' numbers.
type connection struct {
	port uint16
	ends [2]end
}

// flows divides a capture. Frames of one service only are looked at.
func flows(t *testing.T, name string, service wire.Service, frames []*frame) (out []*flow) {
	t.Helper()
	var connections []*connection
	for _, f := range frames {
		if f.packet.Opcode.Service() != service {
			continue
		}
		i := slices.IndexFunc(connections, func(c *connection) bool { return c.port == f.datagram.SourcePort })
		if i < 0 {
			i = len(connections)
			connections = append(connections, &connection{f.datagram.SourcePort, [2]end{{gid: f.datagram.Source}, {gid: f.datagram.Dest}}})
		}
		to := connections[i].to(f)
		if q := f.packet.BTH().DestQP(); to.qpn == 0 {
			to.qpn = q
		} else if to.qpn != q {
			t.Fatalf("frame %d goes to queue pair %v, others from port %d go to %v", f.index, q, f.datagram.SourcePort, to.qpn)
		}
	}
	for _, c := range connections {
		for i := range c.ends {
			fl := &flow{name: name, requester: c.ends[i], responder: c.ends[1-i], mtu: mtuOf(name)}
			asked := false
			for _, f := range frames {
				if f.packet.Opcode.Service() != service || f.datagram.SourcePort != c.port {
					continue
				}
				request := c.to(f) == &c.ends[1-i]
				if request == f.packet.Opcode.IsRequest() {
					fl.frames = append(fl.frames, f)
					asked = asked || request
				}
			}
			if asked {
				fl.assemble(t)
				out = append(out, fl)
			}
		}
	}
	return out
}

func (c *connection) to(f *frame) *end {
	if f.datagram.Dest == c.ends[0].gid {
		return &c.ends[0]
	}
	return &c.ends[1]
}

// message is one operation as its packets tell it.
type message struct {
	op        ib.WROpcode
	psn       ib.PSN // of its first packet
	packets   uint32 // numbers that it takes
	solicited bool
	data      []byte // what it carries
	remote    uint64
	rkey      ib.RKey
	length    int
	imm       uint32 // immediate or key
	swap      uint64
	compare   uint64
	result    []byte        // what a READ or atomic brought
	refused   wire.Syndrome // how it was refused for good, if it was
	seen      int           // index of the first frame of it
	receives  ib.PSN        // the packet that takes the receive, if one is taken
}

var operations = map[wire.Opcode]ib.WROpcode{
	wire.RCSendLast: ib.WRSend, wire.RCSendOnly: ib.WRSend, wire.RCSendLastImm: ib.WRSendWithImm,
	wire.RCSendOnlyImm: ib.WRSendWithImm, wire.RCSendLastInv: ib.WRSendWithInv, wire.RCSendOnlyInv: ib.WRSendWithInv,
	wire.RCWriteLast: ib.WRRDMAWrite, wire.RCWriteOnly: ib.WRRDMAWrite, wire.RCWriteLastImm: ib.WRRDMAWriteWithImm,
	wire.RCWriteOnlyImm: ib.WRRDMAWriteWithImm, wire.RCReadRequest: ib.WRRDMARead,
	wire.RCCompareSwap: ib.WRAtomicCmpAndSwp, wire.RCFetchAdd: ib.WRAtomicFetchAdd,
	wire.UCSendLast: ib.WRSend, wire.UCSendOnly: ib.WRSend, wire.UCSendLastImm: ib.WRSendWithImm,
	wire.UCSendOnlyImm: ib.WRSendWithImm, wire.UCWriteLast: ib.WRRDMAWrite, wire.UCWriteOnly: ib.WRRDMAWrite,
	wire.UCWriteLastImm: ib.WRRDMAWriteWithImm, wire.UCWriteOnlyImm: ib.WRRDMAWriteWithImm,
	wire.UDSendOnly: ib.WRSend, wire.UDSendOnlyImm: ib.WRSendWithImm,
}

func (m *message) takesReceive() bool {
	switch m.op {
	case ib.WRSend, ib.WRSendWithImm, ib.WRSendWithInv, ib.WRRDMAWriteWithImm:
		return true
	}
	return false
}

func (m *message) has(psn ib.PSN) bool {
	d := psn.Diff(m.psn)
	return d >= 0 && d < int32(m.packets)
}

// assemble finds the messages: requests in the order of their numbers, whatever was sent more than once left out.
func (fl *flow) assemble(t *testing.T) {
	t.Helper()
	first := map[ib.PSN]*frame{}
	var psn ib.PSN
	for _, f := range fl.frames {
		if !f.packet.Opcode.IsRequest() {
			continue
		}
		if len(first) == 0 {
			psn = f.psn()
		}
		if first[f.psn()] == nil {
			first[f.psn()] = f
		}
	}
	for first[psn] != nil {
		m := &message{psn: psn, seen: first[psn].index}
		for done := false; !done; psn = psn.Next() {
			f := first[psn]
			if f == nil {
				t.Fatalf("the packet %v of a message is missing", psn)
			}
			m.add(f, psn, fl.mtu)
			done = f.packet.Opcode.Ends() || f.packet.Opcode.IsRead() || f.packet.Opcode.IsAtomic()
		}
		psn = m.psn.Add(m.packets)
		fl.messages = append(fl.messages, m)
	}
	for p := range first {
		if !p.Before(psn) {
			t.Fatalf("a message before %v is missing", p)
		}
	}
	for _, f := range fl.frames {
		if f.packet.Opcode.IsResponse() {
			fl.answer(f)
		}
	}
}

// add takes in the next packet.
func (m *message) add(f *frame, psn ib.PSN, mtu ib.MTU) {
	op, h := f.packet.Opcode, f.packet.Header
	m.seen = min(m.seen, f.index)
	m.packets++
	m.data = append(m.data, f.payload()...)
	if reth := wire.FindRETH(h); reth != nil {
		m.remote, m.rkey, m.length = reth.VA(), reth.RKey(), int(reth.Length())
	}
	if a := wire.FindAtomicETH(h); a != nil {
		m.remote, m.rkey, m.swap, m.compare, m.length = a.VA(), a.RKey(), a.SwapAdd(), a.Compare(), 8
	}
	if imm := wire.FindImmDt(h); imm != nil {
		m.imm = imm.Data()
	}
	if inv := wire.FindIETH(h); inv != nil {
		m.imm = uint32(inv.RKey())
	}
	if op.IsSend() && (op.IsFirst() || op.IsOnly()) || op.IsWrite() && wire.FindImmDt(h) != nil {
		m.receives = psn
	}
	if wr, ok := operations[op]; ok {
		m.op, m.solicited = wr, f.packet.BTH().Solicited()
	}
	switch {
	case op.IsRead():
		m.packets = uint32(max(1, (m.length+mtu.Bytes()-1)/mtu.Bytes()))
		m.result = make([]byte, m.length)
	case op.IsAtomic():
		m.result = make([]byte, 8)
	}
}

// answer notes what a response brings.
func (fl *flow) answer(f *frame) {
	for _, m := range fl.messages {
		if !m.has(f.psn()) {
			continue
		}
		switch a := wire.FindAETH(f.packet.Header); {
		case f.packet.Opcode.IsReadResponse() && m.op == ib.WRRDMARead:
			copy(m.result[int(f.psn().Diff(m.psn))*fl.mtu.Bytes():], f.payload())
		case f.packet.Opcode == wire.RCAtomicAcknowledge:
			old := wire.FindAtomicAckETH(f.packet.Header).Original()
			putWord(m.result, old)
		case a != nil && a.Syndrome().IsNak() && a.Syndrome() != wire.NakSequence:
			m.refused = a.Syndrome()
		}
	}
}

// packet is what is compared of one: header and payload, without the bits that the specification leaves to the sender.
type packet struct {
	head, payload []byte
}

const (
	migReq = 0x40 // of byte 1 of BTH
	ackReq = 0x80 // of byte 8
)

func packetOf(header, payload []byte) packet {
	h := bytes.Clone(header)
	h[1] &^= migReq
	if wire.Opcode(h[0]).IsRequest() {
		h[8] &^= ackReq
	}
	return packet{h, bytes.Clone(payload)}
}

func (p packet) equal(q packet) bool {
	return bytes.Equal(p.head, q.head) && bytes.Equal(p.payload, q.payload)
}

func (p packet) String() string {
	b := (*wire.BTH)(p.head)
	s := fmt.Sprintf("%v %#x", b.Opcode(), uint32(b.PSN()))
	if n := len(p.payload); n > 0 {
		s += fmt.Sprintf(", %d bytes", n)
	}
	if a := wire.FindAETH(p.head); a != nil {
		s += fmt.Sprintf(", %v, MSN %d", a.Syndrome(), a.MSN())
	}
	if r := wire.FindRETH(p.head); r != nil {
		s += fmt.Sprintf(", VA %#x, %d bytes of %#x", r.VA(), r.Length(), uint32(r.RKey()))
	}
	return s
}
