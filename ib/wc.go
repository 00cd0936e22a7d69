package ib

// WCStatus is how a work request ended. Values as ibv_wc_status.
type WCStatus uint8

// Completion statuses.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
)

// WCOpcode is what a completed work request did. Values as ibv_wc_opcode.
type WCOpcode uint8

// Completed operations.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCFlush           WCOpcode = 8
	WCAtomicWrite     WCOpcode = 9
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// WCFlags say which optional fields of a completion are valid. Values as ibv_wc_flags.
type WCFlags uint16

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// WC is a work completion. On error only WRID, Status, QPN and VendorErr mean anything.
type WC struct {
	WRID           uint64
	Status         WCStatus
	Opcode         WCOpcode
	Flags          WCFlags
	VendorErr      uint32
	ByteLen        uint32 // received bytes; for a READ its length, for an atomic 8
	ImmData        uint32 // host order; valid with WCWithImm
	InvalidatedKey RKey   // valid with WCWithInv
	QPN            QPN
	SrcQP          QPN // sender, of a received datagram
	PKeyIndex      uint16
	SLID           uint16
	SL             uint8
	DLIDPathBits   uint8
	Timestamp      int64 // raw hardware clock of the device, nanoseconds
}
