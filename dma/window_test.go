package dma

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/softnic/softnicd/ib"
)

const (
	localQP, otherQP = ib.QPN(0x11), ib.QPN(0x12)

	anyRemote = ib.AccessRemoteRead | ib.AccessRemoteWrite | ib.AccessRemoteAtomic
)

// windows is a table with a region to bind to, and a window of each type.
type windows struct {
	*Table
	pd, other *Domain
	mr        *MR
	one, two  *Window
}

func newWindows(t testing.TB) *windows {
	t.Helper()
	w := &windows{Table: NewTable(32, seeded()), pd: &Domain{Handle: 1}, other: &Domain{Handle: 2}}
	w.mr = insert(t, w.Table, &MR{
		Domain: w.pd, Region: vast{size: 8192}, Offset: 1000, Base: 0x10000, Length: 4096,
		Access: ib.AccessLocalWrite | ib.AccessMWBind | anyRemote,
	})
	w.one = w.window(t, w.pd, ib.MWType1, 1)
	w.two = w.window(t, w.pd, ib.MWType2, 2)
	return w
}

func (w *windows) window(t testing.TB, d *Domain, typ ib.MWType, handle uint32) *Window {
	t.Helper()
	n := &Window{Domain: d, Type: typ, Handle: handle}
	if err := w.InsertWindow(n); err != nil {
		t.Fatal(err)
	}
	return n
}

// to asks for a part of the region that the window may be used for in every way.
func (w *windows) to(win *Window, addr, n uint64) Bind {
	return Bind{Handle: win.Handle, Key: win.RKey().Inc(), LKey: w.mr.LKey, Addr: addr, Length: n, Access: anyRemote}
}

func (w *windows) bind(t testing.TB, b Bind, want Verdict) ib.RKey {
	t.Helper()
	if v := w.Bind(w.pd, localQP, &b); v != want {
		t.Fatalf("bind: %v, want %v", v, want)
	}
	return b.Key
}

func (w *windows) remote(t testing.TB, q ib.QPN, key ib.RKey, va, n uint64, need ib.AccessFlags, want Verdict, off uint64) {
	t.Helper()
	s, v := w.Remote(w.pd, q, key, va, n, need)
	if v != want || v == OK && (s.Off != off || s.Len != n || s.Mem != w.mr.Region) || v != OK && s != (Span{}) {
		t.Errorf("%d bytes at %#x: %v, offset %d; want %v, offset %d", n, va, v, s.Off, want, off)
	}
}

