package rc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// recorded prints what is in the flight recorder, without the times and the queue pair.
func recorded(r *trace.Ring) (lines []string) {
	for _, e := range r.Snapshot(nil) {
		switch {
		case e.Kind == trace.Completed:
			lines = append(lines, fmt.Sprintf("completed %v", ib.WCStatus(e.Opcode)))
		case e.Kind == trace.Entered:
			lines = append(lines, fmt.Sprintf("entered %v", ib.QPState(e.Opcode)))
		case e.Kind.IsPacket():
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%v %v %d %v", e.Kind, wire.Opcode(e.Opcode), e.PSN, e.Verdict)))
		default:
			lines = append(lines, fmt.Sprintf("%v %d", e.Kind, e.PSN))
		}
	}
	return lines
}

// The flight recorder tells causes before their consequences.
func TestRequesterLeavesATrace(t *testing.T) {
	ring := trace.NewRing(128)
	s := newScript(t, ackTimeout(10, 7), rnrRetry(1), func(c *setup) { c.cfg.Trace = ring })
	s.post(send(1), read(2000), send(2))
	s.skip(at(0))
	s.deliver(at(us), ack(103), readFirst(101, 0, 1024), readFirst(101, 0, 1024))
	s.deliver(at(us), readLast(102, 1024, 976), nak(103, wire.NakSequence), rnrNak(103, 1), nak(103, 0x40), readOnly(103, 0, 2).says(0x60))
	s.skip(at(us + 10*us + ib.AckTimeout(10)))
	faulty := s.sent[len(s.sent)-1].cookie
	s.deliver(s.now, nak(103, wire.NakRemoteAccess))
	s.e.Faulted(s.now, faulty)
	s.completes(success(1), success(2), failed(3, ib.WCRemAccessErr))
	want := []string{
		"entered INIT", "entered RTR", "entered RTS",
		"sent RC_SEND_ONLY 100", "sent RC_RDMA_READ_REQUEST 101", "sent RC_SEND_ONLY 103",
		"received RC_ACKNOWLEDGE 103 out of order", "completed success",
		"received RC_RDMA_READ_RESPONSE_FIRST 101 accepted",
		"received RC_RDMA_READ_RESPONSE_FIRST 101 duplicate",
		"retransmitted RC_RDMA_READ_REQUEST 102", "retransmitted RC_SEND_ONLY 103",
		"received RC_RDMA_READ_RESPONSE_LAST 102 accepted", "completed success",
		"received RC_ACKNOWLEDGE 103 out of order",
		"received RC_ACKNOWLEDGE 103 receiver not ready",
		"RNR wait 103",
		"received RC_ACKNOWLEDGE 103 dropped",
		"received RC_RDMA_READ_RESPONSE_ONLY 103 dropped",
		"retransmitted RC_SEND_ONLY 103",
		"timeout 103", "retransmitted RC_SEND_ONLY 103",
		"received RC_ACKNOWLEDGE 103 refused", "entered ERR", "completed " + ib.WCRemAccessErr.String(),
	}
	got := recorded(ring)
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("event %d: %q, want %q\n%s", i, g, w, strings.Join(got, "\n"))
			break
		}
	}
}

func TestFaultLeavesATrace(t *testing.T) {
	ring := trace.NewRing(128)
	s := newScript(t, func(c *setup) { c.cfg.Trace = ring })
	s.post(send(1))
	s.e.Faulted(s.now, s.skip(at(0))[0].cookie)
	s.completes(failed(1, ib.WCLocProtErr))
	if !slices.Contains(recorded(ring), "memory fault 100") {
		t.Fatalf("no fault in %q", recorded(ring))
	}
}
