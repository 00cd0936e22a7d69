package nic

import (
	"fmt"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// Messages of every service and operation allocate nothing on their whole way, from the doorbell to all completions, between two
// devices and between two shards of one. Shared receive queues, XRC, groups, windows and the ports have tests of their own.
func TestNoMessageAllocates(t *testing.T) {
	receives := map[ib.WROpcode]bool{ib.WRSend: true, ib.WRSendWithImm: true, ib.WRRDMAWriteWithImm: true}
	services := []struct {
		typ     ib.QPType
		ops     []ib.WROpcode
		lengths []int
	}{
		{ib.QPTypeRC, []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead}, []int{0, 8, 20000}},
		{ib.QPTypeRC, []ib.WROpcode{ib.WRAtomicFetchAdd, ib.WRAtomicCmpAndSwp, ib.WRAtomicWrite}, []int{8}},
		{ib.QPTypeUC, []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm}, []int{0, 8, 20000}},
		{ib.QPTypeUD, []ib.WROpcode{ib.WRSend, ib.WRSendWithImm}, []int{0, 8, 2000}},
	}
	for _, way := range []string{"two devices", "two shards"} {
		for _, s := range services {
			t.Run(fmt.Sprintf("%s/%s", way, s.typ), func(t *testing.T) {
				w, x, y := allocPair(t, way, s.typ)
				for _, op := range s.ops {
					for _, n := range s.lengths {
						m := message{op: op, list: []ib.SGE{x.sge(1<<20, n)}, receives: receives[op]}
						m.check(t, w, x, y)
						if m.inline = make([]byte, n); n <= int(testCap.MaxInlineData) && op != ib.WRRDMARead && op != ib.WRAtomicFetchAdd && op != ib.WRAtomicCmpAndSwp {
							m.check(t, w, x, y)
						}
					}
				}
			})
		}
	}
}

// allocPair is two queue pairs in RTS.
func allocPair(t *testing.T, way string, typ ib.QPType) (w *world, x, y *endpoint) {
	of := func(c *QPConfig) { c.Type = typ }
	if way == "two devices" {
		world, a, b := newPair(t, nil)
		w, x, y = world, a.newQP(t, of), b.newQP(t, of)
	} else {
		world, h := newLoops(t, 2, nil)
		w, x, y = world, h.newQP(t, of), h.newQP(t, of)
		if x.qp.Shard() == y.qp.Shard() {
			t.Fatal("one shard")
		}
	}
	x.bringUp(t, y)
	y.bringUp(t, x)
	return w, x, y
}

// message is what is sent again and again.
type message struct {
	op       ib.WROpcode
	list     []ib.SGE
	inline   []byte // in place of the list, if there is one
	receives bool
}

func (m *message) check(t *testing.T, w *world, x, y *endpoint) {
	t.Helper()
	wqe := sendWQE(1)
	wqe.Opcode, wqe.RKey, wqe.RemoteAddr = uint8(m.op), uint32(y.mr.RKey()), 0x10000
	if x.qp.typ == ib.QPTypeUD {
		wqe.RKey, wqe.RemoteAddr = 0, 0
		wqe.Operand, wqe.Compare = uint64(y.qp.QPN())<<32|1, testQKey
	}
	into, recv := []ib.SGE{y.sge(2<<20, 21000)}, abi.RecvWQE{WRID: 2}
	var c [4]abi.CQE
	completions := func(r interface{ Poll([]abi.CQE) (int, error) }) (n int) {
		n, _ = r.Poll(c[:])
		for i := range c[:n] {
			if c[i].Status != 0 {
				panic(fmt.Sprintf("test: %v: a completion says %v", m.op, ib.WCStatus(c[i].Status)))
			}
		}
		return n
	}
	expected := 1
	if m.receives {
		expected = 2
	}
	if n := testing.AllocsPerRun(20, func() {
		if m.receives {
			y.block.PutRecv(y.recvs, &recv, into)
			y.recvs++
			y.block.PublishRecv(y.recvs)
			y.bell.Ring(y.qp.Slot())
		}
		fits := false
		if m.inline != nil {
			fits = x.block.PutSendInline(x.sends, &wqe, m.inline)
		} else {
			fits = x.block.PutSend(x.sends, &wqe, m.list)
		}
		if !fits {
			panic("test: a send that does not fit")
		}
		x.sends++
		x.block.PublishSend(x.sends)
		x.bell.Ring(x.qp.Slot())
		w.run(10 * time.Millisecond)
		got := completions(x.cqr)
		if x.app != y.app {
			got += completions(y.cqr)
		}
		if got != expected {
			panic(fmt.Sprintf("test: %v: %d completions", m.op, got))
		}
	}); n != 0 {
		t.Errorf("%v of %d bytes, inline %v: %v allocations", m.op, m.list[0].Length, m.inline != nil, n)
	}
}
