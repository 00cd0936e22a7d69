package abi

// A queue pair's block: a header of four lines, the send ring, the receive ring. The application carves it from one of
// its arenas and names it in CREATE_QP. A shared receive queue's block has the same header and no send ring.
//
//	  0  u32 sq_posted        application: send requests posted so far, modulo 2^32
//	 64  u32 rq_posted        application: receives posted so far
//	128  u32 state            daemon: ib.QPState, for posting
//	192  u32 sq_done          daemon: send requests done with; gives slots back where the profile reclaims on completion
//	196  u32 rq_taken         daemon: receives taken so far
//	256  send ring: sq_depth entries of SendStride bytes
//	...  receive ring: rq_depth entries of RecvStride bytes
const (
	offSQPosted = 0
	offRQPosted = 64
	offQPState  = 128
	offSQDone   = 192
	offRQTaken  = 196

	QPHeaderSize = 256
)

// QPLayout is where things are in a queue pair's block. Depths are entries.
type QPLayout struct {
	SendDepth, RecvDepth   uint32
	SendStride, RecvStride uint32
}

// NewQPLayout computes the layout for real capacities.
func NewQPLayout(sendDepth, recvDepth, sendSGE, recvSGE, maxInline uint32) QPLayout {
	return QPLayout{sendDepth, recvDepth, SendStride(sendSGE, maxInline), RecvStride(recvSGE)}
}

// Size returns the bytes of the block.
func (l QPLayout) Size() uint64 {
	return QPHeaderSize + uint64(l.SendDepth)*uint64(l.SendStride) + uint64(l.RecvDepth)*uint64(l.RecvStride)
}

// A completion queue's block: a header of four lines, then the ring.
//
//	  4  u32 state            daemon: CQOK, CQOverrun
//	  8  u32 fired            daemon: sequence of the last arm that fired (for the application; the daemon keeps its own)
//	 16  u64 moved            daemon: 0, or 1<<32 | index of the first entry that is in the next ring, see below
//	 64  u32 consumed         application: entries taken so far
//	128  u64 arm              application: sequence<<2 | kind, see ArmWord
//	192  u32 produced         daemon: entries written so far, modulo 2^32
//	256  ring: capacity entries of CQESize bytes
//
// RESIZE_CQ names a second block, of the new capacity. The header of the first stays the queue's header; of the second
// only moved counts. No entry is copied: those that wait stay where they are, the device writes all later ones into the
// new ring, from its first place on, and says in moved of the ring that it leaves which entry was the first of them. A
// full ring has room for that, as it would not have for a marker among the entries. The application goes on to the next
// ring when moved names the very entry that it looks for. It therefore knows the new block before it asks for the resize,
// and keeps the old ring until it has left it; the device does not touch an old ring after its reply. Several resizes make
// a chain.
//
// The indexes, and with them the sequences, go on across a resize. Before a ring is used every sequence in it is set to
// one that no entry of its first round has.
const (
	offCQState    = 4
	offCQFired    = 8
	offCQMoved    = 16
	offCQConsumed = 64
	offCQArm      = 128
	offCQProduced = 192

	CQHeaderSize = 256
	CQRound      = 64 // capacities are multiples of this
)

// States of a completion queue, in its header.
const (
	CQOK      = 0
	CQOverrun = 1
)

// CQCapacity returns the real capacity for a request: the next multiple of 64.
func CQCapacity(requested uint32) uint32 { return uint32(roundUp(uint64(requested), CQRound)) }

// CQBlockSize returns the bytes of a completion queue's block.
func CQBlockSize(capacity uint32) uint64 { return CQHeaderSize + uint64(capacity)*CQESize }

// ArmKind is what an armed completion queue waits for.
type ArmKind uint8

// Kinds of arming.
const (
	ArmNone ArmKind = iota
	ArmNext
	ArmSolicited
)

// ArmWord packs an arming: the application counts its armings in sequence.
func ArmWord(sequence uint32, k ArmKind) uint64 { return uint64(sequence)<<2 | uint64(k) }

// SplitArm unpacks an arm word.
func SplitArm(w uint64) (sequence uint32, k ArmKind) { return uint32(w >> 2), ArmKind(w & 3) }

// A context's doorbell page is written by the application with atomic Or and taken by the daemon with Swap(0). It is a
// hint: what is posted stands in the rings. A queue pair's slot has a bit in the leaves, each leaf a bit in the middle
// words, each middle word a bit in the top. Who rings sets leaf, middle, top in this order and may skip a level whose
// bit it sees set; who looks takes top, middle, leaf.
//
//	  0  u64 top
//	 64  u64 middle[64]
//	576  u64 leaf[4096]
const (
	offBellTop    = 0
	offBellMiddle = 64
	offBellLeaf   = 576

	DoorbellSize = 36864        // page multiple
	MaxQPSlots   = 64 * 64 * 64 // queue pairs of one context
)

// The device page is written by the daemon alone and mapped read-only by everybody. One page per device.
//
//	  0  u32 magic
//	  4  u32 version
//	  8  u64 generation       random, new at each start of the daemon
//	 16  u64 heartbeat        milliseconds of CLOCK_MONOTONIC
//	 24  u32 device_state     0 running, 1 draining, 2 fatal
//	 28  u32 port_state       ib.PortState
//	 64  u32 death            robust futex word: the kernel sets bit 30 when the daemon dies
//	128  u32 sleeping[32]     one word a shard, a line apart: 1 while the shard sleeps and wants the doorbell rung
const (
	offPageMagic      = 0
	offPageVersion    = 4
	offPageGeneration = 8
	offPageHeartbeat  = 16
	offPageState      = 24
	offPagePortState  = 28
	offPageDeath      = DeathOffset
	offPageSleeping   = 128

	DevicePageMagic = 0x434e4653 // "SFNC"
	DevicePageSize  = 4096
	MaxShards       = 32
	DeathOffset     = 64      // of the death word, for the robust futex list
	DeathBit        = 1 << 30 // FUTEX_OWNER_DIED
)

// Device states in the device page.
const (
	DeviceRunning  = 0
	DeviceDraining = 1
	DeviceFatal    = 2
)
