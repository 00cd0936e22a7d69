package rc

import (
	"bytes"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/wire"
)

// FuzzRequester plays a peer that answers anything: each four bytes are a response (which, number, syndrome or length)
// or a lapse of time. Whatever comes, every request ends once and in order (the fake queue pair checks that), una never
// leaves what was sent, and only memory that was offered is written.
func FuzzRequester(f *testing.F) {
	f.Add([]byte{0, 0, 0x1f, 0, 0, 1, 0x60, 0, 0, 1, 0x21, 0, 9, 9, 9, 9})
	f.Add([]byte{1, 1, 0, 4, 2, 2, 0, 4, 3, 3, 0, 1, 0, 4, 0x62, 0})
	f.Add([]byte{5, 4, 0x1f, 0, 0, 6, 0x1f, 0, 7, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		s := newScript(t, startPSN(0xfffffc), ackTimeout(8, 3), rnrRetry(2), maxRDAtomic(2),
			func(c *setup) { c.cfg.Trace = trace.NewRing(64) })
		before := append([]byte(nil), s.memory...)
		s.post(send(3000), read(2500), unsignaled(write(10)), fetchAdd(1), with(sendImm(1500, 1), ib.SendFence), read(0),
			compareSwap(1, 2), inline("tail"), flush(9), s.bind(7, 0, 64), atomicWrite(3), sendInv(1, 1), localInv(s.window.RKey().Inc()))
		for ; len(script) >= 4; script = script[4:] {
			psn := s.e.req.una.Add(uint32(script[1])).Sub(2)
			n := int(script[3])*16 + int(script[2])&15
			switch script[0] % 9 {
			case 0:
				s.receive(nak(psn, wire.Syndrome(script[2])))
			case 1:
				s.receive(readFirst(psn, 0, n))
			case 2:
				s.receive(readMiddle(psn, 0, n))
			case 3:
				s.receive(readLast(psn, 0, n))
			case 4:
				s.receive(readOnly(psn, 0, n))
			case 5:
				s.receive(atomicAck(psn, uint64(n)).says(wire.Syndrome(script[2])))
			case 6:
				s.receive(ack(psn))
			case 7:
				s.skip(s.now.Add(time.Duration(script[1]) * 10 * us))
			case 8:
				if sent := s.skip(s.now); len(sent) > 0 && script[1] == 0 {
					s.e.Faulted(s.now, sent[int(script[2])%len(sent)].cookie)
				}
			}
			r := &s.e.req
			if s.e.state != ib.StateRTS {
				continue
			}
			if distance(r.una, r.nxt) > maxSpan || r.reads < 0 || r.reads > 2 || !r.q.empty() && r.q.at(r.q.head).started &&
				distance(r.q.at(r.q.head).first, r.una) > r.q.at(r.q.head).packets {
				t.Fatalf("una %v, nxt %v, %d READs", r.una, r.nxt, r.reads)
			}
		}
		s.modify(ib.StateErr, 0)
		s.transmit()
		if s.qp.ended != s.qp.posted {
			t.Fatalf("%d posted, %d ended", s.qp.posted, s.qp.ended)
		}
		const from, to = 1 << 16, 1<<16 + 2500 // where answers go
		if !bytes.Equal(before[:from], s.memory[:from]) || !bytes.Equal(before[to:], s.memory[to:]) {
			t.Fatal("memory that was not offered was written")
		}
		s.qp.sendDone, s.seen = nil, len(s.sent)
	})
}
