package verbs

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/shm"
)

// SGE is a scatter/gather entry; MR.SGE makes one.
type SGE = ib.SGE

// SendWR is a send work request. Which fields count depends on Opcode.
type SendWR struct {
	WRID   uint64 // comes back in the completion
	Opcode ib.WROpcode
	Flags  ib.SendFlags
	SGList []SGE
	// InlineData is the data itself, with ib.SendInline, in place of SGList: it is copied, and free again when PostSend
	// returns.
	InlineData     []byte
	ImmData        uint32  // host order; SEND_WITH_IMM, RDMA_WRITE_WITH_IMM
	InvalidateRKey ib.RKey // SEND_WITH_INV, LOCAL_INV
	RemoteAddr     uint64  // RDMA, atomics, FLUSH
	RKey           ib.RKey // of the remote memory; BIND_MW: its low 8 bits become those of the window's key
	CompareAdd     uint64  // compare-and-swap: what to compare with; fetch-and-add: what to add
	Swap           uint64  // compare-and-swap: what to store; ATOMIC_WRITE: the value, unless there is a list or inline data
	// BIND_MW binds MW, a window of type 2, to what Bind says.
	MW   *MW
	Bind MWBindInfo
	// FLUSH asks that the FlushLength bytes at RemoteAddr, or all that RKey names, get to where FlushType says.
	FlushLength uint64
	FlushType   ib.FlushPlacement
	FlushLevel  ib.FlushLevel

	// SEND on a UD queue pair: where the datagram goes, and the Q_Key that it bears. In place of one with the top bit set
	// goes the queue pair's own.
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey

	// On an XRC_SEND queue pair: the SRQ.Number of the peer's shared receive queue that the request is for. A WRITE, READ or
	// atomic too, since it works with the keys of that queue's domain.
	RemoteSRQN uint32

	byVerb bool // a bind of BindMW
}

// RecvWR is a receive work request.
type RecvWR struct {
	WRID   uint64 // comes back in the completion
	SGList []SGE
}

// PostSend posts send requests, in order. When one is refused the error is a *PostError that says which and why; those
// before it are posted. EINVAL in a state that forbids posting (RESET, INIT, RTR) or for a list or inline data longer than
// the queue pair was made for, ENOMEM when the queue is full. What else is wrong with a request shows in its completion.
func (q *QP) PostSend(wrs ...SendWR) error {
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	n, err := 0, q.usable()
	if err == nil && !q.sendAllowed() {
		err = errPostState
	}
	for err == nil && n < len(wrs) {
		if err = q.putSend(&wrs[n]); err == nil {
			n++
		}
	}
	if n > 0 {
		q.block.PublishSend(q.send.posted)
		q.ring()
	}
	if err != nil && (n < len(wrs) || len(wrs) == 0) {
		return &PostError{n, err}
	}
	return nil
}

// PostRecv posts receive requests, in order. It is as PostSend; only RESET forbids posting. EINVAL for a queue pair of a
// shared receive queue: they are posted there.
func (q *QP) PostRecv(wrs ...RecvWR) error {
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	n, err := 0, q.usable()
	switch {
	case err != nil:
	case q.init.SRQ != nil:
		err = errHasSRQ
	case q.block.State() == ib.StateReset:
		err = errPostState
	}
	for err == nil && n < len(wrs) {
		if err = q.putRecv(&wrs[n]); err == nil {
			n++
		}
	}
	if n > 0 {
		q.block.PublishRecv(q.recv.posted)
		// The device looks when a packet needs a receive. Only in the error state nothing else makes it look: to flush.
		if q.block.State() == ib.StateErr {
			q.ring()
		}
	}
	if err != nil && (n < len(wrs) || len(wrs) == 0) {
		return &PostError{n, err}
	}
	return nil
}

// usable says why nothing can be posted at all.
func (q *QP) usable() error {
	switch {
	case q.closed.Load():
		return ErrClosed
	case q.ctx.lost():
		return ErrDeviceFatal
	}
	return nil
}

