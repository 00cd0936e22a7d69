package abi

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/softnic/softnicd/ib"
)

// FuzzCopySend reads any bytes as a send request: what was copied never exceeds what there is room for, and what is whole
// is the same when it is put and copied again.
func FuzzCopySend(f *testing.F) {
	l := NewQPLayout(1, 1, 3, 3, 40)
	full := make([]byte, l.Size())
	block, err := NewQPBlock(full, l)
	if err != nil {
		f.Fatal(err)
	}
	slot := func() []byte { return bytes.Clone(full[QPHeaderSize : QPHeaderSize+l.SendStride]) }
	block.PutSend(0, &SendWQE{WRID: 1, Opcode: 2, RKey: 3, RemoteAddr: 4, Operand: 5, Compare: 6}, []ib.SGE{{Addr: 7, Length: 8, LKey: 9}, {}})
	f.Add(slot())
	block.PutSendInline(0, &SendWQE{WRID: 1}, []byte("inline"), []byte(" data"))
	f.Add(slot())
	f.Add(bytes.Repeat([]byte{0xff}, int(l.SendStride)))
	f.Fuzz(func(t *testing.T, b []byte) {
		block, mem := blockOf(t, l)
		copy(mem[QPHeaderSize:QPHeaderSize+l.SendStride], b)
		var w, again SendWQE
		list, inline := make([]ib.SGE, 3), make([]byte, 40)
		n := block.CopySend(0, &w, list, inline)
		room := len(list)
		if w.Flags&uint8(ib.SendInline) != 0 {
			room = len(inline)
		}
		if n != min(int(w.Count), room) {
			t.Fatalf("%d copied of %d, room for %d", n, w.Count, room)
		}
		if n != int(w.Count) {
			return
		}
		second, _ := blockOf(t, l)
		if w.Flags&uint8(ib.SendInline) != 0 {
			second.PutSendInline(0, &w, inline[:n])
		} else {
			second.PutSend(0, &w, list[:n])
		}
		list2, inline2 := make([]ib.SGE, 3), make([]byte, 40)
		if m := second.CopySend(0, &again, list2, inline2); m != n || again != w || !reflect.DeepEqual(list, list2) || !bytes.Equal(inline, inline2) {
			t.Fatalf("%+v %v %x became %+v %v %x", w, list, inline, again, list2, inline2)
		}
	})
}

// FuzzCopyRecv does the same with receives.
func FuzzCopyRecv(f *testing.F) {
	l := NewQPLayout(1, 1, 3, 3, 0)
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3})
	f.Add(bytes.Repeat([]byte{0xff}, int(l.RecvStride)))
	f.Fuzz(func(t *testing.T, b []byte) {
		block, mem := blockOf(t, l)
		copy(mem[QPHeaderSize+l.SendStride:], b)
		var w, again RecvWQE
		list, list2 := make([]ib.SGE, 3), make([]ib.SGE, 3)
		n := block.CopyRecv(0, &w, list)
		if n < 0 || n > len(list) || uint32(n) > w.Count || n < len(list) && uint32(n) != w.Count {
			t.Fatalf("%d copied of %d", n, w.Count)
		}
		if uint32(n) != w.Count {
			return
		}
		second, _ := blockOf(t, l)
		second.PutRecv(0, &w, list[:n])
		if second.CopyRecv(0, &again, list2) != n || again != w || !reflect.DeepEqual(list, list2) {
			t.Fatalf("%+v %v became %+v %v", w, list, again, list2)
		}
	})
}

func blockOf(t *testing.T, l QPLayout) (*QPBlock, []byte) {
	t.Helper()
	mem := make([]byte, l.Size())
	b, err := NewQPBlock(mem, l)
	if err != nil {
		t.Fatal(err)
	}
	return b, mem
}
