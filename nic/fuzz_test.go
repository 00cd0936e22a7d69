package nic

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// FuzzWQE lets an application put any bytes where its work requests are. Whatever they say, the device does not panic, is
// told by nobody of an internal error, carries others' messages, and has nothing left in the end.
func FuzzWQE(f *testing.F) {
	seeds := validRequests(f)
	var all []byte
	for _, s := range seeds {
		f.Add(append(s, step(stepRun, 200)...))
		all = append(all, s...)
	}
	f.Add(append(all, step(stepRun, 255)...))
	f.Fuzz(func(t *testing.T, program []byte) { newScribbler(t).play(program, stepRing) })
}

// FuzzRings lets an application write any words of its rings as well: what was posted, the CQ and its arm word, doorbells.
func FuzzRings(f *testing.F) {
	var all []byte
	for _, s := range validRequests(f) {
		all = append(all, s...)
	}
	f.Add(append(all, step(stepRing, 0, 64, 0xff, 0xff, 0xff, 0xff)...))
	f.Add(append(append(all, step(stepRun, 20)...), step(stepCQ, 0, 64, 0xff, 0xff, 0xff, 0x7f)...))
	f.Add(append(step(stepRing, 0, 128, 200, 0, 0, 0), step(stepRun, 20)...))
	f.Add(append(step(stepBell, 0, 0, 0xff, 0xff, 0xff, 0xff), step(stepRun, 20)...))
	f.Add(append(append(all, step(stepState, 6)...), step(stepState, 0)...))
	f.Fuzz(func(t *testing.T, program []byte) { newScribbler(t).play(program, numSteps) })
}

// Steps of a program: kind, count of bytes, bytes.
const (
	stepSend  = iota // the slot of the next send
	stepRecv         // the slot of the next receive
	stepRun          // let time pass: units of 10 us
	stepPeer         // the peer posts, and sends
	stepRing         // offset (2, big-endian) in the queue pair's block, bytes; from here on words, not requests
	stepCQ           // the same in the CQ's
	stepBell         // the same in the doorbell page
	stepState        // modify: state
	numSteps
)

func step(kind byte, b ...byte) []byte { return append([]byte{kind, byte(len(b))}, b...) }

// validRequests are one step for each operation, with keys that are good: the device's random numbers are the test's.
func validRequests(f *testing.F) (steps [][]byte) {
	s := newScribbler(f)
	defer s.close()
	u := s.u
	stride := abi.SendStride(testCap.MaxSendSGE, testCap.MaxInlineData)
	for _, op := range []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead,
		ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAdd, ib.WRSendWithInv, ib.WRLocalInv, ib.WRBindMW, ib.WRFlush, ib.WRAtomicWrite} {
		w := abi.SendWQE{WRID: 1, Opcode: uint8(op), Flags: uint8(ib.SendSignaled), RKey: uint32(s.peer.mr.RKey()), RemoteAddr: 0x10000}
		if !u.block.PutSend(0, &w, []ib.SGE{u.sge(64, 8)}) {
			f.Fatal("a request that does not fit")
		}
		at := uint32(abi.QPHeaderSize)
		steps = append(steps, step(stepSend, u.raw[at:at+min(stride, 80)]...))
	}
	return steps
}

// scribbler is an application that owns its rings, a peer it is connected to, and two others who must not notice.
type scribbler struct {
	t         testing.TB
	w         *world
	a, b      *host
	bad, peer app
	u, v      *endpoint // of bad and peer
	x, y      *endpoint // of the others
	cqBlock   []byte
	layout    abi.QPLayout
}

func newScribbler(t testing.TB) *scribbler { return newScribblerOf(t, ib.QPTypeRC) }

