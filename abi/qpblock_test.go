package abi

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/softnic/softnicd/ib"
)

func newBlock(t testing.TB, c ib.QPCap) *QPBlock {
	t.Helper()
	l := LayoutOf(RoundQPCap(c))
	b, err := NewQPBlock(make([]byte, l.Size()), l)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundQPCap(t *testing.T) {
	for asked, want := range map[uint32]uint32{
		0: 0, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 127: 128, 128: 128, 129: 256, 1<<31 - 1: 1 << 31, 1 << 31: 1 << 31,
		1<<31 + 1: 1<<31 + 1, 1<<32 - 1: 1<<32 - 1,
	} {
		c := RoundQPCap(ib.QPCap{MaxSendWR: asked, MaxRecvWR: asked, MaxSendSGE: 3, MaxRecvSGE: 5, MaxInlineData: 7})
		if want := (ib.QPCap{MaxSendWR: want, MaxRecvWR: want, MaxSendSGE: 3, MaxRecvSGE: 5, MaxInlineData: 7}); c != want {
			t.Errorf("%d: %+v", asked, c)
		}
	}
}

func TestNewQPBlockRefuses(t *testing.T) {
	good := QPLayout{4, 4, 64, 32}
	mem := make([]byte, good.Size()+8)
	if _, err := NewQPBlock(mem, good); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]QPLayout{
		"odd send depth": {3, 4, 64, 32}, "odd receive depth": {4, 6, 64, 32}, "send stride 0": {4, 4, 0, 32},
		"receive stride 0": {4, 4, 64, 0}, "odd send stride": {4, 4, 72, 32}, "odd receive stride": {4, 4, 64, 40},
		"huge send stride": {4, 4, 1 << 31, 32}, "huge receive stride": {4, 4, 64, 1 << 31}, "too small a block": {8, 8, 64, 32},
		"depths that overflow": {1 << 31, 1 << 31, SendStride(MaxSGE, MaxInlineLimit), RecvStride(MaxSGE)},
	} {
		if _, err := NewQPBlock(mem, l); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, c := range []ib.QPCap{{MaxSendSGE: 1 << 28}, {MaxRecvSGE: 1 << 28}, {MaxInlineData: 1<<32 - 1}} {
		c.MaxSendWR, c.MaxRecvWR = 1, 1
		if _, err := NewQPBlock(mem, LayoutOf(c)); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
	if _, err := NewQPBlock(mem[1:], good); err == nil {
		t.Error("an unaligned block is accepted")
	}
	if _, err := NewQPBlock(nil, good); err == nil {
		t.Error("no memory is accepted")
	}
}

// Indexes run on through 2^32 and slots follow.
func TestRoundTripAcrossTheWrap(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 8, MaxRecvWR: 4, MaxSendSGE: 3, MaxRecvSGE: 4, MaxInlineData: 100})
	rng := rand.New(rand.NewPCG(1, 2))
	list, got := make([]ib.SGE, 4), make([]ib.SGE, MaxSGE)
	inline := make([]byte, MaxInlineLimit)
	for i := uint32(1<<32 - 500); i != 500; i++ {
		for j := range list {
			list[j] = ib.SGE{Addr: rng.Uint64(), Length: rng.Uint32(), LKey: ib.LKey(rng.Uint32())}
		}
		want := SendWQE{rng.Uint64(), uint8(rng.Uint32()), uint8(rng.Uint32()) &^ uint8(ib.SendInline), uint16(i % 4), rng.Uint32(),
			rng.Uint64(), rng.Uint32(), rng.Uint32(), rng.Uint64(), rng.Uint64()}
		if !b.PutSend(i, &want, list[:i%4]) {
			t.Fatalf("%d: refused", i)
		}
		var w SendWQE
		if n := b.CopySend(i, &w, got, inline); w != want || n != int(i%4) || fmt.Sprint(got[:n]) != fmt.Sprint(list[:n]) {
			t.Fatalf("%d: got %+v and %d of the list, want %+v", i, w, n, want)
		}
		r := RecvWQE{rng.Uint64(), i % 5}
		if !b.PutRecv(i, &r, list[:i%5]) {
			t.Fatalf("%d: receive refused", i)
		}
		var rr RecvWQE
		if n := b.CopyRecv(i, &rr, got); rr != r || n != int(i%5) || fmt.Sprint(got[:n]) != fmt.Sprint(list[:n]) {
			t.Fatalf("%d: got %+v, %d; want %+v", i, rr, n, r)
		}
	}
}

