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

// Name returns the status as C spells it: IBV_WC_RETRY_EXC_ERR.
func (s WCStatus) Name() string {
	if int(s) < len(wcStatuses) {
		return "IBV_WC_" + wcStatuses[s].name
	}
	return s.String()
}

// String returns the words of ibv_wc_status_str: "transport retry counter exceeded".
func (s WCStatus) String() string {
	if int(s) < len(wcStatuses) {
		return wcStatuses[s].words
	}
	return number("WCStatus", s)
}

var wcStatuses = [...]struct{ name, words string }{
	WCSuccess:          {"SUCCESS", "success"},
	WCLocLenErr:        {"LOC_LEN_ERR", "local length error"},
	WCLocQPOpErr:       {"LOC_QP_OP_ERR", "local QP operation error"},
	WCLocEECOpErr:      {"LOC_EEC_OP_ERR", "local EE context operation error"},
	WCLocProtErr:       {"LOC_PROT_ERR", "local protection error"},
	WCWRFlushErr:       {"WR_FLUSH_ERR", "Work Request Flushed Error"},
	WCMWBindErr:        {"MW_BIND_ERR", "memory management operation error"},
	WCBadRespErr:       {"BAD_RESP_ERR", "bad response error"},
	WCLocAccessErr:     {"LOC_ACCESS_ERR", "local access error"},
	WCRemInvReqErr:     {"REM_INV_REQ_ERR", "remote invalid request error"},
	WCRemAccessErr:     {"REM_ACCESS_ERR", "remote access error"},
	WCRemOpErr:         {"REM_OP_ERR", "remote operation error"},
	WCRetryExcErr:      {"RETRY_EXC_ERR", "transport retry counter exceeded"},
	WCRNRRetryExcErr:   {"RNR_RETRY_EXC_ERR", "RNR retry counter exceeded"},
	WCLocRDDViolErr:    {"LOC_RDD_VIOL_ERR", "local RDD violation error"},
	WCRemInvRDReqErr:   {"REM_INV_RD_REQ_ERR", "remote invalid RD request"},
	WCRemAbortErr:      {"REM_ABORT_ERR", "aborted error"},
	WCInvEECNErr:       {"INV_EECN_ERR", "invalid EE context number"},
	WCInvEECStateErr:   {"INV_EEC_STATE_ERR", "invalid EE context state"},
	WCFatalErr:         {"FATAL_ERR", "fatal error"},
	WCRespTimeoutErr:   {"RESP_TIMEOUT_ERR", "response timeout error"},
	WCGeneralErr:       {"GENERAL_ERR", "general error"},
	WCTMErr:            {"TM_ERR", "TM error"},
	WCTMRndvIncomplete: {"TM_RNDV_INCOMPLETE", "TM software rendezvous"},
}

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

// String returns the name without its prefix: "RDMA_WRITE".
func (o WCOpcode) String() string {
	switch o {
	case WCSend:
		return "SEND"
	case WCRDMAWrite:
		return "RDMA_WRITE"
	case WCRDMARead:
		return "RDMA_READ"
	case WCCompSwap:
		return "COMP_SWAP"
	case WCFetchAdd:
		return "FETCH_ADD"
	case WCBindMW:
		return "BIND_MW"
	case WCLocalInv:
		return "LOCAL_INV"
	case WCFlush:
		return "FLUSH"
	case WCAtomicWrite:
		return "ATOMIC_WRITE"
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	}
	return number("WCOpcode", o)
}

// WCFlags say which optional fields of a completion are valid. Values as ibv_wc_flags.
type WCFlags uint16

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// String joins the names of the flags: "GRH|WITH_IMM".
func (f WCFlags) String() string { return join(f, wcFlagNames) }

var wcFlagNames = []bitName[WCFlags]{{WCGRH, "GRH"}, {WCWithImm, "WITH_IMM"}, {WCWithInv, "WITH_INV"}}

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
