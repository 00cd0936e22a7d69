package abi

import (
	"testing"

	"github.com/softnic/softnicd/ib"
)

// A shared receive queue moves to a ring of another size: each request that waits keeps its index, and its slot follows.
func TestMoveRecv(t *testing.T) {
	view := func(depth, sge uint32) *QPBlock {
		l := SRQLayout(depth, sge)
		b, err := NewQPBlock(make([]byte, l.Size()), l)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old := view(RoundSRQ(5), 3)
	if n := old.Layout().RecvDepth; n != 8 {
		t.Fatalf("5 receives become %d", n)
	}
	from := ^uint32(0) - 2
	for i := range uint32(8) {
		list := []ib.SGE{{Addr: uint64(i) << 40, Length: i, LKey: 7}, {Addr: 3}, {LKey: ib.LKey(i)}}
		if !old.PutRecv(from+i, &RecvWQE{WRID: uint64(100 + i)}, list[:i%4]) {
			t.Fatal("does not fit")
		}
	}
	for _, depth := range []uint32{8, 16, 64} {
		to := view(depth, 3)
		for i := range uint32(8) {
			if !to.MoveRecv(from+i, old) {
				t.Fatalf("depth %d: index %d does not move", depth, i)
			}
		}
		var w RecvWQE
		got := make([]ib.SGE, 3)
		for i := range uint32(8) {
			n := to.CopyRecv(from+i, &w, got)
			if w.WRID != uint64(100+i) || n != int(i%4) || w.Count != i%4 || n > 0 && got[0] != (ib.SGE{Addr: uint64(i) << 40, Length: i, LKey: 7}) {
				t.Errorf("depth %d, index %d: %+v %v", depth, i, w, got[:n])
			}
		}
	}
	if view(8, 4).MoveRecv(from, old) || view(0, 3).MoveRecv(from, old) {
		t.Error("moved into slots of another size")
	}
	if old.PutSend(0, &SendWQE{}, nil) {
		t.Error("a shared receive queue has a send ring")
	}
}