// Every size of inline data, in every way of splitting it in two.
func TestInline(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 2, MaxInlineData: 48})
	room := int(b.Layout().SendStride) - SendWQESize
	data := make([]byte, room+1)
	for i := range data {
		data[i] = byte(i + 1)
	}
	neighbour := SendWQE{WRID: 0xabcdef}
	b.PutSend(1, &neighbour, nil)
	got := make([]byte, MaxInlineLimit)
	for n := 0; n <= room; n++ {
		for split := 0; split <= n; split++ {
			if !b.PutSendInline(0, &SendWQE{WRID: 7, Flags: 1}, data[:split], nil, data[split:n]) {
				t.Fatalf("%d bytes refused", n)
			}
			var w SendWQE
			k := b.CopySend(0, &w, nil, got)
			if k != n || int(w.Count) != n || w.Flags != 1|uint8(ib.SendInline) || !bytes.Equal(got[:k], data[:n]) {
				t.Fatalf("%d bytes, split at %d: got %d, %+v", n, split, k, w)
			}
		}
	}
	if b.PutSendInline(0, &SendWQE{}, data) || b.PutSendInline(0, &SendWQE{}, data, data, make([]byte, MaxInlineLimit)) {
		t.Error("more than fits was accepted")
	}
	var w SendWQE
	if b.CopySend(1, &w, nil, got); w != neighbour {
		t.Error("the neighbour was written")
	}
}

func TestListsThatDoNotFit(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1})
	if b.PutSend(0, &SendWQE{}, make([]ib.SGE, 2)) || b.PutRecv(0, &RecvWQE{}, make([]ib.SGE, 2)) {
		t.Error("a list longer than the slot was accepted")
	}
	none := newBlock(t, ib.QPCap{})
	if none.PutSend(0, &SendWQE{}, nil) || none.PutSendInline(0, &SendWQE{}) || none.PutRecv(0, &RecvWQE{}, nil) {
		t.Error("a queue without slots accepted a request")
	}
	w, r := SendWQE{WRID: 1}, RecvWQE{WRID: 1}
	if none.CopySend(9, &w, make([]ib.SGE, 1), nil) != 0 || none.CopyRecv(9, &r, make([]ib.SGE, 1)) != 0 || w.WRID+r.WRID != 0 {
		t.Error("a queue without slots has a request")
	}
}

// Whatever stands in the ring, copies stay within the slot and the caller's slices, and say how far they got.
func TestHostileCounts(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 4, MaxRecvSGE: 5})
	rng := rand.New(rand.NewPCG(3, 4))
	sendRoom := (int(b.layout.SendStride) - SendWQESize) / SGESize
	recvRoom := (int(b.layout.RecvStride) - RecvWQESize) / SGESize
	for range 20_000 {
		for i := range b.mem.q {
			b.mem.q[i] = rng.Uint64()
		}
		index := rng.Uint32()
		list, inline := make([]ib.SGE, rng.IntN(8)), make([]byte, rng.IntN(200))
		var w SendWQE
		n := b.CopySend(index, &w, list, inline)
		want := min(int(w.Count), sendRoom, len(list))
		if w.Flags&uint8(ib.SendInline) != 0 {
			want = min(int(w.Count), int(b.layout.SendStride)-SendWQESize, len(inline))
		}
		if n != want {
			t.Fatalf("copied %d, want %d", n, want)
		}
		var r RecvWQE
		if n := b.CopyRecv(index, &r, list); uint64(n) != min(uint64(r.Count), uint64(recvRoom), uint64(len(list))) {
			t.Fatalf("copied %d of %d", n, r.Count)
		}
	}
}

