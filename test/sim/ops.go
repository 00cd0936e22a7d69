package sim

import (
	"encoding/binary"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// operation is a row of the mix: a kind of send work request, and what has to be known of it.
type operation struct {
	op      ib.WROpcode
	weight  int // how often it is drawn
	ends    ib.WCOpcode
	traits  traits
	draw    func(d *dice, r *request) // what else is planned of it; nil for nothing
	prepare func(e *endpoint, r, before *request, w *abi.SendWQE)
}

// traits are what kinds of requests have in common.
type traits uint8

const (
	consuming traits = 1 << iota // takes a receive from the peer
	sending                      // its bytes go to that
	writing                      // its bytes go to memory of the peer
	immediate                    // carries one
	inlining                     // its bytes may stand in the request
	atomic                       // brings what a word held before
	local                        // has no packets: it concerns the own keys
)

// operations is the mix. It is made in init, since preparations look into it themselves.
var operations []operation

func init() {
	operations = []operation{
		{ib.WRSend, 3, ib.WCSend, consuming | sending | inlining, nil, (*endpoint).prepareMessage},
		{ib.WRSendWithImm, 3, ib.WCSend, consuming | sending | immediate | inlining, nil, (*endpoint).prepareMessage},
		{ib.WRSendWithInv, 3, ib.WCSend, consuming | sending | inlining, nil, (*endpoint).prepareInvalidating},
		{ib.WRRDMAWrite, 6, ib.WCRDMAWrite, writing | inlining, nil, (*endpoint).prepareMessage},
		{ib.WRRDMAWriteWithImm, 3, ib.WCRDMAWrite, consuming | writing | immediate | inlining, nil, (*endpoint).prepareMessage},
		{ib.WRRDMARead, 6, ib.WCRDMARead, 0, nil, (*endpoint).prepareRead},
		{ib.WRRDMARead, 1, ib.WCRDMARead, 0, drawShared, (*endpoint).prepareSharedRead},
		{ib.WRAtomicCmpAndSwp, 3, ib.WCCompSwap, atomic, drawAtomic, (*endpoint).prepareAtomic},
		{ib.WRAtomicFetchAdd, 3, ib.WCFetchAdd, atomic, drawAtomic, (*endpoint).prepareAtomic},
		{ib.WRAtomicWrite, 2, ib.WCAtomicWrite, inlining, drawAtomic, (*endpoint).prepareValue},
		{ib.WRFlush, 2, ib.WCFlush, 0, drawNothing, (*endpoint).prepareFlush},
		{ib.WRBindMW, 3, ib.WCBindMW, local, drawNothing, (*endpoint).prepareBind},
		{ib.WRLocalInv, 1, ib.WCLocalInv, local, drawNothing, (*endpoint).prepareLocalInv},
	}
}

// operationOf returns the row of an operation.
func operationOf(op ib.WROpcode) *operation {
	for i := range operations {
		if operations[i].op == op {
			return &operations[i]
		}
	}
	return nil
}

// drawOperation draws a row by weight.
func drawOperation(d *dice) *operation {
	total := 0
	for i := range operations {
		total += operations[i].weight
	}
	n := d.below(total)
	for i := range operations {
		if n -= operations[i].weight; n < 0 {
			return &operations[i]
		}
	}
	return nil
}

func (o *operation) consumes() bool { return o.traits&consuming != 0 }
func (o *operation) isSend() bool   { return o.traits&sending != 0 }
func (o *operation) isWrite() bool  { return o.traits&writing != 0 }
func (o *operation) hasImm() bool   { return o.traits&immediate != 0 }
func (o *operation) isAtomic() bool { return o.traits&atomic != 0 }
func (o *operation) isLocal() bool  { return o.traits&local != 0 }

// becomes makes another operation of a request when there is no occasion for what was planned.
func (e *endpoint) becomes(op ib.WROpcode, r, before *request, w *abi.SendWQE) {
	r.operation = operationOf(op)
	w.Opcode = uint8(op)
	r.prepare(e, r, before, w)
}

func drawNothing(_ *dice, r *request) { r.length = 0 }

// prepareInvalidating is a SEND that takes a window away from the peer: of those behind it none uses the window any more.
// A READ through it that is under way might have to be asked for again, so that the fence waits for its end.
func (e *endpoint) prepareInvalidating(r, before *request, w *abi.SendWQE) {
	v := e.peer.pickWindow(func(v *window) bool { return v.state == bound && v.typ == ib.MWType2 })
	if v == nil {
		e.becomes(ib.WRSend, r, before, w)
		return
	}
	e.prepareMessage(r, before, w)
	r.ended, v.state = v, leaving
	r.fence = r.fence || v.readers > 0
	w.Imm = uint32(v.key)
}

// prepareBind binds a window of this end to the memory that the peer may use. One of type 1 may be bound already, as long
// as nobody uses it.
func (e *endpoint) prepareBind(r, before *request, w *abi.SendWQE) {
	v := e.pickWindow(func(v *window) bool {
		return v.state == free || v.state == bound && v.typ == ib.MWType1 && v.users == 0
	})
	if v == nil {
		e.becomes(ib.WRRDMAWrite, r, before, w)
		return
	}
	d, t := e.app.dice, e.target
	access := ib.AccessRemoteRead | ib.AccessRemoteWrite | ib.AccessRemoteAtomic
	v.state, v.base = leaving, t.base
	if v.typ == ib.MWType2 && d.chance(300) {
		access |= ib.AccessZeroBased
		v.base = 0
	}
	v.key = v.mw.RKey().Variant(ib.RKey(d.r.Uint32()))
	r.begun = v
	e.app.w.census["binds of a window"]++
	w.Imm, w.RKey, w.RemoteAddr, w.Operand = v.handle, uint32(v.key), t.base, uint64(len(t.mem))
	w.Compare = uint64(t.mr.LKey())<<32 | uint64(access)
}

// prepareLocalInv takes a window of this end away from a peer who does not use it.
func (e *endpoint) prepareLocalInv(r, before *request, w *abi.SendWQE) {
	v := e.pickWindow(func(v *window) bool { return v.state == bound && v.typ == ib.MWType2 && v.users == 0 })
	if v == nil {
		e.becomes(ib.WRRDMAWrite, r, before, w)
		return
	}
	r.ended, v.state = v, leaving
	w.Imm = uint32(v.key)
}

// prepareValue is an ATOMIC WRITE of a word of this end's own at the peer. The value stands in the request, in a list, or
// inline.
func (e *endpoint) prepareValue(r, _ *request, w *abi.SendWQE) {
	d, t := e.app.dice, e.peer.target
	e.privately(r)
	r.data = make([]byte, 8)
	binary.NativeEndian.PutUint64(r.data, r.operand)
	switch {
	case r.inline:
	case d.chance(500):
		w.Operand = r.operand
	default:
		r.local = e.source.claim(d, r)
		r.list = r.local.list(d, 8, int(e.side.Cap.MaxSendSGE))
		r.local.scatter(r.list, r.data, r.local.write)
	}
	if r.isShared() {
		w.RemoteAddr, w.RKey = e.ask(r)
		return
	}
	e.nameWord(r, w)
	e.words[r.word] = r.operand
	copy(t.model[8*r.word:], r.data)
}

// prepareSharedRead reads a shared word.
func (e *endpoint) prepareSharedRead(r, before *request, w *abi.SendWQE) {
	if e.privately(r); !r.isShared() {
		e.becomes(ib.WRRDMARead, r, before, w)
		return
	}
	r.local = e.source.claim(e.app.dice, r)
	r.list = r.local.list(e.app.dice, 8, int(e.side.Cap.MaxSendSGE))
	w.RemoteAddr, w.RKey = e.ask(r)
}

// prepareFlush flushes some of the peer's memory, or all of it.
func (e *endpoint) prepareFlush(_, _ *request, w *abi.SendWQE) {
	d, t := e.app.dice, e.peer.target
	at := d.below(len(t.mem))
	w.RemoteAddr, w.RKey, w.Operand = t.base+uint64(at), uint32(t.mr.RKey()), uint64(d.below(len(t.mem)-at+1))
	w.Compare = uint64(ib.FlushGlobal)
	if d.chance(300) {
		w.Compare |= uint64(ib.FlushRegion) << 32
		w.RemoteAddr, w.Operand = d.r.Uint64(), uint64(d.below(1<<30))
	}
}
