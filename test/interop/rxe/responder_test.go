package rxe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

func reliable(name string) bool {
	return !strings.HasPrefix(name, "uc_") && !strings.HasPrefix(name, "ud_") && name != "pingpong_uc_v4" &&
		name != "pingpong_ud_v4" && name != "cm_udaddy_v4" && name != "cm_refused_v4"
}

// The memory of a probe: 64 KiB, in which receives are posted, too, from the beginning.
const (
	probeSize = 64 << 10
	receiveAt = 0x10000 // where the others have their receives
)

// An engine in the place of the host that was asked: the requests of the capture bring the responses of the capture, in the
// same order, and leave the same bytes in memory.
func TestResponder(t *testing.T) {
	captures(t, reliable, func(t *testing.T, name string, frames []*frame) {
		var got, want []packet
		for _, fl := range flows(t, name, wire.ServiceRC, frames) {
			r := newResponder(t, fl)
			for i, f := range fl.frames {
				if f.packet.Opcode.IsRequest() {
					r.request(f, fl.frames[i+1:])
				} else {
					want = append(want, packetOf(f.packet.Header, f.payload()))
				}
			}
			got = append(got, r.sent...)
			r.received()
		}
		compare(t, "responder "+name, got, want)
	})
}

// responder is a host that was asked.
type responder struct {
	*host
	flow    *flow
	buffer  *region // of receives
	recvLen int
	posted  map[*message]bool
	next    ib.PSN // that was not delivered yet
}

func newResponder(t *testing.T, fl *flow) *responder {
	t.Helper()
	r := &responder{host: newHost(t), flow: fl, posted: map[*message]bool{}, next: fl.messages[0].psn, recvLen: probeSize}
	if probed(fl.name) {
		r.probe()
	} else {
		r.program()
	}
	if fl.name == "nak_length_v4_mtu1024" {
		r.recvLen = 16
	}
	timer := uint8(12)
	for _, f := range fl.frames {
		if a := wire.FindAETH(f.packet.Header); a != nil && a.Syndrome().IsRNR() {
			timer = a.Syndrome().RNRCode()
		}
	}
	r.connect(fl.frames[0].packet.Opcode.Service(), fl.responder, ib.QPAttr{PathMTU: fl.mtu, DestQPN: fl.requester.qpn, RQPSN: r.next,
		SQPSN: 0x200, MaxDestRDAtomic: 16, MaxRDAtomic: 16, MinRNRTimer: timer, RetryCnt: 7, RNRRetry: 7})
	return r
}

// probe prepares the memory of a probe: byte i is 5i+1. The lowest address in its capture is where it begins.
func (r *responder) probe() {
	base := ^uint64(0)
	for _, m := range r.flow.messages {
		if m.length > 0 {
			base = min(base, m.remote)
		}
	}
	// Two requests reach over the end, from here.
	if r.flow.name == "nak_access_v4_mtu1024" && base&0xfff == 0xff0 {
		base -= probeSize - 16
	}
	if base == ^uint64(0) {
		base = receiveAt
	}
	r.buffer = r.register(base, probeSize, 0)
	for i := range r.buffer.bytes {
		r.buffer.bytes[i] = byte(5*i + 1)
	}
	for _, m := range r.flow.messages {
		switch {
		case m.rkey == 0, m.rkey == wrongKey:
		case r.flow.name == windowed:
			r.keys[m.rkey] = r.window(m.rkey)
		default:
			r.keys[m.rkey] = r.buffer.mr.RKey
		}
	}
}

const (
	wrongKey = 0xdead00 // of nak_access
	windowed = "window_v4_mtu1024"
)

// window binds a window to the first page, as the host that was asked had done. The window's own part of the key is ours,
// the variant that of the capture.
func (r *responder) window(key ib.RKey) ib.RKey {
	if mine, ok := r.keys[key]; ok {
		return mine
	}
	w := &dma.Window{Domain: r.domain, Type: ib.MWType2, Handle: 1}
	if err := r.table.InsertWindow(w); err != nil {
		r.t.Fatal(err)
	}
	b := dma.Bind{Handle: 1, Key: w.RKey()&^0xff | key&0xff, LKey: r.buffer.mr.LKey, Addr: r.buffer.base, Length: 4096,
		Access: ib.AccessRemoteRead | ib.AccessRemoteWrite}
	if v := r.table.Bind(r.domain, r.flow.responder.qpn, &b); v != dma.OK {
		r.t.Fatal(v)
	}
	return b.Key
}

