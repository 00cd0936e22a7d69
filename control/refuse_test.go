package control

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/internal/shm"
)

// wantRefusal wants an errno and a sentence that names what it is about.
func wantRefusal(t *testing.T, err error, errno syscall.Errno, words ...string) {
	t.Helper()
	var e *ctl.Error
	if !errors.As(err, &e) || e.Errno != errno {
		t.Errorf("answer %v, want %v", err, errno)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Sentence, w) {
			t.Errorf("the sentence %q does not say %q", e.Sentence, w)
		}
	}
}

// Everything that can be wrong with the memory that comes with a request.
func TestBadDescriptors(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	unix.Close(c.open())
	good := memfd(t, 1<<16)
	defer unix.Close(good)
	unsealed, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	noError(t, err)
	noError(t, unix.Ftruncate(unsealed, 1<<16))
	defer unix.Close(unsealed)
	file, err := os.Create(t.TempDir() + "/file")
	noError(t, err)
	defer file.Close()
	noError(t, file.Truncate(1<<16))
	readOnly, page, err := shm.Published("published", 1<<16)
	noError(t, err)
	defer unix.Close(readOnly)
	defer shm.Unmap(page)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	noError(t, err)
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])

	fds, maps := descriptors(t), mappings(t)
	const size = 1 << 16
	for _, test := range []struct {
		name  string
		size  uint64
		fds   []int
		errno syscall.Errno
		words string
	}{
		{"none", size, nil, unix.EINVAL, "0 descriptors"},
		{"two", size, []int{good, good}, unix.EINVAL, "2 descriptors"},
		{"five", size, []int{good, good, good, good, good}, unix.EINVAL, "descriptors"},
		{"sixteen", size, []int{good, good, good, good, good, good, good, good, good, good, good, good, good, good, good, good}, unix.EINVAL, "descriptors"},
		{"unsealed", size, []int{unsealed}, unix.EINVAL, "SHRINK"},
		{"short", size + 1, []int{good}, unix.EINVAL, "65536"},
		{"a file", size, []int{int(file.Fd())}, unix.EINVAL, "not a memfd"},
		{"a socket", size, []int{pair[0]}, unix.EINVAL, "not a memfd"},
		{"sealed against writing", size, []int{readOnly}, unix.EPERM, "writing"},
		{"size 0", 0, []int{good}, unix.EINVAL, "size 0"},
		{"size 2^63", 1 << 63, []int{good}, unix.EINVAL, "size"},
		{"size 2^62", 1 << 62, []int{good}, unix.ENOMEM, "limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.call(ctl.OpAddArena, &ctl.AddArena{Size: test.size}, &ctl.HandleReply{}, test.fds...)
			wantRefusal(t, err, test.errno, test.words)
		})
	}
	// Descriptors where none belong.
	_, err = c.call(ctl.OpAllocPD, &ctl.Empty{}, &ctl.HandleReply{}, good)
	wantRefusal(t, err, unix.EINVAL, "alloc pd", "1 descriptors")
	eventually(t, "descriptors", fds, descriptors)
	eventually(t, "mappings", maps, mappings)
	// And the session still works.
	c.build()
}

// Messages that are no requests.
func TestBadMessages(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	unix.Close(c.open())
	good := memfd(t, 4096)
	defer unix.Close(good)
	fds := descriptors(t)
	valid, err := ctl.Append(nil, ctl.OpAddArena, 77, 0, &ctl.AddArena{Size: 4096})
	noError(t, err)
	edit := func(f func([]byte) []byte) []byte { return f(append([]byte(nil), valid...)) }
	for _, test := range []struct {
		name  string
		msg   []byte
		errno syscall.Errno
		words string
	}{
		{"one byte", []byte{1}, unix.EINVAL, "shorter than its header"},
		{"15 bytes", valid[:15], unix.EINVAL, "shorter than its header"},
		{"size too large", edit(func(b []byte) []byte { b[0]++; return b }), unix.EINVAL, "says 25 bytes and has 24"},
		{"cut", valid[:20], unix.EINVAL, "says 24 bytes and has 20"},
		{"body too short", edit(func(b []byte) []byte { b[0] -= 4; return b[:20] }), unix.EINVAL, "body of 4 bytes, 8 expected"},
		{"body too long", edit(func(b []byte) []byte { b[0] += 8; return append(b, make([]byte, 8)...) }), unix.EINVAL, "body of 16 bytes"},
		{"another version", edit(func(b []byte) []byte { b[4] = 9; return b }), unix.EPROTONOSUPPORT, "version 1"},
		{"unknown operation", edit(func(b []byte) []byte { b[6] = 200; return b }), unix.EOPNOTSUPP, "operation 200"},
		{"operation 0", edit(func(b []byte) []byte { b[6] = 0; return b }), unix.EOPNOTSUPP, "operation 0"},
		{"5000 bytes", append(valid, make([]byte, 5000)...), unix.EMSGSIZE, "longer than 4096"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, body, got := c.exchange(test.msg, good)
			if len(got) != 0 {
				t.Fatal("descriptors came back")
			}
			wantRefusal(t, &ctl.Error{Errno: syscall.Errno(h.Errno), Sentence: string(body)}, test.errno, test.words)
			if len(test.msg) >= ctl.HeaderSize && h.Tag != 77 {
				t.Errorf("tag %d", h.Tag)
			}
		})
	}
	eventually(t, "descriptors", fds, descriptors)
	c.build()
}

