package rc

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/wire"
)

// At 100 MB/s a packet of 1060 bytes goes every 10.6 us. Each asks for an acknowledgement: the ACK timer of the first runs
// while the others wait.
func TestRequestsKeepThePace(t *testing.T) {
	s := newScript(t)
	s.e.SetRate(100e6)
	s.post(send(100 * 1024))
	got := s.skip(at(0))
	slack := len(got)
	s.run(at(ms))
	got = append(got, s.sent[s.seen:]...)
	s.seen = len(s.sent)
	bytes, asked := 0, 0
	for i := range got {
		bytes += len(got[i].head) + len(got[i].data) + 4
		if got[i].bth().AckReq() {
			asked++
		}
	}
	if slack != 1 {
		t.Errorf("%d packets at once", slack)
	}
	// The window has 64 packets.
	if n := len(got); n != 64 || got[63].when < at(60*10*us) || got[63].when > at(70*10*us) || asked != 64 {
		t.Fatalf("%d packets of %d bytes, %d of them asking", n, bytes, asked)
	}
	s.deliver(s.now, ack(got[63].psn()))
	s.run(s.now.Add(ms))
	if n := len(s.skip(s.now)); n != 36 {
		t.Errorf("%d more, want 36", n)
	}
	s.deliver(s.now, ack(199))
	s.completes(success(1))
	if s.e.Deadline() != clock.Never {
		t.Errorf("a deadline is left: %v", time.Duration(s.e.Deadline()))
	}
	s.e.SetRate(0)
	s.post(send(20 * 1024))
	if n := len(s.skip(s.now)); n != 20 {
		t.Errorf("%d packets without a rate, want 20", n)
	}
	s.deliver(s.now, ack(219))
	s.completes(success(2))
}

// READ responses keep the pace; acknowledgements do not wait for it.
func TestResponsesKeepThePace(t *testing.T) {
	s := newScript(t)
	s.e.SetRate(10e6)
	s.deliver(at(0), of(wire.RCReadRequest, 500, 0).to(base, s.mr.RKey, 20*1024))
	first := len(s.skip(at(0)))
	if first == 0 || first > 4 {
		t.Errorf("%d responses at once", first)
	}
	got := s.skip(at(3 * ms))
	if n := first + len(got); n != 20 || got[len(got)-1].when < at(1500*us) {
		t.Fatalf("%d responses, the last at %v", n, time.Duration(got[len(got)-1].when))
	}
	s.postRecv(0, 100)
	s.deliver(at(3*ms), sendOnly(520, 10).asking(true))
	if n := len(s.skip(at(3 * ms))); n != 1 {
		t.Errorf("%d acknowledgements", n)
	}
	s.receives(success(1001))
}