// newScribblerOf is the same with queue pairs of a type for the scribbler and its peer.
func newScribblerOf(t testing.TB, typ ib.QPType) *scribbler {
	s := &scribbler{t: t}
	s.w, s.a, s.b = newPair(t, nil)
	s.bad.open(t, s.a.dev, ContextConfig{Tenant: 5}, s.a.addr)
	s.peer.open(t, s.b.dev, ContextConfig{Tenant: 5}, s.b.addr)
	s.cqBlock = make([]byte, abi.CQBlockSize(64))
	q, err := s.bad.ctx.CreateCQ(CQConfig{Block: s.cqBlock, Entries: 64, Notifier: &channel{}})
	if err != nil {
		t.Fatal(err)
	}
	s.u = s.bad.newQP(t, func(c *QPConfig) { c.Type, c.SendCQ, c.RecvCQ = typ, q, q })
	s.v = s.peer.newQP(t, func(c *QPConfig) { c.Type = typ })
	s.x, s.y = s.a.newQP(t, nil), s.b.newQP(t, nil)
	for _, p := range [][2]*endpoint{{s.u, s.v}, {s.x, s.y}} {
		p[0].bringUp(t, p[1])
		p[1].bringUp(t, p[0])
	}
	s.layout = s.u.block.Layout()
	return s
}

// play runs a program whose steps are below limit, and judges.
func (s *scribbler) play(program []byte, limit byte) {
	for n := 0; len(program) >= 2 && n < 64; n++ {
		kind, size := program[0]%limit, min(int(program[1]), len(program)-2)
		body := program[2 : 2+size]
		program = program[2+size:]
		s.step(kind, body)
	}
	s.w.run(time.Millisecond)
	exchange(s.t, s.w, s.x, s.y)
	s.close()
}

func (s *scribbler) step(kind byte, body []byte) {
	l, u := s.layout, s.u
	switch kind {
	case stepSend:
		slot := u.raw[abi.QPHeaderSize+uint64(u.sends%l.SendDepth)*uint64(l.SendStride):][:l.SendStride]
		clear(slot)
		copy(slot, body)
		u.sends++
		u.block.PublishSend(u.sends)
		u.bell.Ring(u.qp.Slot())
	case stepRecv:
		first := abi.QPHeaderSize + uint64(l.SendDepth)*uint64(l.SendStride)
		slot := u.raw[first+uint64(u.recvs%l.RecvDepth)*uint64(l.RecvStride):][:l.RecvStride]
		clear(slot)
		copy(slot, body)
		u.recvs++
		u.block.PublishRecv(u.recvs)
		u.bell.Ring(u.qp.Slot())
	case stepRun:
		if len(body) > 0 {
			s.w.run(time.Duration(body[0]) * 10 * time.Microsecond)
		}
		s.peer.poll(s.t)
	case stepPeer:
		if s.v.block.SendDone() == s.v.sends && s.v.recvs-s.v.block.RecvTaken() < 8 {
			s.v.postRecv(1, s.v.sge(0, 4096))
			s.v.postSend(s.answer(), s.v.sge(0, 100))
		}
	case stepRing:
		scribbleAt(u.raw, body)
	case stepCQ:
		scribbleAt(s.cqBlock, body)
	case stepBell:
		scribbleAt(s.bad.page, body)
	case stepState:
		if len(body) > 0 {
			// Refused or not, it is the application's own queue pair.
			_ = s.bad.ctx.ModifyQP(u.qp, &ib.QPAttr{State: ib.QPState(body[0] % 8)}, ib.QPAttrState)
		}
	}
}

// scribbleAt writes body, behind its offset, into mem.
func scribbleAt(mem, body []byte) {
	if len(body) > 2 {
		copy(mem[int(binary.BigEndian.Uint16(body))%len(mem):], body[2:])
	}
}

func (s *scribbler) close() {
	if text := s.a.log.String() + s.b.log.String(); strings.Contains(text, "internal error") {
		s.t.Fatal(text)
	}
	s.a.dev.Close()
	s.b.dev.Close()
	s.a.checkEmpty(s.t)
	s.b.checkEmpty(s.t)
}