// Handles that name nothing, places that are not there, objects in use: an answer for each operation.
func TestBadRequests(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	unix.Close(c.open())
	o, channel := c.build()
	defer unix.Close(channel)
	other := d.dial()
	unix.Close(other.open())
	foreign, ch2 := other.build()
	defer unix.Close(ch2)
	// The same small numbers name other objects there. One more than there are names nothing here.
	if foreign != o {
		t.Fatalf("handles %v and %v", o, foreign)
	}
	fds, maps := descriptors(t), mappings(t)
	none := uint32(99)
	qp := func(f func(*ctl.CreateQP)) *ctl.CreateQP { q := o.newQP(); f(q); return q }
	ah := func(f func(*ctl.CreateAH)) *ctl.CreateAH {
		q := &ctl.CreateAH{PD: o.pd, Port: 1, IsGlobal: 1, DGID: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
		f(q)
		return q
	}
	mr := func(f func(*ctl.RegMR)) *ctl.RegMR { q := o.newMR(); f(q); return q }
	for _, test := range []struct {
		name    string
		op      ctl.Op
		request any
		errno   syscall.Errno
		words   string
	}{
		{"arena", ctl.OpRemoveArena, &ctl.Handle{Handle: none}, unix.EINVAL, "remove arena: no such arena 99"},
		{"arena in use", ctl.OpRemoveArena, &ctl.Handle{Handle: o.arena}, unix.EBUSY, "holds 3 rings and regions"},
		{"pd", ctl.OpDeallocPD, &ctl.Handle{Handle: none}, unix.EINVAL, "no such protection domain 99"},
		{"pd 0", ctl.OpDeallocPD, &ctl.Handle{}, unix.EINVAL, "no such protection domain 0"},
		{"pd in use", ctl.OpDeallocPD, &ctl.Handle{Handle: o.pd}, unix.EBUSY, "protection domain 1"},
		{"mr", ctl.OpDeregMR, &ctl.Handle{Handle: none}, unix.EINVAL, "no such memory region 99"},
		{"channel", ctl.OpDestroyChannel, &ctl.Handle{Handle: none}, unix.EINVAL, "no such completion channel 99"},
		{"channel in use", ctl.OpDestroyChannel, &ctl.Handle{Handle: o.channel}, unix.EBUSY, "has 1 completion queues"},
		{"cq", ctl.OpDestroyCQ, &ctl.Handle{Handle: none}, unix.EINVAL, "no such completion queue 99"},
		{"cq in use", ctl.OpDestroyCQ, &ctl.Handle{Handle: o.cq}, unix.EBUSY, "completion queue 1"},
		{"qp", ctl.OpDestroyQP, &ctl.Handle{Handle: none}, unix.EINVAL, "no such queue pair 99"},
		{"query qp", ctl.OpQueryQP, &ctl.Handle{Handle: none}, unix.EINVAL, "no such queue pair 99"},
		{"qp counters", ctl.OpQueryQPCounters, &ctl.QueryQPCounters{QP: none}, unix.EINVAL, "no such queue pair 99"},
		{"modify qp", ctl.OpModifyQP, &ctl.ModifyQP{QP: none}, unix.EINVAL, "no such queue pair 99"},
		{"qp to nowhere", ctl.OpModifyQP, &ctl.ModifyQP{QP: o.qp, Mask: 1, Attr: ctl.QPAttr{State: 3}}, unix.EINVAL, "modify qp 0x"},
		{"qp attribute too large", ctl.OpModifyQP, &ctl.ModifyQP{QP: o.qp, Mask: 1, Attr: ctl.QPAttr{State: 1 << 20}}, unix.EINVAL, "modify qp"},
		{"resize", ctl.OpResizeCQ, &ctl.ResizeCQ{CQ: none}, unix.EINVAL, "no such completion queue 99"},
		{"moderate", ctl.OpModifyCQ, &ctl.ModifyCQ{CQ: none}, unix.EINVAL, "no such completion queue 99"},
		{"moderate too much", ctl.OpModifyCQ, &ctl.ModifyCQ{CQ: o.cq, Count: 1 << 20}, unix.EINVAL, "modify cq"},

		{"cq of 0 entries", ctl.OpCreateCQ, &ctl.CreateCQ{Arena: o.arena}, unix.EINVAL, "0 entries"},
		{"cq of 2^32-1", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1<<32 - 1, Arena: o.arena}, unix.EINVAL, "entries"},
		{"cq vector", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, CompVector: 64, Arena: o.arena}, unix.EINVAL, "completion vector 64"},
		{"cq without arena", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, Arena: none}, unix.EINVAL, "no such arena 99"},
		{"cq without channel", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, Arena: o.arena, Channel: none}, unix.EINVAL, "no such completion channel 99"},
		{"cq unaligned", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, Arena: o.arena, Offset: 8}, unix.EINVAL, "multiple of 64"},
		{"cq outside", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, Arena: o.arena, Offset: 1<<20 - 64}, unix.EINVAL, "outside of the arena"},
		{"cq far outside", ctl.OpCreateCQ, &ctl.CreateCQ{Entries: 1, Arena: o.arena, Offset: 1<<64 - 64}, unix.EINVAL, "outside of the arena"},

		{"qp without pd", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.PD = none }), unix.EINVAL, "no such protection domain 99"},
		{"qp without send cq", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.SendCQ = none }), unix.EINVAL, "send cq: no such completion queue 99"},
		{"qp without receive cq", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.RecvCQ = 0 }), unix.EINVAL, "receive cq: no such completion queue 0"},
		{"qp of no type", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.Type = 77 }), unix.EINVAL, "create qp"},
		{"qp of a huge type", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.Type = 1 << 31 }), unix.EINVAL, "type"},
		{"qp with srq", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.SRQ = 1 }), unix.EINVAL, "no such shared receive queue 1"},
		{"qp signals 2", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.SigAll = 2 }), unix.EINVAL, "sq_sig_all"},
		{"qp too deep", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.MaxSendWR = 1<<32 - 1 }), unix.EINVAL, "create qp"},
		{"qp with too many sges", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.MaxRecvSGE = 1 << 30 }), unix.EINVAL, "create qp"},
		{"qp outside", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.Offset = 1<<20 - 64 }), unix.EINVAL, "outside of the arena"},
		{"qp unaligned", ctl.OpCreateQP, qp(func(q *ctl.CreateQP) { q.Offset += 32 }), unix.EINVAL, "multiple of 64"},

		{"srq", ctl.OpDestroySRQ, &ctl.Handle{Handle: none}, unix.EINVAL, "no such shared receive queue 99"},
		{"query srq", ctl.OpQuerySRQ, &ctl.Handle{Handle: none}, unix.EINVAL, "no such shared receive queue 99"},
		{"modify srq", ctl.OpModifySRQ, &ctl.ModifySRQ{SRQ: none}, unix.EINVAL, "no such shared receive queue 99"},
		{"srq without pd", ctl.OpCreateSRQ, &ctl.CreateSRQ{PD: none, MaxWR: 4, MaxSGE: 1, Arena: o.arena}, unix.EINVAL, "no such protection domain 99"},
		{"srq without arena", ctl.OpCreateSRQ, &ctl.CreateSRQ{PD: o.pd, MaxWR: 4, MaxSGE: 1, Arena: none}, unix.EINVAL, "no such arena 99"},
		{"srq of 0 receives", ctl.OpCreateSRQ, &ctl.CreateSRQ{PD: o.pd, MaxSGE: 1, Arena: o.arena}, unix.EINVAL, "create srq: max_wr 0"},
		{"srq of 2^32-1", ctl.OpCreateSRQ, &ctl.CreateSRQ{PD: o.pd, MaxWR: 1<<32 - 1, MaxSGE: 1, Arena: o.arena}, unix.EINVAL, "create srq: max_wr"},
		{"srq outside", ctl.OpCreateSRQ, &ctl.CreateSRQ{PD: o.pd, MaxWR: 4, MaxSGE: 1, Arena: o.arena, Offset: 1<<20 - 64}, unix.EINVAL, "outside of the arena"},

		{"ah", ctl.OpDestroyAH, &ctl.Handle{Handle: none}, unix.EINVAL, "no such address handle 99"},
		{"ah without pd", ctl.OpCreateAH, ah(func(q *ctl.CreateAH) { q.PD = none }), unix.EINVAL, "no such protection domain 99"},
		{"ah without grh", ctl.OpCreateAH, ah(func(q *ctl.CreateAH) { q.IsGlobal = 0 }), unix.EINVAL, "create ah: address vector without GRH"},
		{"ah of a huge index", ctl.OpCreateAH, ah(func(q *ctl.CreateAH) { q.SGIDIndex = 256 }), unix.EINVAL, "sgid_index"},
		{"ah of no gid", ctl.OpCreateAH, ah(func(q *ctl.CreateAH) { q.SGIDIndex = 255 }), unix.EINVAL, "GID index 255"},
		{"ah of port 2", ctl.OpCreateAH, ah(func(q *ctl.CreateAH) { q.Port = 2 }), unix.EINVAL, "port 2"},

		{"mr without pd", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.PD = none }), unix.EINVAL, "no such protection domain 99"},
		{"mr without arena", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Arena = none }), unix.EINVAL, "no such arena 99"},
		{"mr of 0 bytes", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Length = 0 }), unix.EINVAL, "reg mr"},
		{"mr outside", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Offset = 1<<20 - 1 }), unix.EINVAL, "outside of the arena"},
		{"mr that wraps", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Offset = 1<<64 - 4096 }), unix.EINVAL, "outside of the arena"},
		{"mr of 2^64-1 bytes", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Length = 1<<64 - 1 }), unix.EINVAL, "outside of the arena"},
		{"mr whose addresses wrap", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Base = 1<<64 - 100 }), unix.EINVAL, "reg mr"},
		{"mr with remote write alone", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Access = 2 }), unix.EINVAL, "access"},
		{"mr on demand", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Access = 64 }), unix.EOPNOTSUPP, "access"},
		{"mr of no kind", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Kind = 9 }), unix.EINVAL, "kind 9"},
		{"mr embedded", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Kind = ctl.MemoryEmbedded }), unix.EINVAL, "embedded devices"},
		{"mr of process memory that is not there", ctl.OpRegMR, mr(func(q *ctl.RegMR) { q.Kind, q.Addr = ctl.MemoryProcess, 4096 }), unix.EFAULT, "memory of process"},

		{"rereg of none", ctl.OpReregMR, &ctl.ReregMR{Region: none, Flags: 4}, unix.EINVAL, "no such memory region 99"},
		{"rereg of nothing", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr}, unix.EINVAL, "rereg mr: flags 0"},
		{"rereg with a huge flag", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr, Flags: 1 << 20}, unix.EINVAL, "rereg mr: flags 0x100000"},
		{"rereg into no pd", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr, Flags: 2, MR: ctl.RegMR{PD: none}}, unix.EINVAL, "no such protection domain 99"},
		{"rereg outside", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr, Flags: 1, MR: *mr(func(q *ctl.RegMR) { q.Offset = 1<<20 - 1 })}, unix.EINVAL, "outside of the arena"},
		{"rereg of no kind", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr, Flags: 1, MR: ctl.RegMR{Kind: 9}}, unix.EINVAL, "kind 9"},
		{"rereg rights", ctl.OpReregMR, &ctl.ReregMR{Region: o.mr, Flags: 4, MR: ctl.RegMR{Access: 2}}, unix.EINVAL, "access"},
		{"mw without pd", ctl.OpAllocMW, &ctl.AllocMW{PD: none, Type: 1}, unix.EINVAL, "no such protection domain 99"},
		{"mw of no type", ctl.OpAllocMW, &ctl.AllocMW{PD: o.pd, Type: 3}, unix.EINVAL, "alloc mw"},
		{"mw of a huge type", ctl.OpAllocMW, &ctl.AllocMW{PD: o.pd, Type: 1<<8 + 1}, unix.EINVAL, "type 257"},
		{"mw", ctl.OpDeallocMW, &ctl.Handle{Handle: none}, unix.EINVAL, "no such memory window 99"},

		{"port", ctl.OpQueryPort, &ctl.QueryPort{Port: 2}, unix.EINVAL, "port 2"},
		{"gid port", ctl.OpQueryGID, &ctl.QueryGID{Port: 0}, unix.EINVAL, "port 0"},
		{"gid index", ctl.OpQueryGID, &ctl.QueryGID{Port: 1, Index: 1<<32 - 1}, unix.EINVAL, "index"},
		{"gid entry", ctl.OpQueryGID, &ctl.QueryGID{Port: 1, Index: 200}, unix.ENODATA, ""},
		{"pkey index", ctl.OpQueryPKey, &ctl.QueryPKey{Port: 1, Index: 1}, unix.EINVAL, "index 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := c.call(test.op, test.request, &ctl.Empty{})
			wantRefusal(t, err, test.errno, test.words)
		})
	}
	eventually(t, "descriptors", fds, descriptors)
	eventually(t, "mappings", maps, mappings)
	// Nothing was destroyed by any of that.
	for _, s := range []*client{c, other} {
		s.must(ctl.OpDestroyQP, &ctl.Handle{Handle: o.qp}, &ctl.Empty{})
		s.must(ctl.OpDeregMR, &ctl.Handle{Handle: o.mr}, &ctl.Empty{})
		s.must(ctl.OpDestroyCQ, &ctl.Handle{Handle: o.cq}, &ctl.Empty{})
		s.must(ctl.OpDestroyChannel, &ctl.Handle{Handle: o.channel}, &ctl.Empty{})
		s.must(ctl.OpDeallocPD, &ctl.Handle{Handle: o.pd}, &ctl.Empty{})
		s.must(ctl.OpRemoveArena, &ctl.Handle{Handle: o.arena}, &ctl.Empty{})
	}
}

