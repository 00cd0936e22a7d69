package rc

import (
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
	"github.com/softnic/softnicd/wire"
)

// work is a private copy of a posted send, from its fetch to its completion: what the application does to its own copy
// afterwards changes nothing. Entries are many and mostly idle, so they are small; the lists are kept apart, in slabs.
type work struct {
	wrid    uint64
	remote  uint64
	swap    uint64 // CAS: swap; FAA: addend; ATOMIC WRITE: value; BIND_MW, FLUSH: bytes of the range
	compare uint64 // CAS: compare; BIND_MW: L_Key and rights; FLUSH: level and placement
	length  uint32 // bytes of the message, or of what a READ or atomic brings
	imm     uint32 // or R_Key to invalidate; BIND_MW: handle of the window
	srqn    uint32 // XRC: the peer's shared receive queue
	rkey    ib.RKey
	index   uint32
	// The packet sequence numbers of the request: packets of them from first on. They are assigned when its first
	// packet is sent and never change.
	first   ib.PSN
	packets uint32
	vendor  transport.VendorErr // with status
	opcode  ib.WROpcode
	flags   ib.SendFlags
	entries uint8 // of the scatter/gather list
	inline  bool
	started bool // a packet was sent
	done    bool // of a local operation: it was performed, and is not performed again
	resumed bool // a READ was asked for again from the middle
	// status is a local error: nothing more of this request, or of those behind it, is sent. It completes when all
	// requests before it have ended.
	status ib.WCStatus
}

// answered says that the request ends with a response of its own, not with an acknowledgement.
func (w *work) answered() bool {
	return returns(w.opcode) || isAtomic(w.opcode)
}

// agreed says that the peer needs room for the request: those count against max_rd_atomic. An ATOMIC WRITE is one of
// them, although an acknowledgement ends it (IBA A19).
func (w *work) agreed() bool { return w.answered() || w.opcode == ib.WRAtomicWrite }

// local says that the request is an operation on the own side's keys: it has no packets.
func (w *work) local() bool { return isLocal(w.opcode) }

// returns says that READ responses end the operation. Of a FLUSH it is one without data.
func returns(o ib.WROpcode) bool { return o == ib.WRRDMARead || o == ib.WRFlush }

func isAtomic(o ib.WROpcode) bool {
	return o == ib.WRAtomicCmpAndSwp || o == ib.WRAtomicFetchAdd
}

// owns reports whether p is one of the request's sequence numbers. The difference is taken without a sign: a request may
// have nearly 2^23 of them.
func (w *work) owns(p ib.PSN) bool { return w.started && distance(w.first, p) < w.packets }

// distance is how many packets after from p is, in the ring of 2^24.
func distance(from, p ib.PSN) uint32 { return (uint32(p) - uint32(from)) & ib.PSNMask }

// queue is the ring of fetched sends. Positions count for ever, modulo 2^32, and the places in the ring are their
// remainders; between head and tail are at most as many as there are places.
type queue struct {
	entries []work
	lists   []ib.SGE    // room for cap.MaxSendSGE entries of each place
	inline  wire.Buffer // room for cap.MaxInlineData bytes of each place
	values  wire.Buffer // 8 bytes of each place, for the value of an ATOMIC WRITE
	head    uint32      // the oldest that has not completed
	tail    uint32      // behind the newest that was fetched
	perList int
	perData int
}

// allocate makes room for n requests. n is rounded up to a power of two, so that positions may wrap.
func (q *queue) allocate(c *ib.QPCap) {
	n := 1
	for n < int(c.MaxSendWR) {
		n <<= 1
	}
	q.perList, q.perData = min(int(c.MaxSendSGE), wire.MaxPieces), int(c.MaxInlineData)
	q.entries = make([]work, n)
	q.lists = make([]ib.SGE, n*q.perList)
	q.inline.B = make([]byte, n*q.perData)
	q.values.B = make([]byte, n*8)
}

func (q *queue) empty() bool { return q.head == q.tail }

func (q *queue) full() bool { return q.tail-q.head == uint32(len(q.entries)) }

func (q *queue) at(position uint32) *work { return &q.entries[position&uint32(len(q.entries)-1)] }

// list returns the scatter/gather list of the request at a position.
func (q *queue) list(position uint32) []ib.SGE {
	at := int(position&uint32(len(q.entries)-1)) * q.perList
	return q.lists[at : at+int(q.at(position).entries)]
}

// inlineAt returns where in q.inline the data of the request at a position begins.
func (q *queue) inlineAt(position uint32) uint64 {
	return uint64(position&uint32(len(q.entries)-1)) * uint64(q.perData)
}

// push copies r, but for its payload, to the end of the ring.
func (q *queue) push(r *transport.Request) *work {
	w := q.at(q.tail)
	// Not one composite literal: that is made on the stack and copied in halves of what was just stored, which waits for the
	// stores.
	*w = work{}
	w.wrid, w.remote, w.swap, w.compare = r.WRID, r.Remote, r.Swap, r.Compare
	w.imm, w.srqn, w.rkey, w.index = r.Imm, r.SRQN, r.RKey, r.Index
	w.opcode, w.flags = r.Opcode, r.Flags
	switch r.Opcode {
	case ib.WRBindMW:
		w.swap, w.imm, w.compare = r.Length, r.Bind.Window, halves(uint32(r.Bind.LKey), uint32(r.Bind.Access))
	case ib.WRFlush:
		w.swap, w.compare = r.Length, halves(uint32(r.Flush.Level), uint32(r.Flush.Placement))
	}
	q.tail++
	return w
}

// keepPayload copies the list or the inline data of r for the newest request and returns the bytes of the message, as the
// copy has them: a request that claims another length would be cut or run past its list. It returns false if the payload
// does not fit the capacities that the queue pair was made with.
func (q *queue) keepPayload(w *work, r *transport.Request) (length uint64, ok bool) {
	position := q.tail - 1
	if r.IsInline {
		if len(r.Inline.B) > q.perData {
			return 0, false
		}
		copy(q.inline.B[q.inlineAt(position):], r.Inline.B)
		w.inline = true
		return uint64(len(r.Inline.B)), true
	}
	if len(r.SGE) > q.perList {
		return 0, false
	}
	w.entries = uint8(len(r.SGE))
	copy(q.list(position), r.SGE)
	for i := range r.SGE {
		length += uint64(r.SGE[i].Length)
	}
	return length, true
}

// halves keeps two numbers in one, high and low.
func halves(high, low uint32) uint64 { return uint64(high)<<32 | uint64(low) }

// valueAt returns where in q.values the value at a position is.
func (q *queue) valueAt(position uint32) uint64 { return uint64(position&uint32(len(q.entries)-1)) * 8 }
