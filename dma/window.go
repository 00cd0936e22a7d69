package dma

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/softnic/softnicd/ib"
)

// Window is a memory window: a key of its own to a part of a region, with rights of its own, which comes and goes without
// a registration (IBA 10.6.7). Its memory is that of the region to which it is bound; bound to none it names nothing.
type Window struct {
	// Domain, Type and Handle do not change after Table.InsertWindow. Handle is the owner's name for the window, in work
	// requests.
	Domain *Domain
	Type   ib.MWType
	Handle uint32

	// mu is held for the moment of a look-up or a bind. Unlike the entries of regions, which are replaced as a whole, a
	// binding changes on the data path and must not allocate.
	mu    sync.Mutex
	key   uint32 // upper 24 bits for ever; the variant of the last bind
	bound binding
}

// binding is what a window is bound to.
type binding struct {
	mr     *MR // nil: nothing
	qpn    ib.QPN
	base   uint64 // address by which requests name the first byte
	length uint64
	offset uint64 // of the first byte in the region
	access ib.AccessFlags
}

// Bind is a request to bind a window (IBA 10.6.7.2).
type Bind struct {
	Handle uint32  // of the window
	Key    ib.RKey // the new key; its upper 24 bits are the window's
	LKey   ib.LKey // of the region
	Addr   uint64  // where the window begins, as requests name memory of the region
	Length uint64  // bytes
	Access ib.AccessFlags
}

// windowAccess are the rights that a window may have.
const windowAccess = ib.AccessRemoteRead | ib.AccessRemoteWrite | ib.AccessRemoteAtomic | ib.AccessZeroBased

// RKey returns the key as the last bind set it, or as the table gave it.
func (w *Window) RKey() ib.RKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	return ib.RKey(w.key)
}

// InsertWindow gives w its key and publishes it, bound to nothing. The error wraps ENOMEM when the table is full.
func (t *Table) InsertWindow(w *Window) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, key, err := t.takeSlot()
	if err != nil {
		return fmt.Errorf("allocate window: %w", err)
	}
	w.key, w.bound = key, binding{}
	t.slots[slot].Store(&entry{key: key, window: w})
	return nil
}

// RemoveWindow unbinds and unpublishes w; once more does nothing. It may be done in any state.
func (t *Table) RemoveWindow(w *Window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.window(uint32(w.RKey())) != w {
		return
	}
	t.release(w)
	t.freeSlot(t.slot(w.key))
}

// Bind binds a window for a queue pair qpn of domain d. Its verdict says which check failed:
//
//	BadKey     there is no such window, or no such region
//	BadDomain  window, region and queue pair are not of one domain (C10-72)
//	BadState   type 2: bound already, it has to be invalidated first (o10-37.2.30)
//	BadAccess  the region may not be bound to (C10-73), may not be written while the window may (C10-74), is zero-based,
//	           or the rights are not such as windows have; type 1: zero-based (o10-36.2.2)
//	BadRange   the range is not within the region (C10-75); type 2: it is empty (o10-37.2.40)
//
// Nothing changes unless it is OK. Type 1 is bound anew from any state; an empty range leaves it bound to nothing.
func (t *Table) Bind(d *Domain, qpn ib.QPN, b *Bind) Verdict {
	// Regions come and go under the same lock, so that one with windows cannot go. It is held for moments only, and packets
	// do not take it.
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.window(uint32(b.Key))
	if w == nil || w.Handle != b.Handle {
		return BadKey
	}
	if w.Domain != d {
		return BadDomain
	}
	if w.Type == ib.MWType2 && w.bound.mr != nil {
		return BadState
	}
	if b.Access&^windowAccess != 0 || w.Type == ib.MWType1 && b.Access&ib.AccessZeroBased != 0 {
		return BadAccess
	}
	var to binding
	if b.Length == 0 {
		if w.Type == ib.MWType2 {
			return BadRange
		}
	} else if v := t.bindable(&to, d, b); v != OK {
		return v
	}
	to.qpn = qpn
	t.release(w)
	if to.mr != nil {
		to.mr.windows++
	}
	w.mu.Lock()
	w.key, w.bound = uint32(b.Key), to
	w.mu.Unlock()
	return OK
}