// program prepares the memory of a program: what its peer named, and receives elsewhere.
func (r *responder) program() {
	r.buffer = r.register(receiveAt, probeSize, 0)
	type extent struct{ from, to uint64 }
	named := map[ib.RKey]extent{}
	for _, m := range r.flow.messages {
		if m.rkey == 0 {
			continue
		}
		e, ok := named[m.rkey]
		if !ok {
			e.from = m.remote
		}
		named[m.rkey] = extent{min(e.from, m.remote), max(e.to, m.remote+uint64(m.length))}
	}
	for key, e := range named {
		r.register(e.from, int(e.to-e.from), key)
	}
}

// request delivers a request. What comes later in the capture tells whether a receive was there for it.
func (r *responder) request(f *frame, later []*frame) {
	r.t.Helper()
	var m *message
	for _, m = range r.flow.messages {
		if m.has(f.psn()) {
			break
		}
	}
	fresh := !f.psn().Before(r.next)
	if m.takesReceive() && f.psn() == m.receives && !r.posted[m] && !notReady(f, later) {
		r.postRecv(r.buffer, r.recvLen)
		r.posted[m] = true
	}
	if !probed(r.flow.name) && m.op == ib.WRRDMARead && fresh {
		copy(r.at(m.remote, m.length), m.result) // the program wrote it just now
	}
	r.deliver(f)
	if f.psn() == r.next {
		r.next = f.psn().Next()
	}
	last := m.psn.Add(m.packets - 1)
	if m.op == ib.WRRDMAWrite && f.psn() == last && r.next == last.Next() && m.refused == 0 && !bytes.Equal(r.at(m.remote, m.length), m.data) {
		r.t.Errorf("WRITE %v is not in memory", m.psn)
	}
	if m.op == ib.WRRDMARead {
		r.next = m.psn.Add(m.packets)
	}
}

// notReady reports whether a request was answered with an RNR NAK.
func notReady(f *frame, later []*frame) bool {
	for _, l := range later {
		if l.psn() != f.psn() {
			continue
		}
		if l.packet.Opcode.IsRequest() {
			return false
		}
		if a := wire.FindAETH(l.packet.Header); a != nil && a.Syndrome().IsRNR() {
			return true
		}
	}
	return false
}

// received holds the completions of receives to the messages.
func (r *responder) received() {
	r.t.Helper()
	n := 0
	for _, m := range r.flow.messages {
		if !m.takesReceive() || !r.posted[m] {
			continue
		}
		if n == len(r.recvDone) {
			r.t.Errorf("the receive of %v is not completed", m.psn)
			continue
		}
		d := r.recvDone[n]
		n++
		switch {
		case m.refused != 0 && d.Status != ib.WCSuccess:
		case m.refused != 0 || d.Status != ib.WCSuccess:
			r.t.Errorf("the receive of %v: %v", m.psn, d.Status)
		case m.op == ib.WRRDMAWriteWithImm && (d.Imm != m.imm || int(d.ByteLen) != m.length):
			r.t.Errorf("the receive of %v: %d bytes, immediate %#x", m.psn, d.ByteLen, d.Imm)
		case m.op == ib.WRSendWithInv && (d.Flags&ib.WCWithInv == 0 || ib.RKey(d.Imm) != r.key(ib.RKey(m.imm))):
			r.t.Errorf("the receive of %v invalidates %#x", m.psn, d.Imm)
		case m.op == ib.WRSendWithImm && (d.Flags&ib.WCWithImm == 0 || d.Imm != m.imm):
			r.t.Errorf("the receive of %v: immediate %#x", m.psn, d.Imm)
		case m.op != ib.WRRDMAWriteWithImm && !bytes.Equal(d.data, m.data):
			r.t.Errorf("the receive of %v has %d bytes, which are not those that were sent", m.psn, d.ByteLen)
		case d.Solicited != m.solicited:
			r.t.Errorf("the receive of %v: solicited %v", m.psn, d.Solicited)
		}
	}
	if n != len(r.recvDone) {
		r.t.Errorf("%d receives completed, not %d", len(r.recvDone), n)
	}
}
