package rc

import (
	"bytes"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// Full packets of the middle go as a run, whose bounds are those of single packets.
func TestRunsOfRequests(t *testing.T) {
	t.Run("of a whole message", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.post(send(8*1024 + 5))
		s.expect(at(0), sendFirst(100, 1024), sendMiddle(101, 1024).times(7).asking(false).isStable(true).holds(pattern(1024, 7*1024)),
			sendLast(108, 5).asking(true))
		s.deliver(at(us), ack(108))
		s.completes(success(1))
	})
	t.Run("not of first and last", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.post(write(3 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), writeLast(102, 1024))
		s.deliver(at(us), ack(102))
		s.completes(success(1))
	})
	t.Run("the path does not take them", func(t *testing.T) {
		s := newScript(t)
		s.post(write(4 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), writeMiddle(102, 1024), writeLast(103, 1024))
		s.deliver(at(us), ack(103))
		s.completes(success(1))
	})
	t.Run("window, and numbers that wrap", func(t *testing.T) {
		s := newScript(t, takingRuns, windowOf(4), startPSN(0xfffffe))
		s.post(write(10 * 1024))
		s.expect(at(0), writeFirst(0xfffffe, 1024), writeMiddle(0xffffff, 1024).times(3).asking(true))
		s.deliver(at(us), ack(0xffffff))
		s.expect(at(us), writeMiddle(2, 1024).times(2).asking(true))
		s.deliver(at(2*us), ack(3))
		s.expect(at(2*us), writeMiddle(4, 1024).times(3), writeLast(7, 1024))
		s.deliver(at(3*us), ack(7))
		s.completes(success(1))
	})
	t.Run("an answer is asked for where it is due", func(t *testing.T) {
		s := newScript(t, takingRuns, askEvery(4))
		s.post(write(10 * 1024))
		s.expect(at(0), writeFirst(100, 1024).asking(false), writeMiddle(101, 1024).times(3).asking(true),
			writeMiddle(104, 1024).times(4).asking(true), writeMiddle(108, 1024), writeLast(109, 1024).asking(true))
		s.deliver(at(us), ack(109))
		s.completes(success(1))
	})
	t.Run("budget", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.post(write(10 * 1024))
		n, more := s.e.Transmit(0, s.burst, 4000)
		if frames := s.burst.Frames(); len(frames) != 2 || frames[1].Packets() != 3 || !more || n != frames[0].Len()+frames[1].Len() {
			t.Fatalf("%d frames, %d bytes", len(frames), n)
		}
		s.skip(0)
		s.deliver(at(us), ack(109))
		s.completes(success(1))
	})
	t.Run("in flight", func(t *testing.T) {
		s := newScript(t, takingRuns)
		shared := transport.InFlight{Limit: 4 * (packetOverhead + 1024)}
		s.e.cfg.Outstanding.Enter(&shared)
		s.post(write(10 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024).times(3).asking(true))
		if shared.Used() != shared.Limit {
			t.Fatalf("%d outstanding, want %d", shared.Used(), shared.Limit)
		}
		s.deliver(at(us), ack(102))
		s.expect(at(us), writeMiddle(104, 1024).times(3).asking(true))
		s.deliver(at(2*us), ack(106))
		s.expect(at(2*us), writeMiddle(107, 1024).times(2), writeLast(109, 1024))
		s.deliver(at(3*us), ack(109))
		if shared.Used() != 0 {
			t.Errorf("%d outstanding at the end", shared.Used())
		}
		s.completes(success(1))
	})
	t.Run("as long as the path takes them", func(t *testing.T) {
		s := newScript(t, runsOf(3))
		s.post(write(9 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024).times(3), writeMiddle(104, 1024).times(3),
			writeMiddle(107, 1024), writeLast(108, 1024))
		s.deliver(at(us), ack(108))
		s.completes(success(1))
	})
	t.Run("a path that takes single ones", func(t *testing.T) {
		s := newScript(t, runsOf(1))
		s.post(write(4 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), writeMiddle(102, 1024), writeLast(103, 1024))
		s.deliver(at(us), ack(103))
		s.completes(success(1))
	})
	t.Run("pace", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.e.SetRate(1 << 40)
		s.post(write(4 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024), writeMiddle(102, 1024), writeLast(103, 1024))
		s.deliver(at(us), ack(103))
		s.completes(success(1))
	})
	t.Run("sent again, and what is new is apart", func(t *testing.T) {
		s := newScript(t, takingRuns, windowOf(8))
		s.post(write(14 * 1024))
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024).times(7).asking(true))
		s.deliver(at(us), nak(103, wire.NakSequence))
		s.expect(at(us), writeMiddle(103, 1024).times(4).asking(true).isStable(false).holds(pattern(3*1024, 4*1024)))
		s.counts("retransmissions", s.counters.Retransmissions, 4)
		s.deliver(at(2*us), ack(106))
		s.expect(at(2*us), writeMiddle(107, 1024).isStable(false), writeMiddle(108, 1024).times(4).asking(true).isStable(true))
		s.deliver(at(3*us), ack(111))
		s.expect(at(3*us), writeMiddle(112, 1024), writeLast(113, 1024))
		s.deliver(at(4*us), ack(113))
		s.completes(success(1))
	})
	t.Run("a key that is bad in the middle", func(t *testing.T) {
		s := newScript(t, takingRuns)
		r := write(0)
		r.SGE = []ib.SGE{sge(0, 3000), {Addr: base, Length: 4000, LKey: 0x4711}}
		s.post(r)
		s.expect(at(0), writeFirst(100, 1024), writeMiddle(101, 1024).asking(true))
		s.deliver(at(us), ack(101))
		s.completes(failed(1, ib.WCLocProtErr))
		s.inState(ib.StateErr)
	})
}

