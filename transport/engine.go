// Package transport says what a transport engine is. The engines are in its subpackages: rc, uc, ud, xrc.
//
// An engine is a machine turned by hand. It is told the time, given packets and asked for packets; it fetches posted work
// and reports completions through [QueuePair]. It has no goroutine, clock, lock or socket, and allocates nothing after it
// was made (Modify apart).
//
//	if e.Receive(now, pkt) { schedule(e) }
//	sent, more := e.Transmit(now, burst, budget)
//	wake = min(wake, e.Deadline())
package transport

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// Engine is the protocol of one queue pair.
type Engine interface {
	// Receive takes one packet that was addressed to this queue pair: transport, addresses, P_Key and state have been
	// judged by the device. It reports whether the engine now has something for Transmit to do.
	Receive(now clock.Time, p *wire.Packet) (active bool)

	// Transmit appends frames to out until nothing is left to send now, the burst is full, or about budget bytes of
	// payload and headers were added (an engine finishes the packet that exceeds it). Responses go first. It returns the
	// bytes added and whether more waits that could go out now; an engine that waits for a packet, a timer or a doorbell
	// has nothing more. In the error state it flushes posted work instead, counting 64 bytes a completion.
	//
	// A frame in the burst is as good as sent: the shard keeps what the port did not take.
	Transmit(now clock.Time, out *wire.Burst, budget int) (bytes int, more bool)

	// Expire fires what was due at now and reports as Receive does.
	Expire(now clock.Time) (active bool)

	// Deadline is the next moment Expire wants to be called, clock.Never if none. It may be earlier than needed.
	Deadline() clock.Time

	// Modify applies a transition that the device has checked against the state table. attr holds the complete
	// attributes after the change; mask says which of them were given. path is the way to the peer, new when the address
	// vector changed, else as before. It reports as Receive does (moving to the error state leaves work to flush).
	Modify(now clock.Time, attr *ib.QPAttr, mask ib.QPAttrMask, path *wire.Path) (active bool)

	// Query fills in what the engine knows better than the last Modify: state, next PSNs, whether the send queue drains.
	Query(attr *ib.QPAttr)

	// Faulted says that the payload of a frame this engine had put into the burst could not be read; the frame was
	// dropped. cookie is the frame's.
	Faulted(now clock.Time, cookie uint64) (active bool)
}

// RunReceiver is an engine that can take a run of packets at once.
type RunReceiver interface {
	// ReceiveRun does what Receive would do for one packet of the run after another, if all of them are welcome. Otherwise
	// taken is false and nothing has happened: the caller takes the run apart.
	ReceiveRun(now clock.Time, p *wire.Packet) (active, taken bool)
}

// Aborter is an engine that can be told that the device failed it, not the peer or the application.
type Aborter interface {
	// Abort takes the queue pair to the error state. A send request that was begun ends with this status, the oldest;
	// the others are flushed. It reports as Receive does.
	Abort(now clock.Time, status ib.WCStatus, vendor VendorErr) (active bool)
}

// Fetched says what came of asking for posted work.
type Fetched uint8

// Outcomes of a fetch.
const (
	Empty     Fetched = iota // nothing is posted
	Ready                    // a copy was made and is sound
	Malformed                // a copy was made and makes no sense: complete it with WCLocQPOpErr
	Broken                   // the shared receive queue is in error: there is no receive, and never will be
)

// QueuePair is what an engine may ask of the queue pair it serves. The device implements it on rings shared with an
// application, tests on slices.
type QueuePair interface {
	// FetchSend copies the next posted send request into r, once, and judges the copy. r's slices have room for the
	// queue's capacities; fields that its opcode does not have may stay as they were. A request that was fetched is not
	// offered again.
	FetchSend(r *Request) Fetched
	// FetchRecv is the same for the receive queue, or the shared one.
	FetchRecv(r *Receive) Fetched

	// CompleteSend reports the end of the send request with this index, in order of the indexes. It makes an entry in
	// the CQ if the request was signaled or c.Status is not success; in any case the slot is done with. A CQ that
	// overruns takes the queue pair to the error state, by Modify, when the engine's call that completes is over: an engine
	// is never called from within itself.
	CompleteSend(r *Request, c *Completion)
	// CompleteRecv reports the end of a receive.
	CompleteRecv(r *Receive, c *Completion)

	// SetState tells the device of a state the engine entered by itself: StateErr, StateSQE; or that the send queue has
	// drained in StateSQD.
	SetState(s ib.QPState)
	// Event raises an affiliated asynchronous event.
	Event(e ib.EventType)
}

