package nic

import (
	"syscall"
	"testing"
	"time"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// windowed is two connected queue pairs, a region of y's to which windows can be bound, and one of its windows.
type windowed struct {
	*world
	a, b *host
	x, y *endpoint
	mem  []byte
	mr   *MR
	mw   *MW
}

func newWindowed(t *testing.T, typ ib.MWType) *windowed {
	t.Helper()
	w, a, b := newPair(t, nil)
	s := &windowed{world: w, a: a, b: b, x: a.newQP(t, nil), y: b.newQP(t, nil), mem: make([]byte, 4096)}
	s.x.connect(t, s.y)
	s.y.connect(t, s.x)
	var err error
	if s.mr, err = b.ctx.RegMR(b.pd, MRConfig{Region: dma.NewEmbedded(s.mem), Base: 0x900000, Length: 4096,
		Access: ib.AccessLocalWrite | ib.AccessMWBind}); err != nil {
		t.Fatal(err)
	}
	if s.mw, err = b.ctx.AllocMW(b.pd, typ, 33); err != nil {
		t.Fatal(err)
	}
	return s
}

// bind posts a bind to 64 bytes at 0x900040 and returns the new key.
func (s *windowed) bind(id uint64) ib.RKey {
	key := s.mw.RKey().Inc()
	s.y.postSend(abi.SendWQE{WRID: id, Opcode: uint8(ib.WRBindMW), Flags: uint8(ib.SendSignaled), Imm: 33, RKey: uint32(key),
		RemoteAddr: 0x900040, Operand: 64,
		Compare: uint64(s.mr.LKey())<<32 | uint64(ib.AccessRemoteWrite|ib.AccessRemoteRead)})
	return key
}

func (s *windowed) write(id uint64, key ib.RKey) {
	s.x.mem[0] = byte(id)
	s.x.postSend(abi.SendWQE{WRID: id, Opcode: uint8(ib.WRRDMAWrite), Flags: uint8(ib.SendSignaled), RKey: uint32(key), RemoteAddr: 0x900040},
		s.x.sge(0, 1))
}

// ended runs and compares the completions of one application, all of them.
func (s *windowed) ended(t *testing.T, of *app, want ...abi.CQE) {
	t.Helper()
	s.run(100 * time.Millisecond)
	got := of.poll(t)
	if len(got) != len(want) {
		t.Fatalf("completions %+v, want %+v", got, want)
	}
	for i := range want {
		g := &got[i]
		if g.WRID != want[i].WRID || g.Status != want[i].Status || g.Opcode != want[i].Opcode || g.Flags != want[i].Flags || g.Imm != want[i].Imm {
			t.Fatalf("completion %+v, want %+v", *g, want[i])
		}
	}
}

func ok(id uint64, op ib.WCOpcode) abi.CQE { return abi.CQE{WRID: id, Opcode: uint8(op)} }

// The life of a window: bound, used, invalidated by the peer, bound again.
func TestWindow(t *testing.T) {
	s := newWindowed(t, ib.MWType2)
	key := s.bind(1)
	s.ended(t, s.y.app, ok(1, ib.WCBindMW))
	s.write(2, key)
	s.ended(t, s.x.app, ok(2, ib.WCRDMAWrite))
	if s.mem[64] != 2 {
		t.Error("nothing was written")
	}
	if err := s.b.ctx.DeregMR(s.mr); errno(err) != syscall.EBUSY {
		t.Errorf("dereg under a window: %v", err)
	}
	if err := s.b.ctx.ReregMR(s.mr, ib.ReregAccess, nil, MRConfig{}); errno(err) != syscall.EBUSY {
		t.Errorf("rereg under a window: %v", err)
	}
	s.y.postRecv(5, s.y.sge(0, 64))
	s.x.postSend(abi.SendWQE{WRID: 3, Opcode: uint8(ib.WRSendWithInv), Flags: uint8(ib.SendSignaled), Imm: uint32(key)}, s.x.sge(0, 5))
	s.ended(t, s.x.app, ok(3, ib.WCSend))
	inv := ok(5, ib.WCRecv)
	inv.Flags, inv.Imm = uint16(ib.WCWithInv), uint32(key)
	s.ended(t, s.y.app, inv)
	next := s.bind(6)
	s.ended(t, s.y.app, ok(6, ib.WCBindMW))
	if next != key+1 || s.mw.RKey() != next {
		t.Errorf("key %#x after %#x", next, key)
	}
	s.y.postSend(abi.SendWQE{WRID: 7, Opcode: uint8(ib.WRLocalInv), Flags: uint8(ib.SendSignaled), Imm: uint32(next)})
	s.ended(t, s.y.app, ok(7, ib.WCLocalInv))
	s.write(8, next)
	s.ended(t, s.x.app, abi.CQE{WRID: 8, Status: uint8(ib.WCRemAccessErr)})
	if err := s.b.ctx.DeregMR(s.mr); err != nil {
		t.Error(err)
	}
	if err := s.b.ctx.DeallocMW(s.mw); err != nil {
		t.Error(err)
	}
	for _, h := range []*host{s.a, s.b} {
		if err := h.ctx.Close(); err != nil {
			t.Error(err)
		}
		h.checkEmpty(t)
	}
}

// What is not the window's name in the request, whole: handle, key, domain.
func TestBindOfAStranger(t *testing.T) {
	s := newWindowed(t, ib.MWType2)
	other, err := s.b.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if s.mw, err = s.b.ctx.AllocMW(other, ib.MWType2, 33); err != nil {
		t.Fatal(err)
	}
	s.bind(1) // C10-72
	s.ended(t, s.y.app, abi.CQE{WRID: 1, Status: uint8(ib.WCMWBindErr)})
	if s.y.block.State() != ib.StateErr {
		t.Error("the queue pair lives on")
	}
}

// A queue pair goes with its windows bound (o10-2.2.5), and they are free again.
func TestQueuePairWithWindows(t *testing.T) {
	s := newWindowed(t, ib.MWType2)
	s.bind(1)
	s.ended(t, s.y.app, ok(1, ib.WCBindMW))
	if err := s.b.ctx.DestroyQP(s.y.qp); err != nil {
		t.Fatal(err)
	}
	if err := s.b.ctx.DeregMR(s.mr); err != nil {
		t.Errorf("the window is bound to a queue pair that is no more: %v", err)
	}
}

// Type 1 stays bound: it belongs to its domain.
func TestQueuePairWithWindowOfType1(t *testing.T) {
	s := newWindowed(t, ib.MWType1)
	s.bind(1)
	s.ended(t, s.y.app, ok(1, ib.WCBindMW))
	if err := s.b.ctx.DestroyQP(s.y.qp); err != nil {
		t.Fatal(err)
	}
	if err := s.b.ctx.DeregMR(s.mr); errno(err) != syscall.EBUSY {
		t.Errorf("dereg under a window: %v", err)
	}
	if err := s.b.ctx.DeallocMW(s.mw); err != nil {
		t.Error(err)
	}
	if err := s.b.ctx.DeregMR(s.mr); err != nil {
		t.Error(err)
	}
}

func TestAllocMW(t *testing.T) {
	_, a, b := newPair(t, nil)
	for _, typ := range []ib.MWType{0, 3, 255} {
		if _, err := a.ctx.AllocMW(a.pd, typ, 1); errno(err) != syscall.EINVAL {
			t.Errorf("type %d: %v", typ, err)
		}
	}
	if _, err := b.ctx.AllocMW(a.pd, ib.MWType1, 1); errno(err) != syscall.EINVAL {
		t.Errorf("in another's domain: %v", err)
	}
	pd, err := a.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.ctx.AllocMW(pd, ib.MWType1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ctx.DeallocPD(pd); errno(err) != syscall.EBUSY {
		t.Errorf("a domain with a window went away: %v", err)
	}
	if err := b.ctx.DeallocMW(m); errno(err) != syscall.EINVAL {
		t.Errorf("dealloc of another's: %v", err)
	}
	if err := a.ctx.DeallocMW(m); err != nil {
		t.Error(err)
	}
	if err := a.ctx.DeallocMW(m); errno(err) != syscall.EINVAL {
		t.Errorf("dealloc again: %v", err)
	}
	if err := a.ctx.DeallocPD(pd); err != nil {
		t.Error(err)
	}
	n := 0
	for ; ; n++ {
		if _, err = a.ctx.AllocMW(a.pd, ib.MWType2, uint32(n)); err != nil {
			break
		}
	}
	if n != int(a.dev.Attr().MaxMW) || errno(err) != syscall.ENOMEM {
		t.Errorf("%d windows, then %v; max_mw is %d", n, err, a.dev.Attr().MaxMW)
	}
	if err := a.ctx.Close(); err != nil {
		t.Error(err)
	}
	a.checkEmpty(t)
}

func TestWindowAttributes(t *testing.T) {
	_, a, _ := newPair(t, nil)
	attr := a.dev.Attr()
	const want = ib.CapMemWindow | ib.CapMemWindow2B | ib.CapMemMgtExt | ib.CapFlushGlobal | ib.CapAtomicWrite
	if attr.DeviceCapFlags&want != want || attr.DeviceCapFlags&(ib.CapMemWindow2A|ib.CapFlushPersistent) != 0 {
		t.Errorf("capabilities %s", attr.DeviceCapFlags)
	}
	if l := DefaultLimits(); attr.MaxMW != 64 || l.MaxMW != 65536 {
		t.Errorf("max_mw %d and %d", attr.MaxMW, l.MaxMW)
	}
}

func TestReregMR(t *testing.T) {
	w, a, b := newPair(t, nil)
	x, y := a.newQP(t, nil), b.newQP(t, nil)
	x.connect(t, y)
	y.connect(t, x)
	s := &windowed{world: w, a: a, b: b, x: x, y: y}
	first, second := make([]byte, 4096), make([]byte, 8192)
	const rights = ib.AccessLocalWrite | ib.AccessRemoteWrite
	mr, err := b.ctx.RegMR(b.pd, MRConfig{Region: dma.NewEmbedded(first), Base: 0x900000, Length: 4096, Access: rights})
	if err != nil {
		t.Fatal(err)
	}
	key := mr.RKey()
	pd, err := b.ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags ib.ReregFlags
		pd    *PD
		cfg   MRConfig
		want  syscall.Errno
	}{
		"nothing":           {0, nil, MRConfig{}, syscall.EINVAL},
		"unknown flag":      {8, nil, MRConfig{}, syscall.EINVAL},
		"no domain":         {ib.ReregPD, nil, MRConfig{}, syscall.EINVAL},
		"another's domain":  {ib.ReregPD, a.pd, MRConfig{}, syscall.EINVAL},
		"rights":            {ib.ReregAccess, nil, MRConfig{Access: ib.AccessRemoteWrite}, syscall.EINVAL},
		"rights not had":    {ib.ReregAccess, nil, MRConfig{Access: ib.AccessOnDemand}, syscall.EOPNOTSUPP},
		"no memory":         {ib.ReregTranslation, nil, MRConfig{}, syscall.EINVAL},
		"outside of memory": {ib.ReregTranslation, nil, MRConfig{Region: dma.NewEmbedded(second), Offset: 1, Length: 8192}, syscall.EINVAL},
		"zero-based there":  {ib.ReregAccess, nil, MRConfig{Access: ib.AccessZeroBased}, syscall.EINVAL},
	} {
		if err := b.ctx.ReregMR(mr, c.flags, c.pd, c.cfg); errno(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := a.ctx.ReregMR(mr, ib.ReregAccess, nil, MRConfig{}); errno(err) != syscall.EINVAL {
		t.Errorf("of another's region: %v", err)
	}
	s.write(1, key) // all that was refused has changed nothing
	s.ended(t, x.app, ok(1, ib.WCRDMAWrite))

	if err := b.ctx.ReregMR(mr, ib.ReregTranslation, nil, MRConfig{Region: dma.NewEmbedded(second), Offset: 4096, Base: 0x900000, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	s.write(2, mr.RKey())
	s.ended(t, x.app, ok(2, ib.WCRDMAWrite))
	if first[64] != 1 || second[4096+64] != 2 {
		t.Errorf("the old memory holds %d, the new %d", first[64], second[4096+64])
	}
	if err := b.ctx.ReregMR(mr, ib.ReregPD, pd, MRConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := b.ctx.DeallocPD(pd); errno(err) != syscall.EBUSY {
		t.Errorf("the new domain went away: %v", err)
	}
	if err := b.ctx.ReregMR(mr, ib.ReregPD|ib.ReregAccess, b.pd, MRConfig{Access: ib.AccessRemoteRead}); err != nil {
		t.Fatal(err)
	}
	if err := b.ctx.DeallocPD(pd); err != nil {
		t.Errorf("the domain of before: %v", err)
	}
	s.write(3, mr.RKey())
	s.ended(t, x.app, abi.CQE{WRID: 3, Status: uint8(ib.WCRemAccessErr)})
	if err := b.ctx.DeregMR(mr); err != nil {
		t.Error(err)
	}
	if err := b.ctx.ReregMR(mr, ib.ReregAccess, nil, MRConfig{}); errno(err) != syscall.EINVAL {
		t.Errorf("of a region that is gone: %v", err)
	}
}

// FLUSH, ATOMIC WRITE and BIND_MW as the queue carries them. Numbers that do not fit are not cut.
func TestPlacementRequests(t *testing.T) {
	q, x := newServed(t, nil)
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRFlush), RemoteAddr: 1, RKey: 2, Operand: 1 << 40, Compare: 1<<32 | 3})
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRAtomicWrite), RemoteAddr: 1, RKey: 2, Operand: 5})
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRBindMW), Imm: 3, RemoteAddr: 1, RKey: 2, Operand: 1 << 40, Compare: 7<<32 | 6})
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRFlush), Compare: 257})
	x.postSend(abi.SendWQE{Opcode: uint8(ib.WRFlush), Compare: 256 << 32})
	r := newRequest()
	if q.FetchSend(r); r.Length != 1<<40 || r.Flush.Placement != 3 || r.Flush.Level != ib.FlushRegion || r.Remote != 1 || r.RKey != 2 {
		t.Errorf("%+v", r)
	}
	if q.FetchSend(r); r.Swap != 5 || len(r.SGE) != 0 || r.Length != 0 {
		t.Errorf("%+v", r)
	}
	if q.FetchSend(r); r.Length != 1<<40 || r.Bind.Window != 3 || r.Bind.LKey != 7 || r.Bind.Access != 6 {
		t.Errorf("%+v", r)
	}
	for range 2 {
		if got := q.FetchSend(r); got != transport.Malformed {
			t.Errorf("taken for good: %+v", r)
		}
	}
}
