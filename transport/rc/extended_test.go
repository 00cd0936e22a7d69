package rc

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Scripts of the extended reliable connection (IBA A14): what is different from the plain one. That the rest is the same
// is the same code.

const (
	ours   = uint32(0xabcdef) // the number of a shared receive queue whose domain is the region's
	theirs = uint32(0x000042) // another's, in the same XRC domain
)

func initiator(c *setup) { c.cfg.Service = wire.ServiceXRC }

// fakeTarget is an XRC domain with two shared receive queues.
type fakeTarget struct {
	domains  map[uint32]*dma.Domain
	selected []uint32
}

func (f *fakeTarget) Select(n uint32) *dma.Domain {
	f.selected = append(f.selected[:0], n)
	return f.domains[n]
}

func target(f *fakeTarget) func(*setup) {
	return func(c *setup) {
		f.domains = map[uint32]*dma.Domain{ours: c.cfg.Domain, theirs: {}}
		c.cfg.Service, c.cfg.Target, c.cfg.Domain = wire.ServiceXRC, f, nil
	}
}

func newTarget(t *testing.T) (*script, *fakeTarget) {
	f := &fakeTarget{}
	return newScript(t, target(f)), f
}

func to(srqn uint32, r transport.Request) transport.Request {
	r.SRQN = srqn
	return r
}

// Every request packet names the queue, MIDDLE and LAST too; the opcodes are those of the group 0xa0.
func TestInitiatorNamesQueue(t *testing.T) {
	s := newScript(t, initiator, maxRDAtomic(16))
	s.post(
		to(ours, send(2500)),
		to(theirs, sendImm(10, 0xcafe)),
		to(ours, write(1500)),
		to(ours, read(100)),
		to(theirs, fetchAdd(7)),
		to(ours, flush(100)),
		to(ours, atomicWrite(5)),
		to(theirs, sendInv(0, 0x1234)),
	)
	s.expect(at(0),
		sendFirst(100, 1024).xrc(ours), sendMiddle(101, 1024).xrc(ours), sendLast(102, 452).xrc(ours).asking(true),
		of(wire.RCSendOnlyImm, 103, 10).imme(0xcafe).xrc(theirs),
		writeFirst(104, 1024).to(remoteVA, remoteKey, 1500).xrc(ours), writeLast(105, 476).xrc(ours),
		readRequest(106, 0, 100).xrc(ours),
		of(wire.RCFetchAdd, 107, 0).operand(remoteVA, remoteKey, 7, 0).xrc(theirs),
		of(wire.RCFlush, 108, 0).flushes(ib.FlushGlobal, 0).xrc(ours),
		of(wire.RCAtomicWrite, 109, 8).xrc(ours),
		of(wire.RCSendOnlyInv, 110, 0).invalidates(0x1234).xrc(theirs),
	)
	// Responses have no XRCETH, and the opcodes of the group.
	s.deliver(at(us),
		ack(105).xrc(0), readOnly(106, 0, 100).xrc(0), atomicAck(107, 3).xrc(0),
		of(wire.RCReadResponseOnly, 108, 0).says(wire.AckSyndrome).xrc(0), ack(110).xrc(0))
	s.completes(success(1), success(2), success(3), success(4), success(5), success(6), success(7), success(8))
}

// A packet that is sent again is the packet that was lost.
func TestInitiatorRetransmits(t *testing.T) {
	s := newScript(t, initiator)
	s.post(to(ours, send(3000)))
	s.expect(at(0), sendFirst(100, 1024).xrc(ours), sendMiddle(101, 1024).xrc(ours), sendLast(102, 952).xrc(ours))
	s.deliver(at(us), nak(101, wire.NakSequence).xrc(0))
	s.expect(at(us), sendMiddle(101, 1024).xrc(ours), sendLast(102, 952).xrc(ours))
	s.deliver(at(2*us), ack(102).xrc(0))
	s.completes(success(1))
}

// An initiator has no responder, a target no requester; neither hears another service.
func TestHalvesHearTheirOwn(t *testing.T) {
	s := newScript(t, initiator)
	s.post(to(ours, send(10)))
	s.expect(at(0), sendOnly(100, 10).xrc(ours))
	s.deliver(at(us), sendOnly(500, 10).xrc(ours), ack(100), sendOnly(500, 10), readRequest(500, 0, 8).xrc(ours))
	s.quiet()
	s.inState(ib.StateRTS)
	s.completes()
	s.deliver(at(us), ack(100).xrc(0))
	s.completes(success(1))

	s, _ = newTarget(t)
	s.postRecv(0, 64)
	s.deliver(at(0), sendOnly(500, 10), ack(100).xrc(0), nak(100, wire.NakSequence).xrc(0), of(wire.UCSendOnly, 500, 10))
	s.quiet()
	s.receives()
	s.deliver(at(us), sendOnly(500, 10).asking(true).xrc(ours))
	s.expect(at(us), ack(500).completing(1).xrc(0))
	s.receives(success(1001))
}

