package rc_test

import (
	"encoding/binary"
	"testing"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// FuzzResponder lets a hostile peer say anything, near enough to the truth to get far. The input is read as steps of 12
// bytes. Whatever comes, nothing outside the region is written, an atomic that was executed counts once, a receive ends
// once, and no answer is about what was not executed.
func FuzzResponder(f *testing.F) {
	step := func(action, op, psn, va, length, n, flags byte) []byte {
		return []byte{action, op, psn, va, length, n, flags, 0, 0, 0, 0, 0}
	}
	join := func(steps ...[]byte) (all []byte) {
		for _, s := range steps {
			all = append(all, s...)
		}
		return all
	}
	f.Add(join(step(0, 4, 0, 0, 1, 1, 1), step(1, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(0, 6, 0, 0, 3, 2, 1), step(0, 7, 0, 0, 3, 2, 1), step(0, 8, 0, 0, 3, 2, 1), step(1, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(0, 12, 0, 0, 5, 0, 1), step(1, 0, 0, 0, 0, 0, 0), step(0, 12, 0xff, 0, 1, 0, 1), step(0, 19, 0, 4, 1, 0, 1), step(0, 19, 0xff, 4, 1, 0, 1)))
	f.Add(join(step(0, 12, 0, 3, 5, 0, 1), step(2, 0, 0, 0, 0, 0, 0), step(0, 20, 0, 5, 0, 0, 1), step(0, 0, 0, 0, 0, 2, 0), step(3, 0, 0, 0, 0, 0, 0)))
	f.Add(join(step(0, 0x16, 0, 0, 1, 1, 1), step(0, 0x17, 0, 0, 1, 1, 1), step(0, 0x1d, 0, 0, 1, 1, 1), step(0, 0x1d, 0xff, 0, 1, 1, 1)))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 12*200 {
			return
		}
		s := newPeerScriptWith(t, 3, 0xfffff0)
		word := make([]byte, 8+2*canary)
		counter := s.register(&dma.MR{Domain: s.domain, Region: dma.NewEmbedded(word), Offset: canary, Base: 0, Length: 8, Access: allRights &^ ib.AccessRemoteWrite})
		for i := range uint64(8) {
			s.post(i, 1500)
		}
		s.mw = s.window(ib.MWType2)
		s.bound(s.mw, 1)
		posted := uint64(8)
		for ; len(in) >= 12; in = in[12:] {
			switch in[0] % 8 {
			case 1:
				s.answersAreTrue(1 << 20)
			case 2:
				s.answersAreTrue(1)
			case 3:
				if s.slot+uint64(in[1]) <= bufSize {
					s.post(posted, uint32(in[1]))
					posted++
				}
			case 4:
				s.attr.MaxDestRDAtomic = in[1] % 8
				s.modify(s.qp.state, ib.QPAttrMaxDestRDAtomic)
			case 5:
				s.e.Faulted(0, 1<<63|uint64(s.attr.RQPSN.Add(uint32(in[1]))))
			case 6:
				if in[1] == 7 {
					s.table.Remove(s.mr)
				}
			default:
				s.deliver(s.fuzzed(in, counter.RKey))
			}
			s.safe()
		}
		// A NAK that ended the connection leaves still; the error state itself has nothing to say.
		ended := s.qp.state == ib.StateErr
		s.modify(ib.StateErr, 0)
		if replies, _ := s.transmit(1 << 20); len(replies) > 0 && !ended {
			t.Errorf("answers %v in the error state", replies)
		}
		if n := binary.NativeEndian.Uint64(word[canary:]); n != s.counters.RxAtomicRequests {
			t.Errorf("%d atomics were executed, the word holds %d", s.counters.RxAtomicRequests, n)
		}
		seen := make(map[uint64]bool)
		for _, c := range s.qp.done {
			if seen[c.wrid] {
				t.Errorf("receive %d ended twice", c.wrid)
			}
			seen[c.wrid] = true
		}
		if len(seen) != int(posted) {
			t.Errorf("%d of %d receives ended", len(seen), posted)
		}
	})
}

// fuzzed makes a request of a step: opcodes of the service, a PSN near the expected one, addresses and lengths at edges.
func (s *peerScript) fuzzed(in []byte, counter ib.RKey) request {
	var a ib.QPAttr
	s.e.Query(&a)
	r := request{
		op:    wire.Opcode(in[1] & 31),
		psn:   a.RQPSN.Add(uint32(int32(int8(in[2])))),
		key:   s.mr.RKey,
		va:    []uint64{memBase, memBase + memSize - 8, memBase - 4, ^uint64(0) - 1023, memBase + 3*mtu, memBase + 4}[in[3]%6],
		size:  []uint32{0, 8, mtu, 2*mtu + 4, mtu + 1, 4 * mtu, 1<<31 + 1, 1<<32 - 1}[in[4]%8],
		n:     []int{0, 8, mtu, 4, 1, mtu + 4}[in[5]%6],
		quiet: in[6]&1 == 0,
		se:    in[6]&2 != 0,
		fill:  in[7],
		imm:   uint32(in[8]),
		inv:   s.mw.RKey() + ib.RKey(in[9]&1),
	}
	r.places, r.level = ib.FlushPlacement(in[10]), ib.FlushLevel(in[11])
	r.psn = ib.NewPSN(uint32(r.psn))
	if in[6]&4 != 0 {
		r.pad = 1
	}
	if in[6]&8 != 0 {
		r.key = ib.RKey(binary.LittleEndian.Uint32(in[8:]))
	}
	if r.op == wire.RCFetchAdd || r.op == wire.RCCompareSwap {
		// Only additions of one, so that the word counts what was executed.
		r.op, r.swap, r.key, r.va = wire.RCFetchAdd, 1, counter, uint64(in[3]%2)*uint64(in[3])
	}
	if in[6]&16 != 0 {
		r = r.local(&broken{1 << 20})
	}
	return r
}

// answersAreTrue transmits and asks of each answer whether it is about something that was executed.
func (s *peerScript) answersAreTrue(budget int) {
	var a ib.QPAttr
	s.e.Query(&a)
	if a.State == ib.StateErr {
		s.transmit(budget)
		return
	}
	replies, _ := s.transmit(budget)
	for _, r := range replies {
		if ahead := r.psn.Diff(a.RQPSN); ahead > 0 || ahead == 0 && r.syndrome.IsAck() {
			s.t.Errorf("%v, but the expected PSN is %v", r, a.RQPSN)
		}
	}
}
