package rxe

import (
	"bytes"
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// ends are the statuses of the requests of a capture that did not all succeed; each connection's last one.
var ends = map[string]ib.WCStatus{
	"nak_access_v4_mtu1024":   ib.WCRemAccessErr,
	"nak_length_v4_mtu1024":   ib.WCRemOpErr,
	"window_v4_mtu1024":       ib.WCRemAccessErr,
	"rnr_exceeded_v4_mtu1024": ib.WCRNRRetryExcErr,
	"timeout_v4_mtu1024":      ib.WCRetryExcErr,
}

// An engine in the place of the host that asked: it is given the operations when rxe was, has to send the requests of the
// capture, and completes them by the responses of the capture, with rxe's statuses and results.
func TestRequester(t *testing.T) {
	captures(t, reliable, func(t *testing.T, name string, frames []*frame) {
		var got, want []packet
		for _, fl := range flows(t, name, wire.ServiceRC, frames) {
			r := newRequester(t, fl)
			for _, f := range fl.frames {
				if f.packet.Opcode.IsRequest() {
					r.until(f)
					want = append(want, packetOf(f.packet.Header, f.payload()))
				} else {
					r.deliver(f)
				}
			}
			// Time for what is retried in vain.
			r.run(r.now + clock.Time(time.Minute))
			got = append(got, r.sent...)
			r.completed()
		}
		compare(t, "requester "+name, got, want)
	})
}

// requester is a host that asked.
type requester struct {
	*host
	flow *flow
	next int // message to post
}

func newRequester(t *testing.T, fl *flow) *requester {
	t.Helper()
	r := &requester{host: newHost(t), flow: fl}
	a := ib.QPAttr{PathMTU: fl.mtu, DestQPN: fl.responder.qpn, RQPSN: 0x200, SQPSN: fl.messages[0].psn,
		MaxDestRDAtomic: 16, MaxRDAtomic: 4, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	switch fl.name {
	case "timeout_v4_mtu1024":
		a.RetryCnt = 3
	case "rnr_exceeded_v4_mtu1024":
		a.RNRRetry = 2
	}
	r.connect(fl.frames[0].packet.Opcode.Service(), fl.requester, a)
	return r
}

// until lets time pass until a request was sent, and posts what it belongs to, and all before it, if that was not done.
func (r *requester) until(f *frame) {
	r.t.Helper()
	r.run(f.at)
	for ; r.next < len(r.flow.messages) && r.flow.messages[r.next].seen <= f.index; r.next++ {
		r.ask(r.flow.messages[r.next])
	}
	r.transmit()
}

// ask posts the operation that a message is. Each has memory of its own.
func (r *requester) ask(m *message) {
	buffer := r.register(uint64(len(r.regions)+1)<<20, max(len(m.data), len(m.result), 1), 0)
	n := copy(buffer.bytes, m.data)
	if m.result != nil {
		n = len(m.result)
	}
	req := transport.Request{Opcode: m.op, Remote: m.remote, RKey: m.rkey, Imm: m.imm, Swap: m.swap, Compare: m.compare,
		Length: uint64(n), SGE: []ib.SGE{{Addr: buffer.base, Length: uint32(n), LKey: buffer.mr.LKey}}}
	if m.solicited {
		req.Flags |= ib.SendSolicited
	}
	r.post(req)
}

// completed holds the completions to the messages.
func (r *requester) completed() {
	r.t.Helper()
	if len(r.sendDone) != len(r.flow.messages) {
		r.t.Fatalf("%d of %d requests completed", len(r.sendDone), len(r.flow.messages))
	}
	for i, m := range r.flow.messages {
		d, want := r.sendDone[i], ib.WCSuccess
		if i == len(r.flow.messages)-1 {
			want = ends[r.flow.name]
		}
		switch {
		case d.wrid != uint64(i)+1 || d.Status != want:
			r.t.Errorf("%v %v: request %d, %v, not %v", m.op, m.psn, d.wrid, d.Status, want)
		case want == ib.WCSuccess && m.result != nil && !bytes.Equal(d.data, m.result):
			r.t.Errorf("%v %v brought other bytes than rxe sent", m.op, m.psn)
		}
	}
}