// The checks of a bind: clause by clause, each with everything else right. A refused bind changes nothing.
func TestBindRefuses(t *testing.T) {
	w := newWindows(t)
	fixed := func(access ib.AccessFlags, edit func(*MR)) ib.LKey {
		m := &MR{Domain: w.pd, Region: vast{size: 8192}, Base: 0x10000, Length: 4096, Access: access}
		if edit != nil {
			edit(m)
		}
		return insert(t, w.Table, m).LKey
	}
	unbindable := fixed(ib.AccessLocalWrite|anyRemote, nil)
	readOnly := fixed(ib.AccessMWBind|ib.AccessRemoteRead, nil)
	zeroBased := fixed(ib.AccessMWBind|ib.AccessLocalWrite|ib.AccessZeroBased, nil)
	foreign := fixed(ib.AccessMWBind|ib.AccessLocalWrite, func(m *MR) { m.Domain = w.other })
	high := fixed(ib.AccessMWBind|ib.AccessLocalWrite, func(m *MR) { m.Base = top - 4095 })
	gone := &MR{Domain: w.pd, Region: vast{size: 1}, Length: 1, Access: ib.AccessMWBind}
	insert(t, w.Table, gone)
	w.Table.Remove(gone)
	strange := w.window(t, w.other, ib.MWType2, 9)

	for _, typ := range []*Window{w.one, w.two} {
		for _, c := range []struct {
			name, clause string
			edit         func(b *Bind)
			want         Verdict
		}{
			{"window that is none", "", func(b *Bind) { b.Key += 0x100 }, BadKey},
			{"key of a region", "", func(b *Bind) { b.Key = w.mr.RKey }, BadKey},
			{"handle of another window", "", func(b *Bind) { b.Handle = 77 }, BadKey},
			{"window of another domain", "C10-72", func(b *Bind) { b.Key, b.Handle = strange.RKey(), 9 }, BadDomain},
			{"region of another domain", "C10-72", func(b *Bind) { b.LKey = foreign }, BadDomain},
			{"region that is gone", "", func(b *Bind) { b.LKey = gone.LKey }, BadKey},
			{"window in place of a region", "", func(b *Bind) { b.LKey = ib.LKey(w.one.RKey()) }, BadKey},
			{"region without MW_BIND", "C10-73", func(b *Bind) { b.LKey = unbindable }, BadAccess},
			{"writable, region is not", "C10-74", func(b *Bind) { b.LKey, b.Access = readOnly, ib.AccessRemoteWrite }, BadAccess},
			{"atomic, region is not writable", "C10-74", func(b *Bind) { b.LKey, b.Access = readOnly, ib.AccessRemoteAtomic }, BadAccess},
			{"zero-based region", "10.6.7", func(b *Bind) { b.LKey = zeroBased }, BadAccess},
			{"local write for a window", "10.6.7", func(b *Bind) { b.Access |= ib.AccessLocalWrite }, BadAccess},
			{"MW_BIND for a window", "10.6.7", func(b *Bind) { b.Access |= ib.AccessMWBind }, BadAccess},
			{"flush for a window", "10.6.7", func(b *Bind) { b.Access |= ib.AccessFlushGlobal }, BadAccess},
			{"one byte too long", "C10-75", func(b *Bind) { b.Length = 4097 }, BadRange},
			{"one byte past the end", "C10-75", func(b *Bind) { b.Addr++ }, BadRange},
			{"one byte before", "C10-75", func(b *Bind) { b.Addr-- }, BadRange},
			// Field B3: the sum of address and length wrapped, and the window was bound.
			{"sum wraps", "C10-75, B3", func(b *Bind) { b.Addr, b.Length = top-1023, 1024+0x10000+1 }, BadRange},
			{"length of everything", "C10-75, B3", func(b *Bind) { b.Length = top }, BadRange},
			{"region ends the address space, sum wraps", "C10-75, B3", func(b *Bind) { b.LKey, b.Addr, b.Length = high, top, 2 }, BadRange},
		} {
			b := w.to(typ, 0x10000, 4096)
			c.edit(&b)
			if v := w.Bind(w.pd, localQP, &b); v != c.want {
				t.Errorf("%v: %s: %v, want %v (%s)", typ.Type, c.name, v, c.want, c.clause)
			}
			if typ.bound.mr != nil || w.mr.windows != 0 {
				t.Fatalf("%v: %s: something was bound", typ.Type, c.name)
			}
		}
	}
	b := w.to(w.one, 0x10000, 8)
	b.Access = ib.AccessRemoteRead | ib.AccessZeroBased
	w.bind(t, b, BadAccess) // type 1 is never zero-based: o10-36.2.2
	w.bind(t, w.to(w.two, 0x10000, 0), BadRange)
	if v := w.Bind(w.other, localQP, &b); v != BadDomain {
		t.Errorf("from a queue pair of another domain: %v (C10-72)", v)
	}
	// What is enough: C10-74 asks nothing of a region that is only read.
	b = w.to(w.two, 0x10000, 1)
	b.LKey, b.Access = readOnly, ib.AccessRemoteRead
	w.bind(t, b, OK)
	b = w.to(w.one, 0x10fff, 1)
	w.bind(t, b, OK)
}

func TestWindowNamesItsPart(t *testing.T) {
	w := newWindows(t)
	const r, wr = ib.AccessRemoteRead, ib.AccessRemoteWrite
	for _, win := range []*Window{w.one, w.two} {
		w.remote(t, localQP, win.RKey(), 0x10000, 1, r, BadKey, 0) // bound to nothing
		b := w.to(win, 0x10010, 64)
		b.Access = r
		key := w.bind(t, b, OK)
		w.remote(t, localQP, key, 0x10010, 64, r, OK, 1016)
		w.remote(t, localQP, key, 0x1004f, 1, r, OK, 1079)
		w.remote(t, localQP, key, 0x1000f, 1, r, BadRange, 0)
		w.remote(t, localQP, key, 0x10010, 65, r, BadRange, 0)
		w.remote(t, localQP, key, top, 2, r, BadRange, 0)
		w.remote(t, localQP, key, 0x10010, 8, wr, BadAccess, 0) // the region's rights are not the window's
		w.remote(t, localQP, key+1, 0x10010, 8, r, BadKey, 0)
		w.remote(t, localQP, key-1, 0x10010, 8, r, BadKey, 0) // the key of before
		if _, v := w.Remote(w.other, localQP, key, 0x10010, 8, r); v != BadDomain {
			t.Errorf("%v: another domain: %v", win.Type, v)
		}
		if _, v := w.Local(w.pd, ib.SGE{Addr: 0x10010, Length: 8, LKey: ib.LKey(key)}, 0); v != BadKey {
			t.Errorf("%v as L_Key: %v", win.Type, v)
		}
		if v := w.Usable(w.pd, localQP, key, r); v != OK {
			t.Errorf("%v: whole: %v", win.Type, v)
		}
		if v := w.Usable(w.pd, localQP, key, wr); v != BadAccess {
			t.Errorf("%v: whole, without the right: %v", win.Type, v)
		}
	}
	// Type 1 belongs to the domain, type 2B to its queue pair.
	w.remote(t, otherQP, w.one.RKey(), 0x10010, 8, r, OK, 1016)
	w.remote(t, otherQP, w.two.RKey(), 0x10010, 8, r, BadDomain, 0)
}