// A run is taken as a whole, or else as its packets would be.
func TestRunReceived(t *testing.T) {
	// begin begins a WRITE of nine packets to 64 KiB of the region.
	begin := func(t *testing.T, choices ...func(*setup)) (*script, packet) {
		s := newScript(t, choices...)
		s.deliver(at(0), writeFirst(500, 1024).to(base+1<<16, s.mr.RKey, 9*1024))
		return s, writeMiddle(501, 1024).times(7)
	}
	take := func(t *testing.T, s *script, p packet, want bool) {
		t.Helper()
		var made wire.Packet
		p.make(&made)
		if got := s.take(&made); got != want {
			t.Fatalf("taken as a whole: %v", got)
		}
	}
	t.Run("whole", func(t *testing.T) {
		s, run := begin(t)
		take(t, s, run.asking(true), true)
		s.expect(at(0), ack(507).completing(0))
		s.deliver(at(us), writeLast(508, 1024).asking(true))
		s.expect(at(us), ack(508).completing(1))
		if !bytes.Equal(s.memory[1<<16+1024:][:7*1024], peerPattern(0, 7*1024)) {
			t.Error("the bytes are others")
		}
	})
	t.Run("numbers that wrap", func(t *testing.T) {
		s := newScript(t, func(c *setup) { c.attr.RQPSN = 0xfffffd })
		s.deliver(at(0), writeFirst(0xfffffd, 1024).to(base+1<<16, s.mr.RKey, 9*1024))
		take(t, s, writeMiddle(0xfffffe, 1024).times(7).asking(true), true)
		s.expect(at(0), ack(4))
	})
	t.Run("seen before, in part", func(t *testing.T) {
		s, run := begin(t)
		s.deliver(at(0), writeMiddle(501, 1024), writeMiddle(502, 1024))
		take(t, s, run.asking(true), false)
		s.counts("duplicates", s.counters.DuplicateRequest, 2)
		s.expect(at(0), ack(507))
	})
	t.Run("seen before, all of it", func(t *testing.T) {
		s, run := begin(t)
		take(t, s, run, true)
		take(t, s, run.asking(true), false)
		s.counts("duplicates", s.counters.DuplicateRequest, 7)
		s.expect(at(0), ack(507))
	})
	t.Run("something is missing before it", func(t *testing.T) {
		s, run := begin(t)
		run.psn++
		take(t, s, run, false)
		s.counts("out of sequence", s.counters.OutOfSequence, 7)
		s.expect(at(0), nak(501, wire.NakSequence))
	})
	t.Run("after a hole that it fills", func(t *testing.T) {
		s, run := begin(t)
		s.deliver(at(0), writeLast(508, 1024))
		s.expect(at(0), nak(501, wire.NakSequence))
		take(t, s, run.asking(true), true)
		s.expect(at(0), ack(507))
	})
	t.Run("more than was announced", func(t *testing.T) {
		s, _ := begin(t)
		take(t, s, writeMiddle(501, 1024).times(9).asking(true), false)
		s.expect(at(0), nak(508, wire.NakInvalidRequest))
		s.inState(ib.StateErr)
	})
	t.Run("the key is gone", func(t *testing.T) {
		s, run := begin(t)
		if err := s.table.Remove(s.mr); err != nil {
			t.Fatal(err)
		}
		take(t, s, run, false)
		s.expect(at(0), nak(501, wire.NakRemoteAccess))
		s.inState(ib.StateErr)
	})
	t.Run("packets of another length", func(t *testing.T) {
		s, _ := begin(t)
		take(t, s, writeMiddle(501, 1000).times(3), false)
		s.expect(at(0), nak(501, wire.NakInvalidRequest))
	})
	t.Run("a receive that is too short in its middle", func(t *testing.T) {
		s := newScript(t)
		s.postRecv(1<<16, 3500)
		s.deliver(at(0), sendFirst(500, 1024))
		take(t, s, sendMiddle(501, 1024).times(4), false)
		s.receives(failed(1001, ib.WCLocLenErr))
		s.expect(at(0), nak(503, wire.NakInvalidRequest))
		s.inState(ib.StateErr)
	})
	t.Run("of a SEND", func(t *testing.T) {
		s := newScript(t)
		s.postRecv(1<<16, 5*1024)
		s.deliver(at(0), sendFirst(500, 1024))
		take(t, s, sendMiddle(501, 1024).times(3).asking(true), true)
		s.expect(at(0), ack(503).completing(0))
		s.deliver(at(us), sendLast(504, 7))
		s.receives(success(1001))
		if !bytes.Equal(s.memory[1<<16+1024:][:3*1024], peerPattern(0, 3*1024)) {
			t.Error("the bytes are others")
		}
	})
	t.Run("in the error state", func(t *testing.T) {
		s, run := begin(t)
		s.modify(ib.StateErr, 0)
		take(t, s, run, false)
		s.quiet()
	})
	t.Run("an opcode that has no runs", func(t *testing.T) {
		s := newScript(t)
		take(t, s, writeOnly(500, 1024).to(base, s.mr.RKey, 1024).times(2).asking(true), false)
		s.expect(at(0), ack(501).completing(2))
	})
}

