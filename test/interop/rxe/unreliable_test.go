package rxe

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/transport/ud"
	"github.com/softnic/softnicd/wire"
)

func unreliable(name string) bool { return strings.HasPrefix(name, "uc_") || name == "pingpong_uc_v4" }

// An unreliable connection in the place of each host: the requests of the capture arrive whole, without an answer, and the
// same operations make the same packets.
func TestUnreliable(t *testing.T) {
	captures(t, unreliable, func(t *testing.T, name string, frames []*frame) {
		var got, want []packet
		for _, fl := range flows(t, name, wire.ServiceUC, frames) {
			in, out := newResponder(t, fl), newRequester(t, fl)
			for _, f := range fl.frames {
				in.request(f, nil)
				out.until(f)
				want = append(want, packetOf(f.packet.Header, f.payload()))
			}
			in.received()
			if len(in.sent) > 0 {
				t.Errorf("an unreliable connection answers: %v", in.sent)
			}
			out.run(out.now + clock.Time(time.Second))
			out.completed()
			got = append(got, out.sent...)
		}
		compare(t, "requester "+name, got, want)
	})
}

// datagrams are the captures that have any: those of the connection manager go from queue pair 1 to queue pair 1.
func datagrams(name string) bool {
	return strings.HasPrefix(name, "ud_") || strings.HasPrefix(name, "fields_") || strings.HasPrefix(name, "cm_") || name == "pingpong_ud_v4"
}

// A queue pair for datagrams in the place of each host: each datagram of the capture arrives, with where it came from in
// front, and the same request makes the same packet.
func TestDatagrams(t *testing.T) {
	captures(t, datagrams, func(t *testing.T, name string, frames []*frame) {
		var got, want []packet
		senders := map[end]*requester{}
		for _, f := range frames {
			if f.packet.Opcode.Service() != wire.ServiceUD {
				continue
			}
			deth := wire.FindDETH(f.packet.Header)
			receiveDatagram(t, name, f)
			me := end{f.datagram.Source, deth.SourceQP()}
			s := senders[me]
			if s == nil {
				s = &requester{host: newHost(t)}
				s.connect(wire.ServiceUD, me, ib.QPAttr{PathMTU: mtuOf(name), SQPSN: f.psn(), QKey: deth.QKey()})
				senders[me] = s
			}
			s.run(f.at)
			s.askDatagram(f)
			s.transmit()
			got, s.sent = append(got, s.sent...), nil
			want = append(want, packetOf(f.packet.Header, f.payload()))
		}
		compare(t, "requester "+name, got, want)
		for me, s := range senders {
			for _, d := range s.sendDone {
				if d.Status != ib.WCSuccess {
					t.Errorf("%v: a datagram ends with %v", me, d.Status)
				}
			}
		}
	})
}

func (r *requester) askDatagram(f *frame) {
	data, deth := f.payload(), wire.FindDETH(f.packet.Header)
	buffer := r.register(uint64(len(r.regions)+1)<<20, max(len(data), 1), 0)
	n := copy(buffer.bytes, data)
	req := transport.Request{Opcode: operations[f.packet.Opcode], Length: uint64(n),
		SGE:      []ib.SGE{{Addr: buffer.base, Length: uint32(n), LKey: buffer.mr.LKey}},
		Datagram: transport.Datagram{Path: &wire.Path{HopLimit: 64}, QPN: f.packet.BTH().DestQP(), QKey: deth.QKey()}}
	if imm := wire.FindImmDt(f.packet.Header); imm != nil {
		req.Imm = imm.Data()
	}
	if f.packet.BTH().Solicited() {
		req.Flags |= ib.SendSolicited
	}
	r.post(req)
}

func receiveDatagram(t *testing.T, name string, f *frame) {
	t.Helper()
	h, deth := newHost(t), wire.FindDETH(f.packet.Header)
	buffer := h.register(receiveAt, probeSize, 0)
	h.connect(wire.ServiceUD, end{f.datagram.Dest, f.packet.BTH().DestQP()}, ib.QPAttr{PathMTU: mtuOf(name), QKey: deth.QKey()})
	h.postRecv(buffer, probeSize)
	h.deliver(f)
	if len(h.recvDone) != 1 {
		t.Errorf("frame %d: a datagram does not arrive", f.index)
		return
	}
	d := h.recvDone[0]
	imm := wire.FindImmDt(f.packet.Header)
	switch {
	case d.Status != ib.WCSuccess, d.Flags&ib.WCGRH == 0, d.SrcQP != deth.SourceQP(), len(d.data) != ib.GRHSize+f.packet.Len,
		imm != nil && (d.Flags&ib.WCWithImm == 0 || d.Imm != imm.Data()):
		t.Errorf("frame %d: %+v", f.index, d.Completion)
	case !bytes.Equal(d.data[ib.GRHSize:], f.payload()):
		t.Errorf("frame %d: other bytes arrive", f.index)
	case !bytes.Equal(d.data[:ib.GRHSize], networkHeader(f)):
		t.Errorf("frame %d: in front of the datagram are\n%x, not\n%x", f.index, d.data[:ib.GRHSize], networkHeader(f))
	}
}

// networkHeader is what rxe puts in front of a datagram: the network header as it came, an IPv4 header behind 20 bytes of
// zero. We do not keep identification and flags of IPv4, and make the checksum of what is left.
func networkHeader(f *frame) []byte {
	if !f.datagram.Source.Is4() {
		return f.ethernet[ethernetLen:][:ipv6Len]
	}
	b := make([]byte, ib.GRHSize)
	h := b[ib.GRHSize-ipv4Len:]
	copy(h, f.ethernet[ethernetLen:])
	clear(h[4:8])
	clear(h[10:12])
	sum := ud.Checksum(h)
	h[10], h[11] = byte(sum>>8), byte(sum)
	return b
}
