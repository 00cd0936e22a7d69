package nic

import (
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// BenchmarkWrite64 is what a message of 64 bytes costs both devices together, of a burst of 32: doorbell, scheduler, engines,
// datagrams, demultiplexing, completion.
func BenchmarkWrite64(b *testing.B) {
	w, x, y := newPair(b, nil)
	benchmarkWrites(b, w, x.newQP(b, nil), y.newQP(b, nil))
}

// BenchmarkHandover64 is the same within a device of two shards, where each packet arrives at the wrong one.
func BenchmarkHandover64(b *testing.B) {
	w, h := newLoops(b, 2, nil)
	benchmarkWrites(b, w, h.newQP(b, nil), h.newQP(b, nil))
}

func benchmarkWrites(b *testing.B, w *world, from, to *endpoint) {
	const burst = 32
	from.connect(b, to)
	to.connect(b, from)
	wqe := abi.SendWQE{
		Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(to.mr.RKey()), RemoteAddr: 0x10000,
	}
	list := []ib.SGE{from.sge(0, 64)}
	var c [burst]abi.CQE
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += burst {
		for range burst {
			from.block.PutSend(from.sends, &wqe, list)
			from.sends++
		}
		from.block.PublishSend(from.sends)
		from.bell.Ring(from.qp.Slot())
		for n := 0; n < burst; {
			w.run(10 * time.Microsecond)
			k, _ := from.cqr.Poll(c[:])
			n += k
		}
	}
}