func TestZeroBasedWindow(t *testing.T) {
	w := newWindows(t)
	b := w.to(w.two, 0x10100, 16)
	b.Access |= ib.AccessZeroBased
	key := w.bind(t, b, OK)
	w.remote(t, localQP, key, 0, 16, ib.AccessRemoteWrite, OK, 1256)
	w.remote(t, localQP, key, 15, 1, ib.AccessRemoteWrite, OK, 1271)
	w.remote(t, localQP, key, 16, 1, ib.AccessRemoteWrite, BadRange, 0)
	w.remote(t, localQP, key, 0x10100, 1, ib.AccessRemoteWrite, BadRange, 0)
	w.remote(t, localQP, key, top, 2, ib.AccessRemoteWrite, BadRange, 0)
}

func TestRebindAndInvalidate(t *testing.T) {
	w := newWindows(t)
	r := ib.AccessRemoteRead
	// Type 1 is bound anew while it is bound, by any queue pair; an empty range ends it, whatever the L_Key.
	old := w.bind(t, w.to(w.one, 0x10000, 8), OK)
	key := w.bind(t, w.to(w.one, 0x10008, 8), OK)
	w.remote(t, localQP, old, 0x10000, 8, r, BadKey, 0)
	w.remote(t, localQP, key, 0x10008, 8, r, OK, 1008)
	if v := w.Invalidate(w.pd, localQP, key, false); v != BadState {
		t.Errorf("type 1 was invalidated: %v (o10-37.2.26)", v)
	}
	b := w.to(w.one, 0, 0)
	b.LKey = 0
	ended := w.bind(t, b, OK)
	w.remote(t, localQP, key, 0x10008, 8, r, BadKey, 0)
	w.remote(t, localQP, ended, 0x10008, 8, r, BadKey, 0)

	// Type 2 only when it is free.
	key = w.bind(t, w.to(w.two, 0x10000, 8), OK)
	w.bind(t, w.to(w.two, 0x10000, 8), BadState) // o10-37.2.30
	w.bind(t, w.to(w.two, 0x10000, 0), BadState) // o10-37.2.40
	w.remote(t, localQP, key, 0x10000, 8, r, OK, 1000)
	for _, c := range []struct {
		name   string
		d      *Domain
		q      ib.QPN
		key    ib.RKey
		remote bool
		want   Verdict
	}{
		{"another variant", w.pd, localQP, key + 1, false, BadKey},
		{"another window", w.pd, localQP, key + 0x100, false, BadKey},
		{"a region", w.pd, localQP, w.mr.RKey, false, BadKey},
		{"zero", w.pd, localQP, 0, false, BadKey},
		{"another domain", w.other, localQP, key, false, BadDomain},
		{"another queue pair", w.pd, otherQP, key, false, BadDomain},
		{"by the peer of another queue pair", w.pd, otherQP, key, true, BadDomain},
	} {
		if v := w.Invalidate(c.d, c.q, c.key, c.remote); v != c.want {
			t.Errorf("invalidate %s: %v, want %v", c.name, v, c.want)
		}
		w.remote(t, localQP, key, 0x10000, 8, r, OK, 1000)
	}
	if v := w.Invalidate(w.pd, localQP, key, true); v != OK {
		t.Fatal(v)
	}
	w.remote(t, localQP, key, 0x10000, 8, r, BadKey, 0)
	if v := w.Invalidate(w.pd, localQP, key, true); v != BadState {
		t.Errorf("twice: %v", v)
	}
	// Free again, for any queue pair. A window without rights is none that a peer could name.
	b = w.to(w.two, 0x10000, 8)
	b.Access = 0
	key = b.Key
	if v := w.Bind(w.pd, otherQP, &b); v != OK {
		t.Fatal(v)
	}
	if v := w.Invalidate(w.pd, otherQP, key, true); v != BadAccess {
		t.Errorf("by the peer, without a right: %v", v)
	}
	w.Release(w.two, localQP)
	if v := w.Invalidate(w.pd, otherQP, key, false); v != OK {
		t.Error(v)
	}
	w.bind(t, w.to(w.two, 0x10000, 8), OK)
	w.Release(w.two, localQP)
	w.bind(t, w.to(w.two, 0x10000, 8), OK)
}