// bindable asks whether the region lets itself be bound to so, and fills in the binding.
func (t *Table) bindable(to *binding, d *Domain, b *Bind) Verdict {
	e := t.find(uint32(b.LKey))
	if e == nil || e.mr == nil {
		return BadKey
	}
	mr := e.mr
	switch {
	case mr.Domain != d:
		return BadDomain
	case mr.Access&ib.AccessMWBind == 0, mr.Access&ib.AccessZeroBased != 0:
		return BadAccess
	// Remote reading needs nothing of the region but that it may be bound to, since local reading is always allowed.
	case b.Access&(ib.AccessRemoteWrite|ib.AccessRemoteAtomic) != 0 && mr.Access&ib.AccessLocalWrite == 0:
		return BadAccess
	// In this order nothing wraps.
	case b.Length > mr.Length || b.Addr < mr.Base || b.Addr-mr.Base > mr.Length-b.Length:
		return BadRange
	}
	*to = binding{
		mr: mr, base: b.Addr, length: b.Length, offset: mr.Offset + (b.Addr - mr.Base),
		access: b.Access &^ ib.AccessZeroBased,
	}
	if b.Access&ib.AccessZeroBased != 0 {
		to.base = 0
	}
	return OK
}

// Invalidate ends the binding of the type 2 window with this key, for queue pair qpn of domain d: by LOCAL_INV, or by a
// SEND WITH INVALIDATE of the peer, which needs a key that the peer could have used (remote). Nothing else can be
// invalidated: not a region that was registered, not a window of type 1 (o10-37.2.26), not one that another queue pair
// bound.
func (t *Table) Invalidate(d *Domain, qpn ib.QPN, key ib.RKey, remote bool) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.window(uint32(key))
	switch {
	case w == nil || w.key != uint32(key):
		return BadKey
	case w.Domain != d:
		return BadDomain
	case w.Type != ib.MWType2 || w.bound.mr == nil:
		return BadState
	case w.bound.qpn != qpn:
		return BadDomain
	case remote && w.bound.access == 0:
		return BadAccess
	}
	t.release(w)
	return OK
}

// Release ends the bindings of a type 2 window to a queue pair that is no more.
func (t *Table) Release(w *Window, qpn ib.QPN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.Type == ib.MWType2 && w.bound.qpn == qpn {
		t.release(w)
	}
}

// release unbinds w. t.mu is held, under which alone bindings change.
func (t *Table) release(w *Window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound.mr != nil {
		w.bound.mr.windows--
	}
	w.bound = binding{}
}

// window returns the window whose key has these upper 24 bits, nil if there is none.
func (t *Table) window(key uint32) *Window {
	e := t.slots[t.slot(key)].Load()
	if e == nil || e.window == nil || (e.key^key)>>8 != 0 {
		return nil
	}
	return e.window
}

// judge asks of a window what MR.judge asks of a region, the key first: only its owner's last bind says what it is.
func (w *Window) judge(d *Domain, qpn ib.QPN, key uint32, va, n uint64, need ib.AccessFlags) (Span, Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.bound
	switch {
	case b.mr == nil || w.key != key:
		return Span{}, BadKey
	case w.Domain != d || w.Type == ib.MWType2 && b.qpn != qpn:
		return Span{}, BadDomain
	case b.access&need != need:
		return Span{}, BadAccess
	case n > b.length || va < b.base || va-b.base > b.length-n:
		return Span{}, BadRange
	}
	return Span{b.mr.Region, b.offset + (va - b.base), n}, OK
}

// errBound says why a region cannot go or change.
func errBound(mr *MR) error {
	return fmt.Errorf("%d memory windows are bound to the region: %w", mr.windows, syscall.EBUSY)
}
