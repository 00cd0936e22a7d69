package rc_test

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// endless is a queue pair whose receive queue never runs empty.
type endless struct {
	receiveQueue
	sge ib.SGE
}

func (q *endless) FetchRecv(r *transport.Receive) transport.Fetched {
	r.SGE = append(r.SGE[:0], q.sge)
	r.Length = uint64(q.sge.Length)
	return transport.Ready
}

func (q *endless) CompleteRecv(*transport.Receive, *transport.Completion) {}

// endlessScript returns a script whose receives never run out.
func endlessScript(t testing.TB) *peerScript {
	s := newPeerScriptWith(t, 16, epsn)
	q := &endless{sge: ib.SGE{Addr: bufBase, Length: 8192, LKey: s.bufs.LKey}}
	s.connect(q)
	return s
}

// conversation is a list of packets that is delivered again and again, with PSNs that go on.
type conversation struct {
	s       *peerScript
	packets []*wire.Packet
	psns    []uint32 // PSNs that each takes
	next    ib.PSN
}

func (s *peerScript) converse(rs ...request) *conversation {
	c := &conversation{s: s, next: epsn}
	for _, r := range rs {
		n := uint32(1)
		if r.op == wire.RCReadRequest {
			n = max(1, (r.size+mtu-1)/mtu)
		}
		c.packets = append(c.packets, r.build())
		c.psns = append(c.psns, n)
	}
	return c
}

func (c *conversation) turn(times int) {
	for i, p := range c.packets {
		for range times {
			p.BTH().SetPSN(c.next)
			c.s.e.Receive(0, p)
		}
		c.next = c.next.Add(c.psns[i])
	}
	for more := true; more; {
		_, more = c.s.e.Transmit(0, c.s.burst, 1<<20)
		c.s.burst.Consume(c.s.burst.Len())
	}
}

// TestResponderAllocates nothing after Modify, whatever the peer asks.
func TestResponderAllocates(t *testing.T) {
	for _, c := range []struct {
		name  string
		times int
		make  func(s *peerScript) []request
	}{
		{"send", 1, func(*peerScript) []request {
			return []request{sendOnly(0, 64), sendFirst(0), sendMiddle(0), sendLastImm(0, 9, 1)}
		}},
		{"write", 1, func(s *peerScript) []request {
			return []request{s.writeOnly(0, 0, 64), s.writeFirst(0, 0, 2*mtu+9), writeMiddle(0), writeLast(0, 9), s.writeOnlyImm(0, 0, 9, 1)}
		}},
		{"read", 1, func(s *peerScript) []request {
			return []request{s.read(0, 0, 8), s.read(0, 0, 32*mtu), s.read(0, 0, 0)}
		}},
		{"atomic", 1, func(s *peerScript) []request { return []request{s.fetchAdd(0, 0, 1), s.compareSwap(0, 8, 1, 2)} }},
		{"everything twice", 2, func(s *peerScript) []request {
			return []request{s.writeOnly(0, 0, 8), s.read(0, 0, 3*mtu), sendOnly(0, 9), s.fetchAdd(0, 0, 1), s.writeOnly(0, 0, 64), s.read(0, 0, 8)}
		}},
		{"placement", 1, func(s *peerScript) []request {
			return []request{s.atomicWrite(0, 0), s.flush(0, 0, 64), s.flush(0, 0, 0).of(ib.FlushRegion)}
		}},
		{"gaps", 1, func(s *peerScript) []request { return []request{s.writeOnly(0, 0, 8).keyed(0)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := endlessScript(t)
			talk := s.converse(c.make(s)...)
			if c.name == "gaps" {
				talk.next = talk.next.Add(7)
			}
			talk.turn(c.times)
			if n := testing.AllocsPerRun(100, func() { talk.turn(c.times) }); n != 0 {
				t.Errorf("%v allocations a turn", n)
			}
			if c.name != "gaps" {
				s.expectedPSN(talk.next)
			}
			s.safe()
		})
	}
}

func BenchmarkResponder(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(s *peerScript) []request
	}{
		{"send 64 B", func(*peerScript) []request { return []request{sendOnly(0, 64)} }},
		{"write 1 KiB", func(s *peerScript) []request { return []request{s.writeOnly(0, 0, mtu)} }},
		{"read 1 KiB", func(s *peerScript) []request { return []request{s.read(0, 0, mtu)} }},
		{"fetch add", func(s *peerScript) []request { return []request{s.fetchAdd(0, 0, 1)} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := endlessScript(b)
			talk := s.converse(c.make(s)...)
			b.ReportAllocs()
			for b.Loop() {
				talk.turn(1)
			}
		})
	}
}