// READ responses go and come as runs.
func TestRunsOfResponses(t *testing.T) {
	t.Run("sent", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.deliver(at(0), readRequest(500, 0, 0).to(base, s.mr.RKey, 6*1024+1))
		s.expect(at(0), response(wire.RCReadResponseFirst, 500, 0, 0).holds(pattern(0, 1024)),
			readMiddle(501, 0, 1024).times(5).holds(pattern(1024, 5*1024)),
			response(wire.RCReadResponseLast, 506, 0, 0).holds(pattern(6*1024, 1)))
	})
	t.Run("sent as long as the path takes them", func(t *testing.T) {
		s := newScript(t, runsOf(3))
		s.deliver(at(0), readRequest(500, 0, 0).to(base, s.mr.RKey, 6*1024+1))
		s.expect(at(0), response(wire.RCReadResponseFirst, 500, 0, 0).holds(pattern(0, 1024)),
			readMiddle(501, 0, 1024).times(3).holds(pattern(1024, 3*1024)), readMiddle(504, 0, 1024).times(2).holds(pattern(4*1024, 2*1024)),
			response(wire.RCReadResponseLast, 506, 0, 0).holds(pattern(6*1024, 1)))
	})
	t.Run("the region ends earlier than it did", func(t *testing.T) {
		s := newScript(t, takingRuns)
		s.deliver(at(0), readRequest(500, 0, 0).to(base, s.mr.RKey, 6*1024))
		shorter := *s.mr
		shorter.Length = 2500
		if err := s.table.Replace(s.mr, &shorter); err != nil {
			t.Fatal(err)
		}
		s.expect(at(0), response(wire.RCReadResponseFirst, 500, 0, 0).holds(pattern(0, 1024)),
			response(wire.RCReadResponseMiddle, 501, 0, 0).holds(pattern(1024, 1024)), nak(502, wire.NakRemoteAccess))
		s.inState(ib.StateErr)
	})
	ask := func(t *testing.T, choices ...func(*setup)) *script {
		s := newScript(t, choices...)
		s.post(read(8 * 1024))
		s.expect(at(0), readRequest(100, 0, 8*1024))
		s.deliver(at(us), readFirst(100, 0, 1024))
		return s
	}
	take := func(t *testing.T, s *script, p packet, want bool) {
		t.Helper()
		var made wire.Packet
		p.make(&made)
		if got := s.take(&made); got != want {
			t.Fatalf("taken as a whole: %v", got)
		}
	}
	run := func(p ib.PSN, n int) packet {
		return readMiddle(p, 0, 1024).times(n).holds(peerPattern(int(p-100)*1024, n*1024))
	}
	done := func(t *testing.T, s *script) {
		t.Helper()
		s.completes(success(1))
		if !bytes.Equal(s.memory[1<<16:][:8*1024], peerPattern(0, 8*1024)) {
			t.Error("the bytes are others")
		}
	}
	t.Run("received", func(t *testing.T) {
		s := ask(t)
		take(t, s, run(101, 6), true)
		s.deliver(at(2*us), readLast(107, 7*1024, 1024))
		done(t, s)
	})
	t.Run("again, in part", func(t *testing.T) {
		s := ask(t)
		take(t, s, run(101, 3), true)
		take(t, s, run(102, 5), false)
		s.deliver(at(2*us), readLast(107, 7*1024, 1024))
		done(t, s)
		s.counts("ghosts", s.counters.GhostAcks, 2)
	})
	t.Run("a hole before it", func(t *testing.T) {
		s := ask(t)
		take(t, s, run(103, 4), false)
		s.expect(s.now, readRequest(101, 1024, 7*1024))
		take(t, s, run(101, 6), true)
		s.deliver(at(2*us), readLast(107, 7*1024, 1024))
		done(t, s)
	})
	t.Run("longer than the READ", func(t *testing.T) {
		s := ask(t)
		take(t, s, run(101, 7), false)
		s.completes(failed(1, ib.WCBadRespErr))
		s.inState(ib.StateErr)
	})
	t.Run("the key is gone", func(t *testing.T) {
		s := ask(t)
		if err := s.table.Remove(s.mr); err != nil {
			t.Fatal(err)
		}
		take(t, s, run(101, 3), false)
		s.completes(failed(1, ib.WCLocProtErr))
		s.inState(ib.StateErr)
	})
}

