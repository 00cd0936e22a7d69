package verbs

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// MW is a memory window: a key of its own to a part of a region, with rights of its own, that comes and goes without a
// registration. Bound to nothing, as it is at first, it names nothing.
//
// A window of type 1 is bound by [QP.BindMW], as often as one likes, and serves every queue pair of its protection
// domain. One of type 2 is bound by a send request with ib.WRBindMW, serves the queue pair that bound it alone, and is
// invalidated, by ib.WRLocalInv or the peer's ib.WRSendWithInv, before it is bound again. Binding is in order with the
// other requests of the queue; what is wrong with it shows in its completion, as IBV_WC_MW_BIND_ERR.
//
// The region has to be registered with ib.AccessMWBind, and cannot be deregistered while a window is bound to it: EBUSY.
type MW struct {
	ctx    *Context
	handle uint32
	typ    ib.MWType

	mu   sync.Mutex
	rkey ib.RKey
}

// AllocMW makes a memory window (ibv_alloc_mw).
func (p *PD) AllocMW(t ib.MWType) (*MW, error) {
	var r ctl.AllocMWReply
	if err := p.ctx.call(ctl.OpAllocMW, &ctl.AllocMW{PD: p.handle, Type: uint32(t)}, &r); err != nil {
		return nil, err
	}
	return &MW{ctx: p.ctx, handle: r.Handle, typ: t, rkey: ib.RKey(r.RKey)}, nil
}

// Type returns the window's type.
func (m *MW) Type() ib.MWType { return m.typ }

// RKey returns the key that the last bind which was posted gives the window. It is of use once that has completed.
func (m *MW) RKey() ib.RKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rkey
}

// Dealloc destroys the window, bound or not.
func (m *MW) Dealloc() error {
	return m.ctx.call(ctl.OpDeallocMW, &ctl.Handle{Handle: m.handle}, &ctl.Empty{})
}

// MWBindInfo says what a window is bound to: Length bytes of MR at Addr, an address as requests name memory of that
// region. Access may have the remote rights, and for type 2 ib.AccessZeroBased: the window's addresses then begin at 0.
type MWBindInfo struct {
	MR     *MR
	Addr   uint64
	Length uint64
	Access ib.AccessFlags
}

// MWBind is a request to bind a window of type 1.
type MWBind struct {
	WRID  uint64
	Flags ib.SendFlags // SendSignaled, SendFence
	MWBindInfo
}

// BindMW posts a request to bind a window of type 1 (ibv_bind_mw); its completion has the opcode IBV_WC_BIND_MW. The key
// changes with every bind, and the one of before names nothing once it has completed; see [MW.RKey]. A Length of 0 leaves
// the window bound to nothing. EINVAL for a window of type 2; otherwise errors are those of PostSend.
func (q *QP) BindMW(m *MW, b MWBind) error {
	if m == nil || m.typ != ib.MWType1 {
		return fmt.Errorf("bind mw: it needs a window of type 1, type 2 is bound by PostSend: %w", syscall.EINVAL)
	}
	return q.PostSend(SendWR{WRID: b.WRID, Opcode: ib.WRBindMW, Flags: b.Flags, MW: m, Bind: b.MWBindInfo, byVerb: true})
}

var errBindMW = fmt.Errorf("BIND_MW needs a window of type 2 of the same context: %w", syscall.EINVAL)

// bindable says whether a request may bind this window.
func (q *QP) bindable(wr *SendWR) bool {
	want := ib.MWType2
	if wr.byVerb {
		want = ib.MWType1
	}
	m, mr := wr.MW, wr.Bind.MR
	return m != nil && m.ctx == q.ctx && m.typ == want && (mr == nil || mr.ctx == q.ctx)
}

// newKey is the key that a request gives its window: of type 1 the next, of type 2 what it asks for. m.mu is held.
func (m *MW) newKey(wr *SendWR) ib.RKey {
	if wr.byVerb {
		return m.rkey.Inc()
	}
	return m.rkey.Variant(wr.RKey)
}
