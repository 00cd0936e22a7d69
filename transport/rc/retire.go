package rc

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/trace"
	"github.com/softnic/softnicd/transport"
)

// spoil records a local error.
func (w *work) spoil(status ib.WCStatus, vendor transport.VendorErr) {
	w.status, w.vendor = status, vendor
}

// spoil gives the request at c a local error; sending stops there, at the latest. Requests before it are good and get
// their chance: completions come in the order of posting.
func (r *requester) spoil(c cursor, status ib.WCStatus, vendor transport.VendorErr) {
	r.q.at(c.position).spoil(status, vendor)
	if c.before(r.cursor) {
		r.cursor = c
	}
}

// settle ends what became of the oldest requests here rather than at the peer: local operations that were performed, a
// local error, whose turn has come, or the end of draining. It reports whether the queue pair is in error now.
func (r *requester) settle(now clock.Time) bool {
	if r.e.state == ib.StateErr {
		return true
	}
	rest := r.q.empty()
	for !rest {
		w := r.q.at(r.q.head)
		if w.status != ib.WCSuccess {
			r.fail(now, w.status, w.vendor)
			return true
		}
		if !w.done {
			rest = !w.started
			break
		}
		if r.complete(now, ib.WCSuccess, transport.VendorNone); r.e.state == ib.StateErr {
			return true
		}
		rest = r.q.empty()
	}
	if rest && r.e.state == ib.StateSQD && !r.drained {
		r.drained = true
		r.e.cfg.QP.SetState(ib.StateSQD)
		if r.e.attr.EnSQDAsyncNotify {
			r.e.cfg.QP.Event(ib.EventSQDrained)
		}
	}
	return r.e.state == ib.StateErr
}

// fail ends the oldest request with an error and takes the queue pair to the error state: first the state, so that who
// sees the completion finds it there.
func (r *requester) fail(now clock.Time, status ib.WCStatus, vendor transport.VendorErr) {
	r.e.fatal(now)
	r.e.cfg.Counters.ReqCQEError++
	r.complete(now, status, vendor)
}

// complete ends the oldest request. The queue pair may be in the error state when it returns: its CQ may have overrun.
func (r *requester) complete(now clock.Time, status ib.WCStatus, vendor transport.VendorErr) {
	w := r.q.at(r.q.head)
	if w.started && w.agreed() {
		r.reads--
	}
	r.q.head++
	if int32(r.cursor.position-r.q.head) < 0 {
		r.cursor = cursor{position: r.q.head}
	}
	r.traceCompleted(now, status, w.length)
	r.request.Index, r.request.Opcode, r.request.Flags, r.request.WRID = w.index, w.opcode, w.flags, w.wrid
	r.report(status, vendor, w.length)
}

// report makes the completion of r.request. Of sends and writes ibv_poll_cq leaves byte_len open; it is the length of the
// message, as it is for READs and atomics.
func (r *requester) report(status ib.WCStatus, vendor transport.VendorErr, bytes uint32) {
	r.completion = transport.Completion{
		Status: status, VendorErr: vendor, Opcode: completedOpcode(r.request.Opcode), ByteLen: bytes,
	}
	r.e.cfg.QP.CompleteSend(&r.request, &r.completion)
}

// flush ends what was fetched and what is posted, in order, in the error state. It counts 64 bytes a completion.
func (r *requester) flush(now clock.Time, budget int) (bytes int, more bool) {
	const cost = 64
	for ; bytes < budget; bytes += cost {
		if !r.q.empty() {
			r.complete(now, ib.WCWRFlushErr, transport.VendorFlushed)
		} else if r.take() != transport.Empty {
			// Whether it makes sense no longer matters.
			r.traceCompleted(now, ib.WCWRFlushErr, 0)
			r.report(ib.WCWRFlushErr, transport.VendorFlushed, 0)
		} else {
			return bytes, false
		}
		r.e.cfg.Counters.ReqCQEFlushError++
	}
	return bytes, true
}

// faulted says that the payload of a request packet could not be read. The request that owns it has a local error. A
// packet that was acknowledged meanwhile, or went out again before, has no owner any more.
func (r *requester) faulted(now clock.Time, cookie uint64) bool {
	psn := ib.NewPSN(uint32(cookie))
	if r.e.state != ib.StateRTS && r.e.state != ib.StateSQD || !r.outstanding(psn) {
		return false
	}
	position, ok := r.owner(psn)
	if !ok {
		return false
	}
	w := r.q.at(position)
	r.trace(now, trace.Faulted, psn)
	r.spoil(cursor{position, distance(w.first, psn)}, ib.WCLocProtErr, transport.VendorMemoryFault)
	r.settle(now)
	return true
}

func completedOpcode(o ib.WROpcode) ib.WCOpcode {
	switch o {
	case ib.WRRDMAWrite, ib.WRRDMAWriteWithImm:
		return ib.WCRDMAWrite
	case ib.WRRDMARead:
		return ib.WCRDMARead
	case ib.WRAtomicCmpAndSwp:
		return ib.WCCompSwap
	case ib.WRAtomicFetchAdd:
		return ib.WCFetchAdd
	case ib.WRLocalInv:
		return ib.WCLocalInv
	case ib.WRBindMW:
		return ib.WCBindMW
	case ib.WRFlush:
		return ib.WCFlush
	case ib.WRAtomicWrite:
		return ib.WCAtomicWrite
	}
	return ib.WCSend
}
