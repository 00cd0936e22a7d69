package rc

import (
	"testing"

	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// BenchmarkSendAndAck is the requester's share of a 64-byte message: fetch, packet, acknowledgement, completion.
func BenchmarkSendAndAck(b *testing.B) {
	s := newScript(b)
	s.qp.forget = true
	one := []transport.Request{send(64)}
	one[0].SGE[0].LKey = s.mr.LKey
	var answer wire.Packet
	p := ack(0)
	p.make(&answer)
	for b.Loop() {
		answer.BTH().SetPSN(s.e.req.nxt)
		one[0].Index = s.qp.posted
		s.qp.posted++
		s.qp.sends = one
		s.e.Transmit(0, s.burst, 1<<20)
		s.burst.Consume(1)
		s.e.Receive(0, &answer)
	}
}