func TestBadOpen(t *testing.T) {
	d := newDaemon(t)
	c := d.dial()
	_, err := c.call(ctl.OpAllocPD, &ctl.Empty{}, &ctl.HandleReply{})
	wantRefusal(t, err, unix.ENODEV, "no device is open")
	bell, small := memfd(t, abi.DoorbellSize), memfd(t, 4096)
	defer unix.Close(bell)
	defer unix.Close(small)
	fds := descriptors(t)
	open := func(f func(*ctl.Open)) *ctl.Open {
		q := &ctl.Open{ABIVersion: abi.Version}
		f(q)
		return q
	}
	_, err = c.call(ctl.OpOpen, open(func(q *ctl.Open) { copy(q.Name[:], "nowhere") }), &ctl.OpenReply{}, bell)
	wantRefusal(t, err, unix.ENODEV, `"nowhere"`)
	_, err = c.call(ctl.OpOpen, open(func(q *ctl.Open) { q.ABIVersion++ }), &ctl.OpenReply{}, bell)
	wantRefusal(t, err, unix.EPROTONOSUPPORT, "version")
	_, err = c.call(ctl.OpOpen, open(func(*ctl.Open) {}), &ctl.OpenReply{}, small)
	wantRefusal(t, err, unix.EINVAL, "doorbell page")
	_, err = c.call(ctl.OpOpen, open(func(*ctl.Open) {}), &ctl.OpenReply{})
	wantRefusal(t, err, unix.EINVAL, "0 descriptors")
	eventually(t, "descriptors", fds, descriptors)
	unix.Close(c.open())
	_, err = c.call(ctl.OpOpen, open(func(*ctl.Open) {}), &ctl.OpenReply{}, bell)
	wantRefusal(t, err, unix.EBUSY, "softnic0")
	var r ctl.ListDevicesReply
	c.must(ctl.OpListDevices, &ctl.ListDevices{First: 1<<32 - 1}, &r)
	if r.Count != 1 || r.N != 0 {
		t.Errorf("%d of %d devices behind the last", r.N, r.Count)
	}
}
