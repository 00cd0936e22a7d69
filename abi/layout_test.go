package abi

import (
	"encoding/binary"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// A row of an offset table in a comment: "12  u32 imm   what it is".
type row struct {
	offset, bits int
	name         string
}

// tables reads the offset tables of a file: runs of rows in comments, in order.
func tables(t *testing.T, file string) [][]row {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^//\s+(\d+)  u(\d+)\s+(\w+)(\[\d+\])?(\s|$)`)
	var all [][]row
	inside := false
	for _, l := range strings.Split(string(text), "\n") {
		m := line.FindStringSubmatch(l)
		if m == nil {
			inside = inside && strings.HasPrefix(l, "//") && l != "//"
			continue
		}
		if !inside {
			all = append(all, nil)
			inside = true
		}
		offset, _ := strconv.Atoi(m[1])
		bits, _ := strconv.Atoi(m[2])
		all[len(all)-1] = append(all[len(all)-1], row{offset, bits, m[3]})
	}
	return all
}

// check compares memory with a table: each row must have its value, and each value its row.
func check(t *testing.T, what string, mem []byte, table []row, values map[string]uint64) {
	t.Helper()
	seen := 0
	for _, r := range table {
		if r.name == "reserved" {
			continue
		}
		want, ok := values[r.name]
		if !ok {
			t.Errorf("%s: the test knows no %s", what, r.name)
			continue
		}
		seen++
		var b [8]byte
		copy(b[:r.bits/8], mem[r.offset:])
		if got := binary.LittleEndian.Uint64(b[:]); got != want {
			t.Errorf("%s: %s at %d is %#x, want %#x", what, r.name, r.offset, got, want)
		}
	}
	if seen != len(values) {
		t.Errorf("%s: the table has %d rows of %d", what, seen, len(values))
	}
}

func TestEntryTables(t *testing.T) {
	all := tables(t, "wqe.go")
	if len(all) != 4 {
		t.Fatalf("%d tables in wqe.go, want 4", len(all))
	}
	l := LayoutOf(ib.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 2, MaxRecvSGE: 2})
	mem := make([]byte, l.Size())
	b, err := NewQPBlock(mem, l)
	if err != nil {
		t.Fatal(err)
	}
	list := []ib.SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 0x8182838485868788, Length: 0x91929394, LKey: 0xa1a2a3a4}}

	w := SendWQE{0x0102030405060708, 0x11, 0x12 &^ 8, 99, 0x31323334, 0x4142434445464748, 0x51525354, 0x61626364, 0x7172737475767778, 0xf1f2f3f4f5f6f7f8}
	b.PutSend(1, &w, list)
	send := mem[QPHeaderSize+l.SendStride:]
	check(t, "send entry", send, all[0], map[string]uint64{
		"wr_id": w.WRID, "opcode": 0x11, "flags": 0x12 &^ 8, "count": 2, "imm": 0x31323334, "remote_addr": 0x4142434445464748,
		"rkey": 0x51525354, "srqn": 0x61626364, "operand": 0x7172737475767778, "compare": 0xf1f2f3f4f5f6f7f8,
	})
	check(t, "list", send[SendWQESize+SGESize:], all[2], map[string]uint64{
		"addr": 0x8182838485868788, "length": 0x91929394, "lkey": 0xa1a2a3a4,
	})

	b.PutRecv(1, &RecvWQE{0x0102030405060708, 99}, list)
	recv := mem[QPHeaderSize+2*l.SendStride+l.RecvStride:]
	check(t, "receive entry", recv, all[1], map[string]uint64{"wr_id": 0x0102030405060708, "count": 2})
	check(t, "list", recv[RecvWQESize+SGESize:], all[2], map[string]uint64{
		"addr": 0x8182838485868788, "length": 0x91929394, "lkey": 0xa1a2a3a4,
	})

	cq := make([]byte, CQBlockSize(64))
	c, err := NewCQBlock(cq, 64)
	if err != nil {
		t.Fatal(err)
	}
	c.Write(63, 0xfffffff0, &testCQE)
	check(t, "completion", cq[CQHeaderSize+63*CQESize:], all[3], map[string]uint64{
		"wr_id": 0x0102030405060708, "byte_len": 0x11121314, "imm": 0x21222324, "qp_num": 0x31323334, "src_qp": 0x41424344,
		"status": 0x51, "opcode": 0x52, "wc_flags": 0x5354, "vendor_err": 0x61626364, "timestamp": 0x7172737475767778,
		"pkey_index": 0x8182, "slid": 0x8384, "sl": 0x85, "dlid_path_bits": 0x86, "queue": 0x87, "network_type": 0x88, "qp_slot": 0x91929394,
		"wqe_index": 0xa1a2a3a4, "sequence": 0xfffffff1,
	})
}

