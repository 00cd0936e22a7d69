package cq

import (
	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// Reader is the application's half of a completion queue. One goroutine at a time uses it: who has several polls under a
// lock of his own. It counts privately what it has taken and publishes the count for the device to reuse the places.
type Reader struct {
	block *abi.CQBlock   // its header is the queue's
	ring  *abi.CQBlock   // where the next entry is
	next  []*abi.CQBlock // the rings after that, see Follow
	pos   uint32         // of the next entry in the ring
	index uint32         // entries taken, modulo 2^32
	given uint32         // of these, given back to the device

	sequence uint32 // of the last arming
	kind     abi.ArmKind

	step func(word) // tests: called before every touch of shared memory
}

// NewReader makes the reader of a queue that the device has made in block, and from which nothing was taken yet.
func NewReader(block []byte, capacity uint32) (*Reader, error) {
	b, err := abi.NewCQBlock(block, capacity)
	if err != nil {
		return nil, err
	}
	return &Reader{block: b, ring: b}, nil
}

// Capacity returns how many entries the ring holds that the reader is in.
func (r *Reader) Capacity() uint32 { return r.ring.Capacity() }

// Poll takes up to len(dst) entries, oldest first, and returns how many. It makes no system call and never waits. The
// error is ErrOverrun when there is nothing left to take and never will be.
func (r *Reader) Poll(dst []abi.CQE) (n int, err error) {
	for n < len(dst) && r.Next(&dst[n]) {
		n++
	}
	r.Release()
	if n == 0 && len(dst) > 0 {
		err = r.Err()
	}
	return n, err
}

// PollWC is Poll for those who want work completions.
func (r *Reader) PollWC(dst []ib.WC) (n int, err error) {
	var e abi.CQE
	for n < len(dst) && r.Next(&e) {
		WC(&e, &dst[n])
		n++
	}
	r.Release()
	if n == 0 && len(dst) > 0 {
		err = r.Err()
	}
	return n, err
}

// Next copies the oldest entry that was not taken yet into e, and takes it. Its place stays the reader's until Release,
// which whoever takes many calls once for all of them.
func (r *Reader) Next(e *abi.CQE) bool {
	if !r.ready() {
		return false
	}
	r.ring.Read(r.pos, e)
	r.advance()
	return true
}

// View returns the oldest entry that was not taken yet, without taking or copying it, and whether there is one. It is
// valid until the Release after Take.
func (r *Reader) View() (v abi.CQEView, ok bool) {
	if !r.ready() {
		return v, false
	}
	return r.ring.View(r.pos), true
}

// Take takes the entry that View has returned.
func (r *Reader) Take() { r.advance() }

func (r *Reader) advance() {
	r.pos = r.ring.Next(r.pos)
	r.index++
}

// ready looks for an entry.
func (r *Reader) ready() bool {
	r.touch(wordEntry)
	for !r.ring.Ready(r.pos, r.index) {
		if !r.turn() {
			return false
		}
		r.touch(wordEntry)
	}
	return true
}

// Release gives the places of all entries taken back to the device.
func (r *Reader) Release() {
	if r.given != r.index {
		r.touch(wordConsumed)
		r.block.SetConsumed(r.index)
		r.given = r.index
	}
}

// Err returns ErrOverrun when the queue is dead and everything in it was taken, otherwise nil.
func (r *Reader) Err() error {
	r.touch(wordState)
	if r.block.State() == abi.CQOK {
		return nil
	}
	// The last entry may have come after the caller had looked and before the queue died.
	if r.ready() {
		return nil
	}
	return ErrOverrun
}

// Dead reports whether the queue is dead, though entries may be left.
func (r *Reader) Dead() bool { return r.block.State() != abi.CQOK }

// Peek counts the entries that wait, up to n, and takes none.
func (r *Reader) Peek(n int) int {
	if n <= 0 {
		return 0
	}
	// The published count is a step behind the entries at most: what it does not count yet is looked for, and it may not
	// count yet what was taken already.
	waiting := uint64(0)
	if d := int32(r.block.Produced() - r.index); d > 0 {
		waiting = min(uint64(d), uint64(n))
	}
	if len(r.next) > 0 {
		// On the way from one ring to another places cannot be computed. One look keeps who waits for the last entry from
		// being told that there is none.
		if waiting == 0 && r.ready() {
			waiting = 1
		}
		return int(waiting)
	}
	limit := min(uint64(n), uint64(r.ring.Capacity()))
	waiting = min(waiting, limit)
	pos := uint32((uint64(r.pos) + waiting) % uint64(r.ring.Capacity()))
	for waiting < limit && r.ring.Ready(pos, r.index+uint32(waiting)) {
		waiting++
		pos = r.ring.Next(pos)
	}
	return int(waiting)
}

// ReqNotify asks for one event: at the next entry (abi.ArmNext), or at the next that is solicited or an error
// (abi.ArmSolicited). Asking again before it came never weakens: next stays next, solicited may become next (IBA
// 11.4.2.2).
//
// Entries that are there already make no event. missed reports whether some are, or that the queue is dead: whoever wants
// to sleep polls again if so, and otherwise cannot miss what comes.
func (r *Reader) ReqNotify(kind abi.ArmKind) (missed bool) {
	r.touch(wordFired)
	armed := r.kind != abi.ArmNone && r.block.Fired() != r.sequence
	switch {
	case !armed:
		r.sequence++
		r.kind = kind
		r.storeArm()
	case r.kind == abi.ArmSolicited && kind == abi.ArmNext:
		r.kind = kind
		r.storeArm() // the same sequence: still one event
	}
	if r.ready() {
		return true
	}
	r.touch(wordState)
	return r.block.State() != abi.CQOK
}

func (r *Reader) storeArm() {
	r.touch(wordArm)
	r.block.StoreArm(abi.ArmWord(r.sequence, r.kind))
}

func (r *Reader) touch(w word) {
	if r.step != nil {
		r.step(w)
	}
}

// WC turns an entry into a work completion.
func WC(e *abi.CQE, wc *ib.WC) {
	*wc = ib.WC{
		WRID: e.WRID, Status: ib.WCStatus(e.Status), Opcode: ib.WCOpcode(e.Opcode), Flags: ib.WCFlags(e.Flags),
		VendorErr: e.VendorErr, ByteLen: e.ByteLen, QPN: ib.QPN(e.QPN), SrcQP: ib.QPN(e.SrcQP),
		PKeyIndex: e.PKeyIndex, SLID: e.SLID, SL: e.SL, DLIDPathBits: e.DLIDPathBits, Timestamp: int64(e.Timestamp),
	}
	setImm(wc, e.Imm)
}

// ViewWC turns an entry in the ring into a work completion.
func ViewWC(v abi.CQEView, wc *ib.WC) {
	*wc = ib.WC{
		WRID: v.WRID(), Status: ib.WCStatus(v.Status()), Opcode: ib.WCOpcode(v.Opcode()), Flags: ib.WCFlags(v.Flags()),
		VendorErr: v.VendorErr(), ByteLen: v.ByteLen(), QPN: ib.QPN(v.QPN()), SrcQP: ib.QPN(v.SrcQP()),
		PKeyIndex: v.PKeyIndex(), SLID: v.SLID(), SL: v.SL(), DLIDPathBits: v.DLIDPathBits(), Timestamp: int64(v.Timestamp()),
	}
	setImm(wc, v.Imm())
}

// setImm sets what the immediate word of an entry means.
func setImm(wc *ib.WC, imm uint32) {
	switch {
	case wc.Flags&ib.WCWithInv != 0:
		wc.InvalidatedKey = ib.RKey(imm)
	case wc.Flags&ib.WCWithImm != 0:
		wc.ImmData = imm
	}
}
