package verbs_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// The conversation of the demo: every operation of a reliable connection, with its completion on both sides.
func TestOperations(t *testing.T) {
	a, b := newPair(t)
	src, dst := a.buf.Bytes(), b.buf.Bytes()
	fill(src, 7)

	check(t, b.qp.PostRecv(b.recv(1001, 0, 4096), b.recv(1002, 4096, 4096)))
	check(t, a.qp.PostSend(a.send(1, 4096)))
	a.expect(1, ib.WCSuccess)
	wc := b.expect(1001, ib.WCSuccess)
	if wc.Opcode != ib.WCRecv || wc.ByteLen != 4096 || wc.QPN != b.qp.QPN() || !bytes.Equal(src[:4096], dst[:4096]) {
		t.Fatalf("received %+v", wc)
	}
	if wc.Timestamp == 0 {
		t.Error("no timestamp")
	}

	imm := a.send(2, 100)
	imm.Opcode, imm.ImmData = ib.WRSendWithImm, 0xcafe
	check(t, a.qp.PostSend(imm))
	a.expect(2, ib.WCSuccess)
	if wc = b.expect(1002, ib.WCSuccess); wc.Flags&ib.WCWithImm == 0 || wc.ImmData != 0xcafe || wc.ByteLen != 100 {
		t.Fatalf("received %+v", wc)
	}
	check(t, b.qp.PostRecv(b.recv(1003, 8192, 4096)))

	write := a.send(3, 8192)
	write.Opcode, write.RemoteAddr, write.RKey = ib.WRRDMAWrite, b.mr.Addr()+16384, b.mr.RKey()
	check(t, a.qp.PostSend(write))
	a.expect(3, ib.WCSuccess)
	if !bytes.Equal(src[:8192], dst[16384:16384+8192]) {
		t.Fatal("WRITE: the bytes differ")
	}

	write.WRID, write.Opcode, write.ImmData = 4, ib.WRRDMAWriteWithImm, 99
	check(t, a.qp.PostSend(write))
	a.expect(4, ib.WCSuccess)
	if wc = b.expect(1003, ib.WCSuccess); wc.Opcode != ib.WCRecvRDMAWithImm || wc.ImmData != 99 || wc.ByteLen != 8192 {
		t.Fatalf("received %+v", wc)
	}

	read := verbs.SendWR{
		WRID: 5, Opcode: ib.WRRDMARead, Flags: ib.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(32768, 8000)},
		RemoteAddr: b.mr.Addr() + 16384, RKey: b.mr.RKey(),
	}
	check(t, a.qp.PostSend(read))
	if wc = a.expect(5, ib.WCSuccess); wc.Opcode != ib.WCRDMARead || wc.ByteLen != 8000 {
		t.Fatalf("read %+v", wc)
	}
	if !bytes.Equal(src[32768:32768+8000], src[:8000]) {
		t.Fatal("READ: the bytes differ")
	}

	word := dst[40000&^7:]
	binary.NativeEndian.PutUint64(word, 10)
	atomic := verbs.SendWR{
		WRID: 6, Opcode: ib.WRAtomicFetchAdd, Flags: ib.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 8)},
		RemoteAddr: b.mr.Addr() + 40000&^7, RKey: b.mr.RKey(), CompareAdd: 5,
	}
	check(t, a.qp.PostSend(atomic))
	a.expect(6, ib.WCSuccess)
	atomic.WRID, atomic.Opcode, atomic.CompareAdd, atomic.Swap = 7, ib.WRAtomicCmpAndSwp, 15, 77
	atomic.SGList = []verbs.SGE{a.mr.SGE(8, 8)}
	check(t, a.qp.PostSend(atomic))
	if wc = a.expect(7, ib.WCSuccess); wc.Opcode != ib.WCCompSwap || wc.ByteLen != 8 {
		t.Fatalf("atomic %+v", wc)
	}
	if old1, old2, now := binary.NativeEndian.Uint64(src), binary.NativeEndian.Uint64(src[8:]), binary.NativeEndian.Uint64(word); old1 != 10 || old2 != 15 || now != 77 {
		t.Fatalf("atomics returned %d and %d and left %d, want 10, 15, 77", old1, old2, now)
	}

	// Inline data is free again when PostSend returns.
	check(t, b.qp.PostRecv(b.recv(1004, 0, 64), b.recv(1005, 64, 64)))
	data := []byte("taken at posting")
	check(t, a.qp.PostSend(verbs.SendWR{WRID: 8, Opcode: ib.WRSend, Flags: ib.SendSignaled | ib.SendInline, InlineData: data}))
	clear(data)
	a.expect(8, ib.WCSuccess)
	if wc = b.expect(1004, ib.WCSuccess); string(dst[:wc.ByteLen]) != "taken at posting" {
		t.Fatalf("inline: %q", dst[:wc.ByteLen])
	}

	// A deliberate failure: the wrong key. The peer refuses, here everything else is flushed.
	write.WRID, write.Opcode, write.RKey = 9, ib.WRRDMAWrite, b.mr.RKey()^0x5500
	check(t, a.qp.PostSend(write, a.send(10, 8)))
	a.expect(9, ib.WCRemAccessErr)
	a.expect(10, ib.WCWRFlushErr)
	b.expect(1005, ib.WCWRFlushErr)
	if a.qp.State() != ib.StateErr || b.qp.State() != ib.StateErr {
		t.Fatalf("states %v and %v", a.qp.State(), b.qp.State())
	}
	e := must(b.ctx.AsyncEvent(t.Context()))
	if e.Type == ib.EventCommEst {
		e = must(b.ctx.AsyncEvent(t.Context()))
	}
	if e.Type != ib.EventQPAccessErr || e.QP != b.qp {
		t.Fatalf("event %v", e)
	}
	// Posting in ERR is legal: it is flushed.
	check(t, a.qp.PostSend(a.send(11, 8)))
	check(t, a.qp.PostRecv(a.recv(12, 0, 8)))
	got := map[uint64]bool{a.next().WRID: true, a.next().WRID: true}
	if !got[11] || !got[12] {
		t.Fatalf("flushed %v", got)
	}
}

// One device reaches itself, and any memory of the process can be registered.
func TestOneDevice(t *testing.T) {
	ctx := openDevice(t, embedded.Options{})
	a, b := newSide(t, ctx, 64, smallCap), newSide(t, ctx, 64, smallCap)
	connectSides(t, a, b, verbs.RCAttr{})
	own := make([]byte, 5000)
	mr := must(b.pd.RegMR(own[100:4900], everything, verbs.WithIOVA(1<<40)))
	fill(a.buf.Bytes(), 3)
	check(t, a.qp.PostSend(verbs.SendWR{
		WRID: 1, Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(10, 4000)},
		RemoteAddr: 1<<40 + 50, RKey: mr.RKey(),
	}))
	a.expect(1, ib.WCSuccess)
	if !bytes.Equal(own[150:4150], a.buf.Bytes()[10:4010]) {
		t.Fatal("the bytes differ")
	}
	check(t, mr.Dereg())
}
