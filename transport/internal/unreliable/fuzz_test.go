package unreliable_test

import (
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// FuzzEngines has strangers and a careless application do as they like: every third byte is an action and two numbers for
// it. Whatever they do, requests complete once and in order (fakeQP), nothing panics, nobody writes beside the region, and in the
// error state everything ends.
func FuzzEngines(f *testing.F) {
	f.Add(true, []byte{0, 10, 0, 1, 50, 0, 2, 4, 0, 3, 0, 0})
	f.Add(false, []byte{0, 200, 9, 2, 0x20, 0, 2, 0x22, 1, 4, 0, 0, 5, 0, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, datagrams bool, input []byte) {
		var s *script
		if datagrams {
			s = newUD(t)
		} else {
			s = newSharedUC(t)
		}
		s.qp.silent = true
		window, bindable := s.window()
		for len(input) >= 3 && s.qp.posted < 200 {
			action, x, y := input[0]%8, input[1], input[2]
			input = input[3:]
			switch action {
			case 0:
				r := send(int(x) * int(y))
				r.Opcode = ib.WROpcode(y % 16)
				// Binding what there is, and invalidating it.
				r.RKey, r.Remote, r.Imm = window.RKey()+ib.RKey(x%3), base, uint32(window.RKey())
				r.Bind = transport.Bind{Window: window.Handle, LKey: bindable.LKey, Access: ib.AccessRemoteWrite}
				r.Datagram.Rate = uint64(x%3) * 1e6
				if x == 255 {
					r.Datagram.Path = nil
				}
				s.qp.malformed = y == 254
				s.post(r)
			case 1:
				s.postRecv(uint32(x) * 10)
				s.qp.badRecv = y == 255
			case 2, 3:
				op := wire.Opcode(x)
				if !op.Valid() {
					continue
				}
				s.deliver(packet{op: op, psn: ib.PSN(y), n: []int{0, 1, 1024, 10}[y%4], size: int(y) * 8, va: base + uint64(x), qkey: ib.QKey(y / 250)})
			case 4:
				s.e.Transmit(s.now, s.burst, int(x))
			case 5:
				s.burst.Consume(min(int(x), s.burst.Len()))
			case 6:
				s.now = s.now.Add(1000 * 100)
				s.e.Expire(s.now)
				if x == 9 {
					s.e.Faulted(s.now, uint64(y))
				}
			case 7:
				var a ib.QPAttr
				s.e.Query(&a)
				if a.State == ib.StateSQE || a.State == ib.StateSQD {
					s.modify(ib.StateRTS)
				} else if a.State == ib.StateRTS && x%2 == 0 {
					s.modify(ib.StateSQD)
				}
			}
		}
		s.qp.malformed, s.qp.badRecv = false, false
		s.modify(ib.StateErr)
		for range 1000 {
			s.burst.Consume(s.burst.Len())
			s.e.Transmit(s.now, s.burst, 1<<20)
		}
		if s.qp.ended != s.qp.posted || s.qp.endedRecvs != s.qp.postedRecvs {
			t.Errorf("%d of %d sends ended, %d of %d receives", s.qp.ended, s.qp.posted, s.qp.endedRecvs, s.qp.postedRecvs)
		}
		s.sent, s.qp.done = nil, nil
	})
}

var _ transport.QueuePair = (*fakeQP)(nil)
