package nic

import (
	"testing"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// FuzzUnreliableWQE is FuzzRings for queue pairs of UC, or of UD where the first byte is odd, whose requests name address
// handles as well.
func FuzzUnreliableWQE(f *testing.F) {
	for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
		s := newScribblerOf(f, typ)
		w := s.request(s.u, s.v)
		if !s.u.block.PutSend(0, &w, []ib.SGE{s.u.sge(64, 8)}) {
			f.Fatal("a request that does not fit")
		}
		raw := append([]byte(nil), s.u.raw[abi.QPHeaderSize:][:80]...)
		s.close()
		program := append([]byte{byte(typ - ib.QPTypeUC)}, step(stepSend, raw...)...)
		program = append(append(program, step(stepPeer)...), step(stepRun, 100)...)
		f.Add(program)
		raw[8] = byte(ib.WRRDMARead) // SQE, and back
		program = append(append(program, step(stepSend, raw...)...), step(stepRun, 100)...)
		f.Add(append(append(program, step(stepState, byte(ib.StateRTS))...), step(stepRing, 0, 64, 0xff, 0xff, 0xff, 0xff)...))
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 {
			return
		}
		typ := ib.QPTypeUC
		if program[0]&1 != 0 {
			typ = ib.QPTypeUD
		}
		newScribblerOf(t, typ).play(program[1:], numSteps)
	})
}

// bringUp takes a queue pair of any of the types to RTS.
func (e *endpoint) bringUp(t testing.TB, peer *endpoint) {
	t.Helper()
	switch e.qp.typ {
	case ib.QPTypeUD:
		e.modify(t, ib.QPAttr{State: ib.StateInit, PortNum: 1, QKey: testQKey}, ib.QPAttrState|ib.QPAttrPort|ib.QPAttrPKeyIndex|ib.QPAttrQKey)
		e.modify(t, ib.QPAttr{State: ib.StateRTR}, ib.QPAttrState)
		e.modify(t, rtsAttr(), ib.QPAttrState|ib.QPAttrSQPSN)
		e.newAH(t, peer.addr) // handle 1
	case ib.QPTypeUC:
		e.modify(t, initAttr(), initMask)
		e.modify(t, rtrAttr(peer.addr, peer.qp.QPN()), ib.QPAttrState|ib.QPAttrAV|ib.QPAttrPathMTU|ib.QPAttrDestQPN|ib.QPAttrRQPSN)
		e.modify(t, rtsAttr(), ib.QPAttrState|ib.QPAttrSQPSN)
	default:
		e.connect(t, peer)
	}
}

// request is a send from one queue pair of the scribbler to the other.
func (s *scribbler) request(from, to *endpoint) abi.SendWQE {
	w := sendWQE(2)
	if from.qp.typ == ib.QPTypeUD {
		w.Operand, w.Compare = uint64(to.qp.QPN())<<32|1, testQKey
	}
	return w
}

// answer is what the peer sends.
func (s *scribbler) answer() abi.SendWQE { return s.request(s.v, s.u) }
