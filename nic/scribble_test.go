package nic

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// An application that writes whatever it likes into its rings, CQ and doorbell page, at any moment, harms itself at the
// most: no panic, nothing outside of its regions, and others' messages go on.
func TestScribbledRings(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		scribble(t, seed)
	}
}

func scribble(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 77))
	w, a, b := newPair(t, nil)
	var bad, peer app
	bad.open(t, a.dev, ContextConfig{Tenant: 5}, a.addr)
	peer.open(t, b.dev, ContextConfig{Tenant: 5}, b.addr)
	block := make([]byte, abi.CQBlockSize(64))
	q, err := bad.ctx.CreateCQ(CQConfig{Block: block, Entries: 64, Notifier: &channel{}})
	if err != nil {
		t.Fatal(err)
	}
	onQ := func(c *QPConfig) { c.SendCQ, c.RecvCQ = q, q }
	u, v := bad.newQP(t, onQ), peer.newQP(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	for _, p := range [][2]*endpoint{{u, v}, {x, y}} {
		p[0].connect(t, p[1])
		p[1].connect(t, p[0])
	}
	opcodes := []ib.WROpcode{ib.WRSend, ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAdd, ib.WRRDMAWriteWithImm, ib.WRFlush, 99}
	for round := range 30 {
		for range r.IntN(4) {
			v.postRecv(1, v.sge(0, 4096))
			peer.poll(t)
			u.postRecv(1, u.sge(0, 4096))
			wqe := abi.SendWQE{Opcode: uint8(opcodes[r.IntN(len(opcodes))]), Flags: uint8(r.IntN(16)), RKey: uint32(peer.mr.RKey()),
				RemoteAddr: 0x10000 + r.Uint64N(appMemory)}
			u.postSend(wqe, u.sge(r.IntN(appMemory), r.IntN(20000)))
		}
		for range r.IntN(3) {
			// Single bits far from sense, and small steps near it.
			switch r.IntN(5) {
			case 0:
				u.raw[r.IntN(len(u.raw))] = byte(r.Uint32())
			case 1:
				block[r.IntN(len(block))] = byte(r.Uint32())
			case 2:
				bad.page[r.IntN(len(bad.page))] = byte(r.Uint32())
			case 3:
				u.block.PublishSend(u.sends + uint32(r.IntN(100)))
			case 4:
				binary.LittleEndian.PutUint32(block[64:], r.Uint32N(200))
			}
		}
		if u.block.State() == ib.StateErr || r.IntN(4) == 0 {
			_ = bad.ctx.ModifyQP(u.qp, &ib.QPAttr{State: ib.QPState(r.IntN(8))}, ib.QPAttrMask(r.IntN(4)))
		}
		w.run(time.Duration(r.IntN(1000)) * time.Microsecond)
		if round%10 == 9 {
			exchange(t, w, x, y)
			if t.Failed() {
				t.Fatalf("seed %d, round %d: an honest queue pair's message did not arrive", seed, round)
			}
		}
	}
	if strings.Contains(a.log.String(), "internal error") || strings.Contains(b.log.String(), "internal error") {
		t.Fatalf("seed %d:\n%s%s", seed, a.log.String(), b.log.String())
	}
	a.dev.Close()
	b.dev.Close()
	a.checkEmpty(t)
	b.checkEmpty(t)
}
