package wire

import (
	"encoding/binary"

	"github.com/softnic/softnicd/ib"
)

// RETH names the remote memory of a WRITE or READ (IBA 9.3.3): virtual address 0:8, R_Key 8:12, length 12:16.
type RETH [RETHSize]byte

// VA returns the virtual address.
func (h *RETH) VA() uint64 { return binary.BigEndian.Uint64(h[0:]) }

// SetVA sets the virtual address.
func (h *RETH) SetVA(v uint64) { binary.BigEndian.PutUint64(h[0:], v) }

// RKey returns the key of the region or window.
func (h *RETH) RKey() ib.RKey { return ib.RKey(binary.BigEndian.Uint32(h[8:])) }

// SetRKey sets the key.
func (h *RETH) SetRKey(k ib.RKey) { binary.BigEndian.PutUint32(h[8:], uint32(k)) }

// Length returns the bytes of the whole message, never of one packet.
func (h *RETH) Length() uint32 { return binary.BigEndian.Uint32(h[12:]) }

// SetLength sets the bytes of the message.
func (h *RETH) SetLength(n uint32) { binary.BigEndian.PutUint32(h[12:], n) }

// AtomicETH is the operand of an atomic (IBA 9.3.4): virtual address 0:8, R_Key 8:12, swap or add data 12:20, compare
// data 20:28.
type AtomicETH [AtomicETHSize]byte

// VA returns the virtual address, a multiple of 8 in a sound request.
func (h *AtomicETH) VA() uint64 { return binary.BigEndian.Uint64(h[0:]) }

// SetVA sets the virtual address.
func (h *AtomicETH) SetVA(v uint64) { binary.BigEndian.PutUint64(h[0:], v) }

// RKey returns the key of the region or window.
func (h *AtomicETH) RKey() ib.RKey { return ib.RKey(binary.BigEndian.Uint32(h[8:])) }

// SetRKey sets the key.
func (h *AtomicETH) SetRKey(k ib.RKey) { binary.BigEndian.PutUint32(h[8:], uint32(k)) }

// SwapAdd returns the value to swap in or to add.
func (h *AtomicETH) SwapAdd() uint64 { return binary.BigEndian.Uint64(h[12:]) }

// SetSwapAdd sets the value to swap in or to add.
func (h *AtomicETH) SetSwapAdd(v uint64) { binary.BigEndian.PutUint64(h[12:], v) }

// Compare returns the value to compare with. FETCH ADD ignores it.
func (h *AtomicETH) Compare() uint64 { return binary.BigEndian.Uint64(h[20:]) }

// SetCompare sets the value to compare with.
func (h *AtomicETH) SetCompare(v uint64) { binary.BigEndian.PutUint64(h[20:], v) }

// AETH says what became of a request (IBA 9.3.5): syndrome 0, MSN 1:4.
type AETH [AETHSize]byte

// Syndrome returns the kind of acknowledgement.
func (h *AETH) Syndrome() Syndrome { return Syndrome(h[0]) }

// SetSyndrome sets the kind of acknowledgement.
func (h *AETH) SetSyndrome(s Syndrome) { h[0] = byte(s) }

// MSN returns the message sequence number: messages completed by the responder, modulo 2^24.
func (h *AETH) MSN() uint32 { return uint24(h[1:4]) }

// SetMSN sets the message sequence number.
func (h *AETH) SetMSN(v uint32) { putUint24(h[1:4], v) }

// AtomicAckETH is the result of an atomic (IBA 9.3.6).
type AtomicAckETH [AtomicAckETHSize]byte

// Original returns what the memory held before.
func (h *AtomicAckETH) Original() uint64 { return binary.BigEndian.Uint64(h[:]) }

// SetOriginal sets what the memory held before.
func (h *AtomicAckETH) SetOriginal(v uint64) { binary.BigEndian.PutUint64(h[:], v) }

// ImmDt is immediate data (IBA 9.3.7): four bytes that mean nothing to the transport.
type ImmDt [ImmDtSize]byte

// Data returns the immediate in host order.
func (h *ImmDt) Data() uint32 { return binary.BigEndian.Uint32(h[:]) }

// SetData sets the immediate, given in host order.
func (h *ImmDt) SetData(v uint32) { binary.BigEndian.PutUint32(h[:], v) }

// IETH names the R_Key that a SEND with invalidate takes away (IBA 9.3.8).
type IETH [IETHSize]byte

// RKey returns the key to invalidate.
func (h *IETH) RKey() ib.RKey { return ib.RKey(binary.BigEndian.Uint32(h[:])) }

// SetRKey sets the key to invalidate.
func (h *IETH) SetRKey(k ib.RKey) { binary.BigEndian.PutUint32(h[:], uint32(k)) }

// DETH identifies the sender of a datagram (IBA 9.3.1): Q_Key 0:4, reserved 4, source QP 5:8.
type DETH [DETHSize]byte

// QKey returns the queue key, which has to be that of the receiving queue pair.
func (h *DETH) QKey() ib.QKey { return ib.QKey(binary.BigEndian.Uint32(h[0:])) }

// SetQKey sets the queue key.
func (h *DETH) SetQKey(k ib.QKey) { binary.BigEndian.PutUint32(h[0:], uint32(k)) }

// SourceQP returns the queue pair that sent.
func (h *DETH) SourceQP() ib.QPN { return ib.QPN(uint24(h[5:8])) }

// SetSourceQP sets the queue pair that sends.
func (h *DETH) SetSourceQP(q ib.QPN) { putUint24(h[5:8], uint32(q)) }

// XRCETH names the shared receive queue of an XRC request (IBA A14): reserved 0, SRQ number 1:4.
type XRCETH [XRCETHSize]byte

// SRQN returns the number of the shared receive queue, 24 bits.
func (h *XRCETH) SRQN() uint32 { return uint24(h[1:4]) }

// SetSRQN sets the number of the shared receive queue.
func (h *XRCETH) SetSRQN(v uint32) { putUint24(h[1:4], v) }

// FETH says what a FLUSH makes visible or durable (IBA A19): selectivity in bits 5:4, placement type in bits 3:0.
type FETH [FETHSize]byte

// Selectivity returns 0 for the range in the RETH, 1 for the whole region.
func (h *FETH) Selectivity() uint8 { return h[3] >> 4 & 3 }

// SetSelectivity sets the selectivity.
func (h *FETH) SetSelectivity(v uint8) { h[3] = h[3]&^0x30 | v&3<<4 }

// Placement returns the placement types: 1 for global visibility, 2 for persistence.
func (h *FETH) Placement() uint8 { return h[3] & 15 }

// SetPlacement sets the placement types.
func (h *FETH) SetPlacement(v uint8) { h[3] = h[3]&^15 | v&15 }