// sendAllowed tells whether the state takes send requests: in SQE and ERR to be flushed (IBA 10.3.1).
func (q *QP) sendAllowed() bool {
	switch q.block.State() {
	case ib.StateRTS, ib.StateSQD, ib.StateSQE, ib.StateErr:
		return true
	}
	return false
}

func (q *QP) putSend(wr *SendWR) error {
	c := &q.init.Cap
	if !q.ctx.reclaimPoll {
		q.send.done.Store(q.block.SendDone())
	}
	if q.send.posted-q.send.done.Load() >= c.MaxSendWR {
		return errQueueFull
	}
	w := abi.SendWQE{
		WRID: wr.WRID, Opcode: uint8(wr.Opcode), Flags: uint8(wr.Flags), Imm: wr.ImmData,
		RemoteAddr: wr.RemoteAddr, RKey: uint32(wr.RKey), SRQN: wr.RemoteSRQN, Operand: wr.Swap, Compare: wr.CompareAdd,
	}
	switch wr.Opcode {
	case ib.WRSend, ib.WRSendWithImm:
		if q.init.Type == ib.QPTypeUD {
			if wr.AH == nil || wr.AH.ctx != q.ctx {
				return errNoAH
			}
			w.Operand, w.Compare = uint64(wr.RemoteQPN)<<32|uint64(wr.AH.handle), uint64(wr.RemoteQKey)
		}
	case ib.WRAtomicFetchAdd:
		w.Operand, w.Compare = wr.CompareAdd, 0
	case ib.WRSendWithInv, ib.WRLocalInv:
		w.Imm = uint32(wr.InvalidateRKey)
	case ib.WRFlush:
		w.Operand, w.Compare = wr.FlushLength, uint64(wr.FlushLevel)<<32|uint64(wr.FlushType)
	case ib.WRBindMW:
		return q.putBind(wr, &w)
	}
	return q.put(wr, &w)
}

// putBind writes a request to bind a window, whose key changes with it.
func (q *QP) putBind(wr *SendWR, w *abi.SendWQE) error {
	if !q.bindable(wr) {
		return errBindMW
	}
	m, b := wr.MW, &wr.Bind
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.newKey(wr)
	w.Imm, w.RKey, w.RemoteAddr, w.Operand, w.Compare = m.handle, uint32(key), b.Addr, b.Length, uint64(b.Access)
	if b.MR != nil {
		w.Compare |= uint64(b.MR.lkey) << 32
	}
	err := q.put(wr, w)
	if err == nil {
		m.rkey = key
	}
	return err
}

// put writes a request and what it has of list or data.
func (q *QP) put(wr *SendWR, w *abi.SendWQE) error {
	c := &q.init.Cap
	if wr.Flags&ib.SendInline != 0 {
		switch {
		case len(wr.SGList) > 0:
			return errInlineList
		case uint64(len(wr.InlineData)) > uint64(c.MaxInlineData), !q.block.PutSendInline(q.send.posted, w, wr.InlineData):
			return errInlineLong
		}
	} else if uint64(len(wr.SGList)) > uint64(c.MaxSendSGE) || !q.block.PutSend(q.send.posted, w, wr.SGList) {
		return errListLong
	}
	q.send.posted++
	return nil
}

func (q *QP) putRecv(wr *RecvWR) error {
	c := &q.init.Cap
	if !q.ctx.reclaimPoll {
		q.recv.done.Store(q.block.RecvTaken())
	}
	if q.recv.posted-q.recv.done.Load() >= c.MaxRecvWR {
		return errQueueFull
	}
	w := abi.RecvWQE{WRID: wr.WRID}
	if uint64(len(wr.SGList)) > uint64(c.MaxRecvSGE) || !q.block.PutRecv(q.recv.posted, &w, wr.SGList) {
		return errListLong
	}
	q.recv.posted++
	return nil
}

// ring tells the device that something was published: a bit in shared memory, and a system call only if it sleeps. What is
// rung before it says that it sleeps it finds when it looks once more.
func (q *QP) ring() {
	c := q.ctx
	c.bell.Ring(q.slot)
	if c.page.Sleeping(q.shard) && c.bellFD >= 0 {
		shm.Ring(c.bellFD)
	}
}
