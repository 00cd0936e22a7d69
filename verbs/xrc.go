package verbs

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
)

// XRCDAttr says which XRC domain is meant: that of a file, or that which the processes of a user find by a name, or, with
// neither, a private one.
type XRCDAttr struct {
	File *os.File // whoever can open it can share the domain; its contents do not matter
	Name string
	// Flags are as those of open(2), and so are the errors, but for Linux's own: EAGAIN if there is no such domain and
	// ib.XRCDCreate is not given, EINVAL if there is one and ib.XRCDExclusive is. A private one wants ib.XRCDCreate.
	Flags ib.XRCDFlags
}

// XRCD is an XRC domain (ibv_xrcd). Processes of a node share one. Each makes shared receive queues in it, and all of them
// the targets, queue pairs of type XRC_RECV, that peers send to: a peer names, with each request, the queue that it is for.
// So one connection leads to every process of a node.
type XRCD struct {
	ctx    *Context
	handle uint32
	closed atomic.Bool
}

// OpenXRCD opens or makes an XRC domain (ibv_open_xrcd).
func (c *Context) OpenXRCD(attr XRCDAttr) (*XRCD, error) {
	m := &ctl.OpenXRCD{Flags: uint32(attr.Flags)}
	if len(attr.Name) >= ctl.NameSize {
		return nil, fmt.Errorf("open xrcd: the name is longer than %d bytes: %w", ctl.NameSize-1, syscall.EINVAL)
	}
	copy(m.Name[:], attr.Name)
	x := &XRCD{ctx: c}
	var r ctl.HandleReply
	if attr.File == nil {
		if err := c.call(ctl.OpOpenXRCD, m, &r); err != nil {
			return nil, err
		}
		x.handle = r.Handle
		return x, nil
	}
	raw, err := attr.File.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("open xrcd: %w", err)
	}
	// The descriptor stays the file's, which is not closed meanwhile.
	if e := raw.Control(func(fd uintptr) {
		err = c.call(ctl.OpOpenXRCD, m, &r, ctl.Attachment{FD: int(fd)})
	}); e != nil {
		err = fmt.Errorf("open xrcd: %w", e)
	}
	if err != nil {
		return nil, err
	}
	x.handle = r.Handle
	return x, nil
}

// Close lets go of the domain (ibv_close_xrcd); the last one ends it. EBUSY while shared receive queues or targets of this
// context are in it.
func (x *XRCD) Close() error {
	if x.closed.Load() {
		return ErrClosed
	}
	if err := x.ctx.call(ctl.OpCloseXRCD, &ctl.Handle{Handle: x.handle}, &ctl.Empty{}); err != nil {
		return err
	}
	x.closed.Store(true)
	return nil
}

// CreateXSRQ makes a shared receive queue of an XRC domain: requests name it by its Number. Its receives complete in cq,
// with the number of the target that took them, which may be one that this process has not open. See CreateSRQ for the
// rest.
//
// Peers that name the queue may use the keys of this domain, within the rights of the target.
func (p *PD) CreateXSRQ(attr SRQAttr, x *XRCD, cq *CQ) (*SRQ, error) {
	if x == nil || cq == nil || x.ctx != p.ctx || cq.ctx != p.ctx {
		return nil, fmt.Errorf("create srq: it needs an XRC domain and a completion queue of the same context: %w", syscall.EINVAL)
	}
	return p.createSRQ(attr, func(q *SRQ, m *ctl.CreateSRQ) error {
		var r ctl.CreateXSRQReply
		err := p.ctx.call(ctl.OpCreateXSRQ, &ctl.CreateXSRQ{SRQ: *m, XRCD: x.handle, CQ: cq.handle}, &r)
		q.handle, q.number = r.Handle, r.Number
		return err
	})
}

// Number returns what SendWR.RemoteSRQN of peers names the queue by (ibv_get_srq_num); 0 for one that is in no XRC domain.
func (q *SRQ) Number() uint32 { return q.number }

// CreateQP makes a target, a queue pair of type XRC_RECV in state RESET. It has no queues: nothing can be posted, and what
// it receives completes in the queues of shared receive queues. It lives until everybody who has it open has closed it.
func (x *XRCD) CreateQP() (*QP, error) {
	return x.addQP(func(cookie uint64, r *ctl.CreateQPReply) error {
		return x.ctx.call(ctl.OpCreateTarget, &ctl.CreateTarget{XRCD: x.handle, Cookie: cookie}, r)
	})
}

// OpenQP opens a target of the domain that was made elsewhere (ibv_open_qp). What one does by Modify is done for all;
// asynchronous events of the target come to all. EINVAL if there is none of this number.
func (x *XRCD) OpenQP(n ib.QPN) (*QP, error) {
	return x.addQP(func(cookie uint64, r *ctl.CreateQPReply) error {
		return x.ctx.call(ctl.OpOpenTarget, &ctl.OpenTarget{XRCD: x.handle, QPN: uint32(n), Cookie: cookie}, r)
	})
}

func (x *XRCD) addQP(open func(cookie uint64, r *ctl.CreateQPReply) error) (*QP, error) {
	c := x.ctx
	// A block of its own, whose state stays RESET, so that everything that would post is refused.
	layout := abi.LayoutOf(ib.QPCap{})
	block, err := abi.NewQPBlock(alignedMemory(int(layout.Size())), layout)
	if err != nil {
		return nil, err
	}
	block.Reset()
	q := &QP{ctx: c, init: QPInitAttr{Type: ib.QPTypeXRCRecv}, cookie: c.newCookie(), block: block, target: true}
	c.mu.Lock()
	c.qps[q.cookie] = q
	c.mu.Unlock()
	var r ctl.CreateQPReply
	if err := open(q.cookie, &r); err != nil {
		c.mu.Lock()
		delete(c.qps, q.cookie)
		c.mu.Unlock()
		return nil, err
	}
	q.handle, q.qpn = r.Handle, ib.QPN(r.QPN)
	return q, nil
}

// targetState asks for the state of a target, of which nothing is in shared memory.
func (q *QP) targetState() ib.QPState {
	attr, _, err := q.Query()
	if err != nil {
		return ib.StateUnknown
	}
	return attr.State
}

// lacks returns the attributes of an RC queue pair that this one has not: of XRC, an initiator answers nothing and a target
// asks nothing.
func (q *QP) lacks() ib.QPAttrMask {
	switch q.init.Type {
	case ib.QPTypeXRCSend:
		return ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer
	case ib.QPTypeXRCRecv:
		return ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrMaxRDAtomic
	}
	return 0
}
