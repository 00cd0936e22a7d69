package rc

import (
	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/ib"
)

// Local operations concern the keys of the own side and make no packets: LOCAL_INV and BIND_MW. They are performed when
// the cursor comes to them the first time, between the packets of the requests around them, and complete in their turn. A
// repetition passes over them: what was performed stays so, and binding a second time would fail.

func isLocal(o ib.WROpcode) bool { return o == ib.WRLocalInv || o == ib.WRBindMW }

// mayPerform reports whether the turn of w has come, which is at the cursor. A bind is in order with the requests around
// it and waits for READs and atomics only behind a fence. LOCAL_INV waits until everything before it has completed: what
// was sent may still be repeated from memory that a window names (IBA 10.8.3.3).
func (r *requester) mayPerform(w *work) bool {
	switch {
	case w.done:
		return true
	case r.e.state != ib.StateRTS: // SQD starts nothing
		return false
	case w.opcode == ib.WRLocalInv:
		return r.cursor.position == r.q.head
	}
	return w.flags&ib.SendFence == 0 || r.reads == 0
}

// perform does what w asks for, once, and moves the cursor on.
func (r *requester) perform(w *work) {
	if !w.done {
		if v := r.change(w); v != dma.OK {
			// IBA calls this the memory management operation error, for binding and invalidating alike.
			w.spoil(ib.WCMWBindErr, vendorOf(v))
			return
		}
		w.done = true
	}
	r.cursor = cursor{position: r.cursor.position + 1}
}

// change asks the key table.
func (r *requester) change(w *work) dma.Verdict {
	c := &r.e.cfg
	if w.opcode == ib.WRLocalInv {
		return c.Table.Invalidate(c.Domain, c.QPN, ib.RKey(w.imm), false)
	}
	r.bind = dma.Bind{
		Handle: w.imm, Key: w.rkey, LKey: ib.LKey(w.compare >> 32),
		Addr: w.remote, Length: w.swap, Access: ib.AccessFlags(w.compare),
	}
	return c.Table.Bind(c.Domain, c.QPN, &r.bind)
}
