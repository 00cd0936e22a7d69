package abi

// CQEView is an entry where it lies in the ring. Its fields are read one by one, each when it is asked for. It is valid
// until the entry's place is given back to the device.
type CQEView struct{ s *[CQESize / 8]uint64 }

// WRID returns wr_id.
func (v CQEView) WRID() uint64 { return get(&v.s[0]) }

// ByteLen returns byte_len.
func (v CQEView) ByteLen() uint32 { return uint32(get(&v.s[1])) }

// Imm returns the immediate in host order, or the invalidated R_Key.
func (v CQEView) Imm() uint32 { return uint32(get(&v.s[1]) >> 32) }

// QPN returns the queue pair's number.
func (v CQEView) QPN() uint32 { return uint32(get(&v.s[2])) }

// SrcQP returns the sender's number.
func (v CQEView) SrcQP() uint32 { return uint32(get(&v.s[2]) >> 32) }

// Status returns an ib.WCStatus.
func (v CQEView) Status() uint8 { return uint8(get(&v.s[3])) }

// Opcode returns an ib.WCOpcode.
func (v CQEView) Opcode() uint8 { return uint8(get(&v.s[3]) >> 8) }

// Flags returns ib.WCFlags.
func (v CQEView) Flags() uint16 { return uint16(get(&v.s[3]) >> 16) }

// VendorErr returns vendor_err.
func (v CQEView) VendorErr() uint32 { return uint32(get(&v.s[3]) >> 32) }

// Timestamp returns the device's clock, in nanoseconds.
func (v CQEView) Timestamp() uint64 { return get(&v.s[4]) }

// PKeyIndex returns pkey_index.
func (v CQEView) PKeyIndex() uint16 { return uint16(get(&v.s[5])) }

// SLID returns slid.
func (v CQEView) SLID() uint16 { return uint16(get(&v.s[5]) >> 16) }

// SL returns sl.
func (v CQEView) SL() uint8 { return uint8(get(&v.s[5]) >> 32) }

// DLIDPathBits returns dlid_path_bits.
func (v CQEView) DLIDPathBits() uint8 { return uint8(get(&v.s[5]) >> 40) }

// Queue returns QueueSend or QueueRecv, the work queue that the request was posted to.
func (v CQEView) Queue() uint8 { return uint8(get(&v.s[5]) >> 48) }

// NetworkType returns network_type.
func (v CQEView) NetworkType() uint8 { return uint8(get(&v.s[5]) >> 56) }

// QPSlot returns the queue pair's doorbell slot.
func (v CQEView) QPSlot() uint32 { return uint32(get(&v.s[6])) }

// WQEIndex returns the count of the request in its work queue.
func (v CQEView) WQEIndex() uint32 { return uint32(get(&v.s[6]) >> 32) }