// Memory that is gone in the middle of a run: what single packets would have brought is there, and the end is the same.
func TestRunFaults(t *testing.T) {
	for _, c := range []struct {
		name     string
		ours     bool
		syndrome wire.Syndrome
	}{{"ours", true, wire.NakRemoteOperation}, {"the peer's", false, wire.NakSequence}} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			whole := dma.NewEmbedded(make([]byte, 8*1024))
			half := &torn{dma.NewEmbedded(make([]byte, 8*1024)), 4 * 1024}
			to, from := whole, dma.Region(half)
			if c.ours {
				to, from = from, to
			}
			mr := &dma.MR{Domain: s.pd, Region: to, Length: 8 * 1024, Access: ib.AccessLocalWrite | ib.AccessRemoteWrite}
			if err := s.table.Insert(mr); err != nil {
				t.Fatal(err)
			}
			s.deliver(at(0), writeFirst(500, 1024).to(0, mr.RKey, 8*1024))
			var p wire.Packet
			run := writeMiddle(501, 1024).times(6).asking(true)
			run.make(&p)
			p.Local, p.Payload = true, []wire.Piece{{Mem: from, Off: 1024, Len: 6 * 1024}}
			if s.take(&p) {
				t.Fatal("taken as a whole")
			}
			// Packet 504 begins where the memory ends.
			s.expect(at(0), packet{op: wire.RCAcknowledge, psn: 504}.says(c.syndrome))
			if n := s.e.SourceFaults(); (n == 1) == c.ours {
				t.Errorf("%d faults are charged to the peer", n)
			}
		})
	}
}

// torn is memory of which only the beginning is there.
type torn struct {
	dma.Region
	intact uint64
}

func (t *torn) Bytes(uint64, int) []byte { return nil }

func (t *torn) Read(b []byte, off uint64) error {
	if off+uint64(len(b)) > t.intact {
		return &dma.Fault{Mem: t}
	}
	return t.Region.Read(b, off)
}

func (t *torn) Write(b []byte, off uint64) error {
	if off+uint64(len(b)) > t.intact {
		return &dma.Fault{Mem: t}
	}
	return t.Region.Write(b, off)
}
