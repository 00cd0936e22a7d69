package transport

// Counters are what the engines of a shard count, named as Linux names them. One writer; readers may see a value that is
// a little old.
type Counters struct {
	RxWriteRequests          uint64
	RxReadRequests           uint64
	RxAtomicRequests         uint64
	OutOfBuffer              uint64 // receive requests that were missing: RNR NAKs sent
	OutOfSequence            uint64 // requests beyond the expected PSN
	DuplicateRequest         uint64
	RNRNakRetryErr           uint64 // RNR NAKs received
	RNRRetryExceededErr      uint64
	PacketSeqErr             uint64 // sequence NAKs received
	ImpliedNakSeqErr         uint64
	LocalAckTimeoutErr       uint64
	RetryExceededErr         uint64
	RespLocalLengthError     uint64
	RespCQEError             uint64
	ReqCQEError              uint64
	ReqRemoteInvalidRequest  uint64
	ReqRemoteAccessErrors    uint64
	ReqRemoteOperationErrors uint64
	RespRemoteAccessErrors   uint64
	RespInvalidRequest       uint64
	RespCQEFlushError        uint64
	ReqCQEFlushError         uint64
	GhostAcks                uint64 // responses outside what is outstanding: late, duplicate or forged
	BadResponses             uint64
	AcksSent                 uint64
	NaksSent                 uint64
	Retransmissions          uint64 // packets sent again
	MessagesDropped          uint64 // of unreliable services, for whatever reason
}
