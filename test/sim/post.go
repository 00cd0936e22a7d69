package sim

import (
	"encoding/binary"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/ib"
)

// postSend posts the next request of the script, and works out what it has to lead to.
func (e *endpoint) postSend() {
	r := &e.script[e.posted]
	r.index = uint32(e.posted)
	var before *request
	if e.posted > e.ended {
		before = &e.script[e.posted-1]
	}
	w := abi.SendWQE{WRID: e.id(abi.QueueSend, e.posted), Opcode: uint8(r.op), Imm: r.imm}
	r.prepare(e, r, before, &w)
	to := e.address(r, &w)
	w.Flags = uint8(r.flags())
	fits := false
	if r.inline {
		cut := e.app.dice.below(len(r.data) + 1)
		fits = e.block.PutSendInline(r.index, &w, r.data[:cut], r.data[cut:])
	} else {
		fits = e.block.PutSend(r.index, &w, r.list)
	}
	if !fits {
		e.app.w.failf("%s: %v does not fit its ring", e.name, r)
	}
	e.posted++
	e.block.PublishSend(uint32(e.posted))
	if r.consumes() {
		to.incoming = append(to.incoming, r)
	}
	if e.app.w.logs != nil {
		e.app.w.logf(e.name, "posts %v, flags %v, %d entries", r, r.flags(), len(r.list))
	}
}

// drain posts a last request, signaled, and a last receive to a queue pair in the error state, when there is room. Requests
// that were not signaled may have ended well before the error, and then nothing else would tell.
func (e *endpoint) drain() bool {
	if e.role >= target {
		e.drained = true // there is nothing to post to
		return false
	}
	own := e.role == plain && e.pool == nil
	if e.posted-e.ended == int(e.side.Cap.MaxSendWR) || own && e.ready-e.taken == int(e.side.Cap.MaxRecvWR) {
		return false
	}
	e.drained = true
	r := &e.script[e.posted]
	*r = request{operation: operationOf(ib.WRRDMAWrite), signaled: true, index: uint32(e.posted)}
	e.block.PutSend(r.index, &abi.SendWQE{WRID: e.id(abi.QueueSend, e.posted), Opcode: uint8(r.op), Flags: uint8(r.flags())}, nil)
	e.posted++
	e.block.PublishSend(uint32(e.posted))
	if !own {
		return true
	}
	e.receives = append(e.receives[:e.ready], receive{})
	e.block.PutRecv(uint32(e.ready), &abi.RecvWQE{WRID: e.id(abi.QueueRecv, e.ready)}, nil)
	e.ready++
	e.block.PublishRecv(uint32(e.ready))
	e.app.w.logf(e.name, "posts the last request and receive")
	return true
}

func (r *request) flags() (f ib.SendFlags) {
	for _, x := range []struct {
		on  bool
		bit ib.SendFlags
	}{{r.signaled, ib.SendSignaled}, {r.solicited, ib.SendSolicited}, {r.fence, ib.SendFence}, {r.inline, ib.SendInline}} {
		if x.on {
			f |= x.bit
		}
	}
	return f
}

// prepareMessage gives a SEND or WRITE its bytes, and a WRITE the place where they go.
func (e *endpoint) prepareMessage(r, before *request, w *abi.SendWQE) {
	d := e.app.dice
	if r.link == relay && before != nil && before.local != nil && before.local.owner == before {
		// What the READ before brings is sent on; the fence makes that certain.
		r.local, r.list, r.data = before.local, before.list, before.data
		r.local.owner = r
	} else {
		r.data = make([]byte, r.length)
		d.fill(r.data)
		if !r.inline {
			r.local = e.source.claim(d, r)
			r.list = r.local.list(d, r.length, int(e.side.Cap.MaxSendSGE))
			r.local.scatter(r.list, r.data, r.local.write)
		}
	}
	if !r.isWrite() {
		return
	}
	r.claimTarget(e, before, overwrite)
	r.remote.expect(r.at, r.data)
	e.nameMemory(r, w)
}

// prepareRead lets the peer's memory hold something and makes room for it here.
func (e *endpoint) prepareRead(r, before *request, w *abi.SendWQE) {
	d := e.app.dice
	if r.claimTarget(e, before, readBack) {
		m := r.remote.area.model
		r.data = append([]byte(nil), m[r.remote.off+r.at:][:r.length]...)
	} else {
		r.data = make([]byte, r.length)
		d.fill(r.data)
		r.remote.write(r.at, r.data)
	}
	r.local = e.source.claim(d, r)
	r.list = r.local.list(d, r.length, int(e.side.Cap.MaxSendSGE))
	r.local.scatter(r.list, r.data, r.local.expect)
	e.nameMemory(r, w)
}

// claimTarget finds the request a place at the peer: a slot of its own, or with the right link that of the WRITE before.
func (r *request) claimTarget(e *endpoint, before *request, with link) (shared bool) {
	d := e.app.dice
	if r.link == with && before != nil && before.remote != nil && before.remote.owner == before {
		r.remote = before.remote
		r.remote.owner = r
		r.at = min(before.at, r.remote.size-r.length)
		if r.length < before.length {
			r.at += d.below(before.length - r.length + 1)
		}
		return true
	}
	r.remote = e.peer.target.claim(d, r)
	r.at = d.below(r.remote.size - r.length + 1)
	return false
}

// nameMemory puts the remote address into the work request. A message of no bytes names no memory.
func (e *endpoint) nameMemory(r *request, w *abi.SendWQE) {
	if r.length == 0 {
		w.RemoteAddr, w.RKey = uint64(r.imm)<<32, ^r.imm
		return
	}
	addr, key := e.key(r, r.remote.off+r.at)
	w.RemoteAddr, w.RKey = addr, uint32(key)
}

// nameWord puts the address of one of this end's own words into the work request.
func (e *endpoint) nameWord(r *request, w *abi.SendWQE) {
	addr, key := e.key(r, 8*r.word)
	w.RemoteAddr, w.RKey = addr, uint32(key)
}

// prepareAtomic works on a word of the peer: one of this end's own, whose values are known, or the shared one.
func (e *endpoint) prepareAtomic(r, _ *request, w *abi.SendWQE) {
	d := e.app.dice
	e.privately(r)
	r.local = e.source.claim(d, r)
	r.list = r.local.list(d, 8, int(e.side.Cap.MaxSendSGE))
	w.Operand = r.operand
	if r.isShared() {
		w.RemoteAddr, w.RKey = e.ask(r)
		w.Compare = r.compare
		return
	}
	t := e.peer.target
	e.nameWord(r, w)
	word := &e.words[r.word]
	r.want = *word
	switch {
	case r.op == ib.WRAtomicFetchAdd:
		*word += r.operand
	case r.match:
		r.compare = *word
		*word = r.operand
	default:
		r.compare = ^*word
	}
	w.Compare = r.compare
	binary.NativeEndian.PutUint64(t.model[8*r.word:], *word)
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], r.want)
	r.local.scatter(r.list, b[:], r.local.expect)
}

func nativeWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