// Receives come from the queue that the request names, one message after another.
func TestTargetSelects(t *testing.T) {
	s, f := newTarget(t)
	s.postRecv(0, 4096, 4096)
	s.deliver(at(0), sendFirst(500, 1024).xrc(ours), sendLast(501, 10).asking(true).xrc(ours))
	if f.selected[0] != ours {
		t.Errorf("selected %#x", f.selected)
	}
	s.expect(at(0), ack(501).completing(1).xrc(0))
	s.receives(success(1001))
	// A receive whose key is of another domain than the queue.
	s.deliver(at(us), sendOnly(502, 10).xrc(theirs))
	s.expect(at(us), nak(502, wire.NakRemoteOperation).xrc(0))
	s.receives(failed(1002, ib.WCLocProtErr))
	s.inState(ib.StateErr)
}

// Keys are those of the domain of the queue (A14): for WRITE, READ and atomics.
func TestTargetKeys(t *testing.T) {
	for name, c := range map[string]struct {
		request packet
		answer  func(s *script) packet
	}{
		"write": {of(wire.RCWriteOnly, 500, 16).asking(true), func(*script) packet { return ack(500) }},
		"read": {of(wire.RCReadRequest, 500, 0), func(s *script) packet {
			return of(wire.RCReadResponseOnly, 500, 16).holds(append([]byte(nil), s.memory[64:80]...))
		}},
		"atomic":       {of(wire.RCFetchAdd, 500, 0), func(*script) packet { return of(wire.RCAtomicAcknowledge, 500, 0) }},
		"flush":        {of(wire.RCFlush, 500, 0).flushes(ib.FlushGlobal, ib.FlushRange), func(*script) packet { return of(wire.RCReadResponseOnly, 500, 0) }},
		"atomic write": {of(wire.RCAtomicWrite, 500, 8), func(*script) packet { return ack(500) }},
	} {
		t.Run(name, func(t *testing.T) {
			length := uint32(16)
			if name == "atomic write" {
				length = 8
			}
			s, _ := newTarget(t)
			p := c.request.to(base+64, s.mr.RKey, length).operand(base+64, s.mr.RKey, 1, 0)
			want := c.answer(s).xrc(0)
			s.deliver(at(0), p.xrc(ours))
			s.expect(at(0), want)
			s.inState(ib.StateRTS)

			s, _ = newTarget(t)
			p = c.request.to(base+64, s.mr.RKey, length).operand(base+64, s.mr.RKey, 1, 0)
			before := bytes.Clone(s.memory)
			s.deliver(at(0), p.xrc(theirs))
			s.expect(at(0), nak(500, wire.NakRemoteAccess).xrc(0))
			s.inState(ib.StateErr)
			if !bytes.Equal(before, s.memory) {
				t.Error("memory was written by the key of another domain")
			}
		})
	}
}

// A READ that is asked for again is answered from the domain that it was executed in, whoever was served meanwhile.
func TestTargetRepeatsRead(t *testing.T) {
	s, _ := newTarget(t)
	s.postRecv(0, 64)
	ask := of(wire.RCReadRequest, 500, 0).to(base+256, s.mr.RKey, 32).xrc(ours)
	data := bytes.Clone(s.memory[256:288])
	s.deliver(at(0), ask)
	s.expect(at(0), of(wire.RCReadResponseOnly, 500, 32).holds(data).xrc(0))
	s.deliver(at(us), writeOnly(501, 0).asking(true).xrc(theirs))
	s.expect(at(us), ack(501).xrc(0))
	s.deliver(at(2*us), ask)
	s.expect(at(2*us), of(wire.RCReadResponseOnly, 500, 32).holds(data).xrc(0))
	s.qp.recvs = nil
}