// The application rewrites an entry while the daemon copies it. Each word is from some state of the entry and is loaded
// once, so that what was judged is what is used: no field may disagree with what the copy itself says.
func TestSingleCopy(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 1, MaxSendSGE: 8})
	// A full list to begin with: what was never written has no check.
	full := make([]ib.SGE, 8)
	for j := range full {
		full[j] = ib.SGE{Addr: uint64(^uint32(0)), LKey: ib.LKey(^uint32(0))}
	}
	b.PutSend(0, &SendWQE{Opcode: 8, Count: 8, Imm: 8, SRQN: ^uint32(0)}, full)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		list := make([]ib.SGE, 8)
		for i := uint64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			// Every word carries its number and a check of it.
			for j := range list {
				list[j] = ib.SGE{Addr: i<<32 | uint64(^uint32(i)), Length: uint32(i), LKey: ib.LKey(^uint32(i))}
			}
			n := i % 9
			b.PutSend(0, &SendWQE{WRID: i, Opcode: uint8(n), Count: uint16(n), Imm: uint32(n), RKey: uint32(i), SRQN: ^uint32(i)}, list[:n])
		}
	}()
	list := make([]ib.SGE, MaxSGE)
	for range 100_000 {
		var w SendWQE
		n := b.CopySend(0, &w, list, nil)
		if n != int(w.Count) || n > 8 || w.Imm != uint32(n) || int(w.Opcode) != n {
			t.Fatalf("copied %d, the copy says %+v", n, w)
		}
		if w.SRQN != ^w.RKey && w.RKey|w.SRQN != 0 {
			t.Fatalf("torn word: %+v", w)
		}
		for i, e := range list[:n] {
			if uint32(e.LKey) != ^e.Length || uint32(e.Addr) != ^uint32(e.Addr>>32) {
				t.Fatalf("entry %d is torn: %+v", i, e)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestRingsDoNotAllocate(t *testing.T) {
	b := newBlock(t, ib.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64})
	c, _ := NewCQBlock(make([]byte, CQBlockSize(64)), 64)
	d, _ := NewDoorbell(make([]byte, DoorbellSize))
	list, inline, slots := make([]ib.SGE, 4), make([]byte, 64), make([]uint32, 0, 8)
	var w SendWQE
	var r RecvWQE
	var e CQE
	if n := testing.AllocsPerRun(100, func() {
		b.PutSend(1, &w, list)
		b.CopySend(1, &w, list, inline)
		b.PutSendInline(2, &w, inline[:9], inline[:3])
		b.CopySend(2, &w, list, inline)
		b.PutRecv(1, &r, list)
		b.CopyRecv(1, &r, list)
		b.PublishSend(3)
		c.Write(3, 3, &e)
		c.Read(3, &e)
		d.Ring(77)
		d.Take(slots)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPutSend(b *testing.B) {
	q := newBlock(b, ib.QPCap{MaxSendWR: 128, MaxSendSGE: 1})
	w, list := SendWQE{WRID: 1}, make([]ib.SGE, 1)
	b.ReportAllocs()
	for i := range b.N {
		q.PutSend(uint32(i), &w, list)
		q.PublishSend(uint32(i) + 1)
	}
}

func BenchmarkPutSendInline64(b *testing.B) {
	q := newBlock(b, ib.QPCap{MaxSendWR: 128, MaxInlineData: 64})
	w, data := SendWQE{WRID: 1}, make([]byte, 64)
	b.ReportAllocs()
	for i := range b.N {
		q.PutSendInline(uint32(i), &w, data)
		q.PublishSend(uint32(i) + 1)
	}
}

func BenchmarkCopySend(b *testing.B) {
	q := newBlock(b, ib.QPCap{MaxSendWR: 128, MaxSendSGE: 1})
	w, list := SendWQE{WRID: 1}, make([]ib.SGE, 1)
	for i := range 128 {
		q.PutSend(uint32(i), &w, list)
	}
	b.ReportAllocs()
	for i := range b.N {
		q.CopySend(uint32(i), &w, list, nil)
	}
}

func BenchmarkCQE(b *testing.B) {
	c, _ := NewCQBlock(make([]byte, CQBlockSize(1024)), 1024)
	e := testCQE
	b.Run("Write", func(b *testing.B) {
		for i := range b.N {
			c.Write(uint32(i)%1024, uint32(i), &e)
		}
	})
	b.Run("Read", func(b *testing.B) {
		for i := range b.N {
			if c.Read(uint32(i)%1024, &e); !c.Ready(5, 5) {
				c.Write(5, 5, &e)
			}
		}
	})
}