// Request is a private copy of a posted send request.
type Request struct {
	// Index counts the requests of this queue, modulo 2^32.
	Index    uint32
	Opcode   ib.WROpcode
	Flags    ib.SendFlags // SendSignaled is set for every request of a queue made with sq_sig_all
	WRID     uint64
	Imm      uint32 // immediate, host order; R_Key to invalidate
	RKey     ib.RKey
	Remote   uint64 // remote address
	Swap     uint64 // CAS: swap; FAA: addend; ATOMIC WRITE: value
	Compare  uint64
	Length   uint64   // bytes of the message
	SGE      []ib.SGE // the list; empty for inline
	Inline   wire.Buffer
	IsInline bool
	// Datagram is the address handle of a UD request.
	Datagram Datagram
	// SRQN is the peer's shared receive queue of an XRC request.
	SRQN uint32
	// Bind is a request to bind a memory window.
	Bind Bind
	// Flush is what a FLUSH asks for; Remote, Length and RKey name the memory.
	Flush Flush
}

// Datagram is where a UD request goes.
type Datagram struct {
	Path *wire.Path
	QPN  ib.QPN
	QKey ib.QKey
	Rate uint64 // that the path bears, bytes a second; 0 for no limit
}

// Bind is what a BIND_MW request asks for; Remote and Length of the request are the range, RKey the new key.
type Bind struct {
	Window uint32 // handle
	LKey   ib.LKey
	Access ib.AccessFlags
}

// Flush is what a FLUSH asks for (IBA A19). Numbers that mean nothing are the peer's to refuse.
type Flush struct {
	Placement ib.FlushPlacement
	Level     ib.FlushLevel
}

// Receive is a private copy of a posted receive request.
type Receive struct {
	Index  uint32
	WRID   uint64
	SGE    []ib.SGE
	Length uint64 // bytes of all entries
}

// Completion is what an engine knows about the end of a request.
type Completion struct {
	Status    ib.WCStatus
	Opcode    ib.WCOpcode
	Flags     ib.WCFlags
	VendorErr VendorErr
	ByteLen   uint32
	Imm       uint32 // immediate or invalidated R_Key
	SrcQP     ib.QPN
	SL        uint8
	Network   ib.NetworkType // the header in front of a datagram
	Solicited bool           // the sender asked for a solicited event
}

// VendorErr tells more about an error completion, for people: it appears as vendor_err.
type VendorErr uint32

// Vendor errors.
const (
	VendorNone          VendorErr = 0
	VendorMalformedWQE  VendorErr = 0x01 // the request makes no sense: opcode, count of entries, lengths
	VendorBadKey        VendorErr = 0x10 // no such key
	VendorBadDomain     VendorErr = 0x11 // key of another protection domain
	VendorBadAccess     VendorErr = 0x12 // the right is missing
	VendorBadRange      VendorErr = 0x13 // outside the region
	VendorMemoryFault   VendorErr = 0x14 // the memory is gone
	VendorBadState      VendorErr = 0x15 // a window that is bound and should not be, or the other way round
	VendorTimeout       VendorErr = 0x20 // retries used up by timeouts
	VendorSequence      VendorErr = 0x21 // retries used up by sequence NAKs
	VendorRNR           VendorErr = 0x22 // RNR retries used up
	VendorNAK           VendorErr = 0x30 // + syndrome: the peer refused
	VendorBadResponse   VendorErr = 0x40 // the response does not fit the request
	VendorTooLong       VendorErr = 0x50 // longer than the receive, the MTU or the largest message
	VendorFlushed       VendorErr = 0x60
	VendorQueueBroken   VendorErr = 0x61 // the shared receive queue is in error
	VendorInternalPanic VendorErr = 0xff
)
