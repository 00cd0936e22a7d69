package wire

import (
	"encoding/binary"

	"github.com/softnic/softnicd/ib"
)

// BTH is the base transport header (IBA 9.2), as it stands in a packet:
//
//	0     opcode
//	1     SE 1 bit, M 1, pad count 2, TVer 4
//	2:4   P_Key
//	4     FECN 1, BECN 1, reserved 6 (the ICRC does not cover this byte)
//	5:8   destination QP
//	8     A 1, reserved 7
//	9:12  PSN
//
// The type is the bytes themselves: (*BTH)(b) is a view of b, and the accessors are plain loads and stores.
type BTH [BTHSize]byte

// Opcode returns the opcode.
func (h *BTH) Opcode() Opcode { return Opcode(h[0]) }

// SetOpcode sets the opcode.
func (h *BTH) SetOpcode(o Opcode) { h[0] = byte(o) }

// Solicited returns SE: the sender asks for a solicited event at the receiver.
func (h *BTH) Solicited() bool { return h[1]&0x80 != 0 }

// SetSolicited sets SE. It belongs to the LAST or ONLY packet of a SEND or WRITE with immediate.
func (h *BTH) SetSolicited(v bool) { setBit(&h[1], 0x80, v) }

// MigReq returns M: path migration state is Migrated.
func (h *BTH) MigReq() bool { return h[1]&0x40 != 0 }

// SetMigReq sets M. Without path migration it is always set, as hardware does.
func (h *BTH) SetMigReq(v bool) { setBit(&h[1], 0x40, v) }

// PadCount returns how many bytes of pad follow the payload, 0 to 3.
func (h *BTH) PadCount() uint8 { return h[1] >> 4 & 3 }

// SetPadCount sets the pad count, modulo 4.
func (h *BTH) SetPadCount(n uint8) { h[1] = h[1]&^0x30 | n&3<<4 }

// TVer returns the transport header version; there is only 0.
func (h *BTH) TVer() uint8 { return h[1] & 15 }

// PKey returns the partition key.
func (h *BTH) PKey() ib.PKey { return ib.PKey(binary.BigEndian.Uint16(h[2:])) }

// SetPKey sets the partition key.
func (h *BTH) SetPKey(k ib.PKey) { binary.BigEndian.PutUint16(h[2:], uint16(k)) }

// FECN returns the forward congestion bit. RoCEv2 marks congestion in the IP header instead.
func (h *BTH) FECN() bool { return h[4]&0x80 != 0 }

// BECN returns the backward congestion bit, set in a CNP.
func (h *BTH) BECN() bool { return h[4]&0x40 != 0 }

// SetBECN sets the backward congestion bit.
func (h *BTH) SetBECN(v bool) { setBit(&h[4], 0x40, v) }

// DestQP returns the destination queue pair.
func (h *BTH) DestQP() ib.QPN { return ib.QPN(uint24(h[5:8])) }

// SetDestQP sets the destination queue pair.
func (h *BTH) SetDestQP(q ib.QPN) { putUint24(h[5:8], uint32(q)) }

// AckReq returns A: the requester wants a response.
func (h *BTH) AckReq() bool { return h[8]&0x80 != 0 }

// SetAckReq sets A.
func (h *BTH) SetAckReq(v bool) { setBit(&h[8], 0x80, v) }

// PSN returns the packet sequence number.
func (h *BTH) PSN() ib.PSN { return ib.PSN(uint24(h[9:12])) }

// SetPSN sets the packet sequence number.
func (h *BTH) SetPSN(p ib.PSN) { putUint24(h[9:12], uint32(p)) }

func setBit(b *byte, mask byte, v bool) {
	if v {
		*b |= mask
	} else {
		*b &^= mask
	}
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func putUint24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }
