package nic

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// A conversation of every operation between two devices, with PSNs that wrap.
func TestConversation(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)

	for i := range x.mem[:1<<20] {
		x.mem[i] = byte(i * 7)
	}
	y.postRecv(1001, y.sge(0, 8192))
	y.postRecv(1002, y.sge(8192, 100), y.sge(8400, 100<<10))
	y.postRecv(1003)
	x.postSend(abi.SendWQE{WRID: 1, Opcode: uint8(ib.WRSend), Flags: uint8(ib.SendSignaled)}, x.sge(0, 4096))
	x.postSend(abi.SendWQE{WRID: 2, Opcode: uint8(ib.WRSendWithImm), Flags: uint8(ib.SendSignaled), Imm: 0xcafe}, x.sge(100, 10000))
	remote := abi.SendWQE{Flags: uint8(ib.SendSignaled), RKey: uint32(y.mr.RKey()), RemoteAddr: 0x10000 + 1<<20}
	write := remote
	write.WRID, write.Opcode = 3, uint8(ib.WRRDMAWrite)
	x.postSend(write, x.sge(0, 1<<20))
	imm := remote
	imm.WRID, imm.Opcode, imm.Imm, imm.RemoteAddr = 4, uint8(ib.WRRDMAWriteWithImm), 0xbeef, 0x10000+3<<20
	x.postSend(imm, x.sge(50, 5))
	read := remote
	read.WRID, read.Opcode = 5, uint8(ib.WRRDMARead)
	x.postSend(read, x.sge(2<<20, 300000))
	binary.NativeEndian.PutUint64(y.mem[3<<20+8:], 40)
	add := remote
	add.WRID, add.Opcode, add.Operand, add.RemoteAddr = 6, uint8(ib.WRAtomicFetchAdd), 2, 0x10000+3<<20+8
	x.postSend(add, x.sge(3<<20, 8))
	swap := add
	swap.WRID, swap.Opcode, swap.Compare, swap.Operand = 7, uint8(ib.WRAtomicCmpAndSwp), 42, 77
	x.postSend(swap, x.sge(3<<20+8, 8))
	w.run(time.Second)

	for i, c := range x.poll(t) {
		if c.WRID != uint64(i+1) || ib.WCStatus(c.Status) != ib.WCSuccess || ib.QPN(c.QPN) != x.qp.QPN() {
			t.Errorf("completion %d: %+v", i, c)
		}
		if c.Queue != abi.QueueSend || c.WQEIndex != uint32(i) || c.QPSlot != x.qp.Slot() {
			t.Errorf("completion %d names the wrong request: %+v", i, c)
		}
	}
	recvs := y.poll(t)
	if len(recvs) != 3 {
		t.Fatalf("%d receives completed, want 3", len(recvs))
	}
	for i, want := range []abi.CQE{
		{WRID: 1001, ByteLen: 4096, Opcode: uint8(ib.WCRecv)},
		{WRID: 1002, ByteLen: 10000, Opcode: uint8(ib.WCRecv), Imm: 0xcafe},
		{WRID: 1003, ByteLen: 5, Opcode: uint8(ib.WCRecvRDMAWithImm), Imm: 0xbeef},
	} {
		if got := recvs[i]; got.WRID != want.WRID || got.Status != 0 || got.ByteLen != want.ByteLen || got.Opcode != want.Opcode ||
			got.Imm != want.Imm || got.Queue != abi.QueueRecv {
			t.Errorf("receive %d: %+v", i, got)
		}
	}
	same := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			t.Errorf("%s: bytes differ", what)
		}
	}
	same("SEND", y.mem[:4096], x.mem[:4096])
	same("SEND into two buffers", append(y.mem[8192:8292:8292], y.mem[8400:8400+9900]...), x.mem[100:10100])
	same("WRITE", y.mem[1<<20:2<<20], x.mem[:1<<20])
	same("WRITE with immediate", y.mem[3<<20:3<<20+5], x.mem[50:55])
	same("READ", x.mem[2<<20:2<<20+300000], y.mem[1<<20:1<<20+300000])
	if v := binary.NativeEndian.Uint64(x.mem[3<<20:]); v != 40 {
		t.Errorf("fetch and add returned %d, want 40", v)
	}
	if v := binary.NativeEndian.Uint64(x.mem[3<<20+8:]); v != 42 {
		t.Errorf("compare and swap returned %d, want 42", v)
	}
	if v := binary.NativeEndian.Uint64(y.mem[3<<20+8:]); v != 77 {
		t.Errorf("the word is %d, want 77", v)
	}

	// A wrong key ends the connection on both sides.
	bad := remote
	bad.WRID, bad.Opcode, bad.RKey = 8, uint8(ib.WRRDMAWrite), bad.RKey^0x100
	x.postSend(bad, x.sge(0, 10))
	x.postSend(abi.SendWQE{WRID: 9, Opcode: uint8(ib.WRSend)}, x.sge(0, 10))
	w.run(time.Second)
	end := x.poll(t)
	if len(end) != 2 || ib.WCStatus(end[0].Status) != ib.WCRemAccessErr || ib.WCStatus(end[1].Status) != ib.WCWRFlushErr {
		t.Errorf("after a wrong key: %+v", end)
	}
	if got, want := y.take(), []event{{ib.EventQPAccessErr, 7}}; !slices.Equal(got, want) {
		t.Errorf("events at the target: %v, want %v", got, want)
	}
	if s := x.block.State(); s != ib.StateErr {
		t.Errorf("the requester is in %s", s)
	}
	if n := b.counter("rx_atomic_requests"); n != 2 {
		t.Errorf("rx_atomic_requests %d, want 2", n)
	}
	a.dev.Close()
	b.dev.Close()
	a.checkEmpty(t)
	b.checkEmpty(t)
}
