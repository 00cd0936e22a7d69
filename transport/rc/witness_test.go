package rc_test

import (
	"slices"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// TestResponderIsRecorded has every verdict once.
func TestResponderIsRecorded(t *testing.T) {
	s := newPeerScript(t)
	s.deliver(sendOnly(100, 8)) // not ready
	s.post(1, 64)
	s.deliver(sendOnly(100, 8), sendOnly(100, 8), sendOnly(105, 8))
	s.deliver(s.writeOnly(101, 0, 8).local(&broken{64}))
	s.deliver(s.writeOnly(101, 0, 8).keyed(1))
	s.expect(ack(100, 1), nak(101, wire.NakRemoteAccess, 1))
	received := func(psn ib.PSN, op wire.Opcode, v trace.Verdict) trace.Event {
		return trace.Event{QPN: 0x11, PSN: psn, Length: 8, Kind: trace.Received, Opcode: uint8(op), Verdict: v}
	}
	sent := func(psn ib.PSN, y wire.Syndrome) trace.Event {
		return trace.Event{QPN: 0x11, PSN: psn, Kind: trace.Sent, Opcode: uint8(wire.RCAcknowledge), Syndrome: uint8(y)}
	}
	want := []trace.Event{
		received(100, wire.RCSendOnly, trace.NotReady),
		received(100, wire.RCSendOnly, trace.Accepted),
		{QPN: 0x11, Length: 8, Kind: trace.Completed, Opcode: uint8(ib.WCSuccess)},
		received(100, wire.RCSendOnly, trace.Duplicate),
		received(105, wire.RCSendOnly, trace.OutOfOrder),
		received(101, wire.RCWriteOnly, trace.Dropped),
		received(101, wire.RCWriteOnly, trace.NAKed),
		sent(100, wire.AckSyndrome),
		sent(101, wire.NakRemoteAccess),
	}
	got := slices.DeleteFunc(s.trace.Snapshot(nil), func(e trace.Event) bool { return e.Kind == trace.Entered })
	if !slices.Equal(got, want) {
		t.Errorf("recorded\n got %v\nwant %v", got, want)
	}
}