// What names no queue of the domain, or changes its mind in the middle of a message, is an XRC violation: NAK remote access
// error, and the end of the connection (A14).
func TestTargetViolations(t *testing.T) {
	for name, play := range map[string]func(s *script) ib.PSN{
		"no such queue": func(s *script) ib.PSN {
			s.deliver(at(0), sendOnly(500, 10).xrc(7))
			return 500
		},
		"a write of nothing names one too": func(s *script) ib.PSN {
			s.deliver(at(0), writeOnly(500, 0).xrc(7))
			return 500
		},
		"another queue in the middle": func(s *script) ib.PSN {
			s.deliver(at(0), writeFirst(500, 1024).to(base, s.mr.RKey, 3000).xrc(ours), writeMiddle(501, 1024).xrc(theirs))
			return 501
		},
		"another queue at the end of a write with immediate": func(s *script) ib.PSN {
			s.deliver(at(0), writeFirst(500, 1024).to(base, s.mr.RKey, 1034).xrc(ours),
				of(wire.RCWriteLastImm, 501, 10).imme(1).xrc(theirs))
			return 501
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTarget(t)
			s.qp.recvs = nil
			psn := play(s)
			s.expect(at(0), nak(psn, wire.NakRemoteAccess).xrc(0))
			s.inState(ib.StateErr)
			if len(s.qp.events) != 1 || s.qp.events[0] != ib.EventQPAccessErr {
				t.Errorf("events %v", s.qp.events)
			}
			s.counts("resp_remote_access_errors", s.counters.RespRemoteAccessErrors, 1)
			s.deliver(at(us), sendOnly(psn, 10).xrc(ours)) // it is over
			s.quiet()
		})
	}
}

// The queue is gone in the middle of a message: the rest of it is refused, and the receive in hand is the device's to
// forget.
func TestTargetQueueGone(t *testing.T) {
	s, f := newTarget(t)
	s.postRecv(0, 4096)
	s.deliver(at(0), sendFirst(500, 1024).xrc(ours))
	delete(f.domains, ours)
	s.deliver(at(us), sendLast(501, 10).xrc(ours))
	s.expect(at(us), nak(501, wire.NakRemoteAccess).xrc(0))
	s.receives(flushed(1001)...)
	s.inState(ib.StateErr)
}

// An empty queue is RNR NAKed, and a duplicate acknowledged whatever it names.
func TestTargetNotReady(t *testing.T) {
	s, _ := newTarget(t)
	s.deliver(at(0), sendOnly(500, 10).asking(true).xrc(ours))
	s.expect(at(0), rnrNak(500, 12).xrc(0))
	s.postRecv(0, 64)
	s.deliver(at(us), sendOnly(500, 10).asking(true).xrc(ours))
	s.expect(at(us), ack(500).completing(1).xrc(0))
	s.receives(success(1001))
	s.deliver(at(2*us), sendOnly(500, 10).asking(true).xrc(ours), sendOnly(500, 10).asking(true).xrc(7))
	s.expect(at(2*us), ack(500).completing(1).xrc(0))
	s.inState(ib.StateRTS)
}

func TestExtendedDoesNotAllocate(t *testing.T) {
	f := &fakeTarget{selected: make([]uint32, 0, 1)}
	for name, choice := range map[string]func(*setup){"initiator": initiator, "target": target(f)} {
		s := newScript(t, choice)
		s.qp.forget = true
		out := wire.NewBurst(16)
		p := sendOnly(500, 64).asking(true).xrc(ours)
		var made wire.Packet
		p.make(&made)
		a := ack(100).xrc(0)
		var answer wire.Packet
		a.make(&answer)
		n := ib.PSN(0)
		request := to(ours, send(64))
		request.SGE[0].LKey = s.mr.LKey
		recv := transport.Receive{SGE: []ib.SGE{{Addr: base, Length: 64, LKey: s.mr.LKey}}, Length: 64}
		sends, recvs := make([]transport.Request, 0, 4), make([]transport.Receive, 0, 4)
		turn := func() {
			if name == "initiator" {
				s.qp.sends = append(sends[:0], request)
				request.Index++
				s.e.Transmit(s.now, out, 1<<20)
				answer.BTH().SetPSN(100 + n)
				s.e.Receive(s.now, &answer)
			} else {
				s.qp.recvs = append(recvs[:0], recv)
				recv.Index++
				made.BTH().SetPSN(500 + n)
				s.e.Receive(s.now, &made)
				s.e.Transmit(s.now, out, 1<<20)
			}
			out.Consume(out.Len())
			n++
		}
		turn()
		if allocs := testing.AllocsPerRun(100, turn); allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
		if s.e.state != ib.StateRTS || n < 100 || s.qp.ended+s.qp.endedRecvs != uint32(n) {
			t.Errorf("%s: state %v, %d turns, %d sends and %d receives ended", name, s.e.state, n, s.qp.ended, s.qp.endedRecvs)
		}
	}
}