var testCQE = CQE{
	WRID: 0x0102030405060708, ByteLen: 0x11121314, Imm: 0x21222324, QPN: 0x31323334, SrcQP: 0x41424344, Status: 0x51, Opcode: 0x52,
	Flags: 0x5354, VendorErr: 0x61626364, Timestamp: 0x7172737475767778, PKeyIndex: 0x8182, SLID: 0x8384, SL: 0x85,
	DLIDPathBits: 0x86, Queue: 0x87, NetworkType: 0x88, QPSlot: 0x91929394, WQEIndex: 0xa1a2a3a4,
}

func TestHeaderTables(t *testing.T) {
	all := tables(t, "ring.go")
	if len(all) != 4 {
		t.Fatalf("%d tables in ring.go, want 4", len(all))
	}
	l := LayoutOf(ib.QPCap{MaxSendWR: 1})
	mem := make([]byte, l.Size())
	b, _ := NewQPBlock(mem, l)
	b.PublishSend(0x01020304)
	b.PublishRecv(0x11121314)
	b.SetState(ib.StateSQE)
	b.SetSendDone(0x21222324)
	b.SetRecvTaken(0x31323334)
	check(t, "queue pair", mem, all[0], map[string]uint64{
		"sq_posted": 0x01020304, "rq_posted": 0x11121314, "state": 5, "sq_done": 0x21222324, "rq_taken": 0x31323334,
	})
	if b.SendPosted() != 0x01020304 || b.RecvPosted() != 0x11121314 || b.State() != ib.StateSQE || b.SendDone() != 0x21222324 ||
		b.RecvTaken() != 0x31323334 {
		t.Error("the header does not read back")
	}
	b.Reset()
	for i, v := range mem {
		if v != 0 {
			t.Fatalf("byte %d is %#x after Reset", i, v)
		}
	}

	cq := make([]byte, CQBlockSize(64))
	c, _ := NewCQBlock(cq, 64)
	c.SetProduced(0x01020304)
	c.SetState(CQOverrun)
	c.SetFired(0x11121314)
	c.SetMoved(0x31323334)
	c.SetConsumed(0x21222324)
	c.StoreArm(ArmWord(0xfffffffe, ArmSolicited))
	check(t, "completion queue", cq, all[1], map[string]uint64{
		"produced": 0x01020304, "state": 1, "fired": 0x11121314, "moved": 1<<32 | 0x31323334, "consumed": 0x21222324,
		"arm": 0xfffffffe<<2 | 2,
	})
	if seq, kind := SplitArm(c.Arm()); seq != 0xfffffffe || kind != ArmSolicited || c.LoadArm() != c.Arm() {
		t.Errorf("arm word reads back as %#x, %d", seq, kind)
	}

	bell := make([]byte, DoorbellSize)
	d, _ := NewDoorbell(bell)
	d.Ring(0)
	check(t, "doorbell", bell, all[2], map[string]uint64{"top": 1, "middle": 1, "leaf": 1})
	d.Ring(MaxQPSlots - 1)
	if bell[offBellTop+7] != 0x80 || bell[offBellMiddle+64*8-1] != 0x80 || bell[offBellLeaf+4096*8-1] != 0x80 {
		t.Error("the last slot's bits are elsewhere")
	}

	page := make([]byte, DevicePageSize)
	p, _ := NewDevicePage(page)
	p.Init(0x0102030405060708)
	p.SetHeartbeat(0x1112131415161718)
	p.SetDeviceState(DeviceFatal)
	p.SetPortState(4)
	p.SetSleeping(0, true)
	p.mem.store32(offPageDeath, 0xc0000001)
	check(t, "device page", page, all[3], map[string]uint64{
		"magic": DevicePageMagic, "version": Version, "generation": 0x0102030405060708, "heartbeat": 0x1112131415161718,
		"device_state": 2, "port_state": 4, "death": 0xc0000001, "sleeping": 1,
	})
}

func TestDevicePage(t *testing.T) {
	if _, err := NewDevicePage(make([]byte, DevicePageSize-8)); err == nil {
		t.Error("a short page is accepted")
	}
	mem := make([]byte, DevicePageSize)
	p, _ := NewDevicePage(mem)
	if p.Check() == nil {
		t.Error("an empty page is accepted")
	}
	p.Init(5)
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	for i := -1; i <= MaxShards; i++ {
		p.SetSleeping(i, true)
		if want := i >= 0 && i < MaxShards; p.Sleeping(i) != want {
			t.Errorf("shard %d sleeps: %v", i, !want)
		}
		p.SetSleeping(i, false)
		if p.Sleeping(i) {
			t.Errorf("shard %d still sleeps", i)
		}
	}
	if p.Dead() || p.Generation() != 5 || p.DeviceState() != DeviceRunning || p.PortState() != 0 || p.Heartbeat() != 0 {
		t.Error("a fresh page does not say so")
	}
	p.mem.store32(offPageDeath, 77|1<<31)
	if p.Dead() {
		t.Error("dead while the thread lives")
	}
	p.mem.store32(offPageDeath, 77|1<<31|DeathBit)
	if !p.Dead() {
		t.Error("alive with the owner-died bit")
	}
	p.mem.store32(offPageVersion, Version+1)
	if p.Check() == nil {
		t.Error("another version is accepted")
	}
}