// A region goes, or changes, only when no window is bound to it (IBA 10.6.7.2.6).
func TestRegionWithWindows(t *testing.T) {
	w := newWindows(t)
	key1, key2 := w.bind(t, w.to(w.one, 0x10000, 8), OK), w.bind(t, w.to(w.two, 0x10000, 8), OK)
	busy := func(n int) {
		t.Helper()
		if err := w.Remove(w.mr); !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("removed with %d windows: %v", n, err)
		}
		if err := w.Replace(w.mr, &MR{Domain: w.pd, Region: w.mr.Region, Length: 1}); !errors.Is(err, syscall.EBUSY) {
			t.Fatalf("replaced with %d windows: %v", n, err)
		}
		if _, v := w.Remote(w.pd, localQP, w.mr.RKey, 0x10000, 1, ib.AccessRemoteRead); v != OK {
			t.Fatal(v)
		}
	}
	busy(2)
	w.RemoveWindow(w.one) // in any state
	w.remote(t, localQP, key1, 0x10000, 8, ib.AccessRemoteRead, BadKey, 0)
	w.RemoveWindow(w.one)
	busy(1)
	if v := w.Invalidate(w.pd, localQP, key2, false); v != OK {
		t.Fatal(v)
	}
	n := w.Len()
	next := &MR{Domain: w.other, Region: vast{size: 100}, Base: 5, Length: 100, Access: ib.AccessRemoteRead}
	for _, bad := range []*MR{
		{Region: vast{size: 1}, Length: 2}, {Region: vast{size: 10}, Base: top, Length: 2}, {Region: vast{size: 2}, Offset: 2, Length: 1},
	} {
		if err := w.Replace(w.mr, bad); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("replaced by %+v: %v", bad, err)
		}
	}
	if err := w.Replace(w.mr, next); err != nil {
		t.Fatal(err)
	}
	if next.RKey != w.mr.RKey || next.LKey != w.mr.LKey || w.Len() != n {
		t.Errorf("keys %#x and %#x of %#x", next.LKey, next.RKey, w.mr.RKey)
	}
	if _, v := w.Remote(w.other, localQP, next.RKey, 5, 100, ib.AccessRemoteRead); v != OK {
		t.Error(v)
	}
	if err := w.Replace(w.mr, next); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("what is replaced is gone: %v", err)
	}
	if err := w.Remove(next); err != nil {
		t.Error(err)
	}
	w.RemoveWindow(w.two)
	if w.Len() != 0 {
		t.Errorf("%d keys are left", w.Len())
	}
}

func TestWindowsFillTheTable(t *testing.T) {
	tab := NewTable(2, seeded())
	for i := range 3 {
		err := tab.InsertWindow(&Window{Type: ib.MWType2})
		if i < 2 && err != nil || i == 2 && !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("window %d: %v", i, err)
		}
	}
}

func TestWindowsAllocateNothing(t *testing.T) {
	w := newWindows(t)
	b := w.to(w.two, 0x10000, 64)
	if n := testing.AllocsPerRun(200, func() {
		if w.Bind(w.pd, localQP, &b) != OK {
			t.Error("bind")
		}
		if _, v := w.Remote(w.pd, localQP, b.Key, 0x10000, 8, ib.AccessRemoteRead); v != OK {
			t.Error(v)
		}
		if w.Invalidate(w.pd, localQP, b.Key, true) != OK {
			t.Error("invalidate")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Packets look keys up while others bind, invalidate and remove.
func TestWindowsConcurrently(t *testing.T) {
	w := newWindows(t)
	b := w.to(w.two, 0x10000, 64)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				if s, v := w.Remote(w.pd, localQP, b.Key, 0x10000, 64, ib.AccessRemoteRead); v == OK && (s.Off != 1000 || s.Len != 64) || v != OK && v != BadKey {
					t.Errorf("%v %+v", v, s)
					return
				}
			}
		}()
	}
	for range 2000 {
		w.Bind(w.pd, localQP, &b)
		w.Invalidate(w.pd, localQP, b.Key, false)
	}
	close(done)
	readers.Wait()
}
