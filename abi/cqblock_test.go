package abi

import "testing"

// Every field of an entry, read where it lies.
func TestCQEView(t *testing.T) {
	b, err := NewCQBlock(make([]byte, CQBlockSize(64)), 64)
	if err != nil {
		t.Fatal(err)
	}
	want := CQE{
		WRID: 0x0102030405060708, ByteLen: 0x11121314, Imm: 0x21222324, QPN: 0x31323334, SrcQP: 0x41424344, Status: 0x51,
		Opcode: 0x52, Flags: 0x5354, VendorErr: 0x61626364, Timestamp: 0x7172737475767778, PKeyIndex: 0x8182, SLID: 0x8384,
		SL: 0x85, DLIDPathBits: 0x86, Queue: 0x87, NetworkType: 0x88, QPSlot: 0x91929394, WQEIndex: 0xa1a2a3a4,
	}
	b.Write(63, 5, &want)
	v := b.View(63)
	got := CQE{
		WRID: v.WRID(), ByteLen: v.ByteLen(), Imm: v.Imm(), QPN: v.QPN(), SrcQP: v.SrcQP(), Status: v.Status(), Opcode: v.Opcode(),
		Flags: v.Flags(), VendorErr: v.VendorErr(), Timestamp: v.Timestamp(), PKeyIndex: v.PKeyIndex(), SLID: v.SLID(),
		SL: v.SL(), DLIDPathBits: v.DLIDPathBits(), Queue: v.Queue(), NetworkType: v.NetworkType(), QPSlot: v.QPSlot(), WQEIndex: v.WQEIndex(),
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Wherever the indexes stand, a ring that was cleared has no entry for its first round: also at 2^32-1, whose sequence
// is 0.
func TestResetAt(t *testing.T) {
	mem := make([]byte, CQBlockSize(128))
	for _, start := range []uint32{0, 1, 1<<31 - 5, 1<<32 - 200, 1<<32 - 128, 1<<32 - 64, 1<<32 - 1} {
		for i := range mem {
			mem[i] = 0xff
		}
		b, _ := NewCQBlock(mem, 128)
		b.ResetAt(start)
		if _, moved := b.Moved(); moved {
			t.Errorf("start %#x: the ring was left", start)
		}
		for _, later := range []uint32{0, 1, 1000} { // entries that were posted to the ring before, meanwhile
			for pos := range uint32(128) {
				if b.Ready(pos, start+later+pos) {
					t.Fatalf("start %#x: entry %d is there after %d", start, pos, later)
				}
			}
		}
		b.Write(127, start+127, &CQE{})
		if !b.Ready(127, start+127) {
			t.Fatalf("start %#x: an entry is not there", start)
		}
	}
}

// A hint changes nothing, wherever it points.
func TestExpectChangesNothing(t *testing.T) {
	mem := make([]byte, CQBlockSize(64))
	b, err := NewCQBlock(mem, 64)
	if err != nil {
		t.Fatal(err)
	}
	for pos := range uint32(64) {
		b.Expect(pos)
	}
	for i, v := range mem {
		if v != 0 {
			t.Fatalf("byte %d is %#x", i, v)
		}
	}
	if n := testing.AllocsPerRun(100, func() { b.Expect(63) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
