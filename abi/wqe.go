package abi

// A send work queue entry: a fixed part, then scatter/gather entries or inline data. The stride of a queue is the fixed
// part and room for its max_sge or max_inline_data, rounded up to 64 bytes.
//
//	 0  u64 wr_id
//	 8  u8  opcode            ib.WROpcode
//	 9  u8  flags             ib.SendFlags
//	10  u16 count             entries of the list; with SendInline the bytes of inline data
//	12  u32 imm               immediate (host order) or R_Key to invalidate; BIND_MW: window handle
//	16  u64 remote_addr       BIND_MW: address to bind
//	24  u32 rkey              BIND_MW: new key; its upper 24 bits are the window's, which the device checks
//	28  u32 srqn              XRC: the peer's shared receive queue
//	32  u64 operand           atomics: swap or add; UD: address handle (low half) and remote QPN (high half);
//	                          BIND_MW, FLUSH: length; ATOMIC_WRITE: value, if there is neither list nor inline data
//	40  u64 compare           CAS: compare; UD: remote Q_Key; BIND_MW: access (low half), L_Key (high half);
//	                          FLUSH: placement type (low half), selectivity (high half)
//	48  list of SGE, or inline data
const (
	SendWQESize    = 48
	SendWQEAlign   = 64
	RecvWQESize    = 16
	RecvWQEAlign   = 32
	SGESize        = 16
	CQESize        = 64
	offCQESequence = 60 // the word that publishes an entry
	MaxSGE         = 32
	MaxInlineLimit = 4096 // no device offers more inline data
)

// SendWQE is the fixed part of a send entry, a private copy.
type SendWQE struct {
	WRID       uint64
	Opcode     uint8
	Flags      uint8
	Count      uint16
	Imm        uint32
	RemoteAddr uint64
	RKey       uint32
	SRQN       uint32
	Operand    uint64
	Compare    uint64
}

// A receive work queue entry:
//
//	 0  u64 wr_id
//	 8  u32 count             entries of the list
//	12  u32 reserved
//	16  list of SGE

// RecvWQE is the fixed part of a receive entry, a private copy.
type RecvWQE struct {
	WRID  uint64
	Count uint32
}

// A scatter/gather entry:
//
//	 0  u64 addr
//	 8  u32 length
//	12  u32 lkey

// A completion queue entry. The device writes everything else first and sequence last; an entry is there for the reader
// when sequence is the low 32 bits of its index + 1.
//
//	 0  u64 wr_id
//	 8  u32 byte_len
//	12  u32 imm               immediate (host order) or invalidated R_Key
//	16  u32 qp_num
//	20  u32 src_qp
//	24  u8  status            ib.WCStatus
//	25  u8  opcode            ib.WCOpcode
//	26  u16 wc_flags          ib.WCFlags
//	28  u32 vendor_err
//	32  u64 timestamp         nanoseconds of the device's clock
//	40  u16 pkey_index
//	42  u16 slid
//	44  u8  sl
//	45  u8  dlid_path_bits
//	46  u8  queue             0 send, 1 receive, 2 shared receive, 3 shared receive of an XRC domain: then qp_num is a target's
//	                          of any process, and qp_slot means nothing
//	47  u8  network_type      of a datagram's receive: the network header in front of it, an ib.NetworkType; else 0
//	48  u32 qp_slot           the queue pair's doorbell slot, for finding it without a search
//	52  u32 wqe_index         index of the request that completed: all before it are done with, too
//	56  u32 reserved
//	60  u32 sequence

// CQE is a completion queue entry, a private copy.
type CQE struct {
	WRID         uint64
	ByteLen      uint32
	Imm          uint32
	QPN          uint32
	SrcQP        uint32
	Status       uint8
	Opcode       uint8
	Flags        uint16
	VendorErr    uint32
	Timestamp    uint64
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
	Queue        uint8
	NetworkType  uint8
	QPSlot       uint32
	WQEIndex     uint32
}

// Values of CQE.Queue.
const (
	QueueSend       = 0
	QueueRecv       = 1
	QueueSharedRecv = 2
	QueueXRCRecv    = 3
)

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// SendStride returns the bytes of one send entry of a queue. Capacities that no device offers give a stride that
// NewQPBlock refuses.
func SendStride(maxSGE, maxInline uint32) uint32 {
	return stride(SendWQESize+max(uint64(maxSGE)*SGESize, uint64(maxInline)), SendWQEAlign)
}

// RecvStride returns the bytes of one receive entry of a queue.
func RecvStride(maxSGE uint32) uint32 {
	return stride(RecvWQESize+uint64(maxSGE)*SGESize, RecvWQEAlign)
}

func stride(n, align uint64) uint32 { return uint32(min(roundUp(n, align), 1<<31)) }
