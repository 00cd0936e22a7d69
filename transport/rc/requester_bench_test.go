package rc

import (
	"testing"

	"github.com/softnic/softnicd/ib"
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

// BenchmarkLongWrite is the requester's share of a packet of a long message.
func BenchmarkLongWrite(b *testing.B) {
	s := newScript(b, pathMTU(ib.MTU4096), windowOf(64))
	s.qp.forget = true
	one := []transport.Request{write(1 << 17)} // 32 packets
	one[0].SGE[0].LKey = s.mr.LKey
	var answer wire.Packet
	p := ack(0)
	p.make(&answer)
	packets := 0
	for b.Loop() {
		one[0].Index = s.qp.posted
		s.qp.posted++
		s.qp.sends = one
		s.e.Transmit(0, s.burst, 1<<20)
		packets += s.burst.Len()
		s.burst.Consume(s.burst.Len())
		answer.BTH().SetPSN(s.e.req.nxt.Sub(1))
		s.e.Receive(0, &answer)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}
