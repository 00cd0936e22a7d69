package nic

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/wire"
)

// Counter is a named count since the device was made.
type Counter struct {
	Name  string
	Value uint64
}

// The counters of the ports and the device beside those of the engines, under the names that Linux drivers use where
// they have one. Refusals are packets that were well formed but for nobody here.
var (
	refusalNames = [numRefusals]string{
		refusedOwnSource:  "rx_own_source",
		refusedMulticast:  "rx_multicast_unattached",
		refusedCNP:        "rp_cnp_ignored",
		refusedUnknownQPN: "rx_unknown_qpn",
		refusedService:    "rx_service_mismatch",
		refusedState:      "rx_qp_state",
		refusedPKey:       "bad_pkey_cntr",
		refusedSource:     "rx_source_mismatch",
		refusedDest:       "rx_destination_mismatch",
		refusedForeign:    "rx_foreign_gid",
	}
	dropNames = [wire.NumDrops]string{
		wire.DropTooShort:      "rx_too_short",
		wire.DropUnknownOpcode: "rx_unknown_opcode",
		wire.DropVersion:       "rx_header_version",
		wire.DropLength:        "rx_length",
		wire.DropPad:           "rx_pad",
		wire.DropDestQP0:       "rx_dest_qp0",
		wire.DropICRC:          "rx_icrc_encapsulated",
	}
)

// Counters returns all counters of the device, always in the same order.
func (d *Device) Counters() []Counter {
	var list []Counter
	add := func(name string, v uint64) { list = append(list, Counter{name, v}) }
	s := d.shard

	p := s.port.Counters()
	if p == nil {
		p = new(PortCounters)
	}
	add("port_xmit_packets", p.SentPackets.Load())
	add("port_xmit_data", p.SentBytes.Load()/4) // counted in words, as on InfiniBand
	add("port_rcv_packets", p.ReceivedPackets.Load())
	add("port_rcv_data", p.ReceivedBytes.Load()/4)
	add("port_xmit_errors", p.SendErrors.Load())
	add("rx_socket_drops", p.SocketDrops.Load())
	for r := range dropNames {
		if dropNames[r] != "" {
			add(dropNames[r], p.Dropped[r].Load())
		}
	}
	for r := range refusalNames {
		if refusalNames[r] != "" {
			add(refusalNames[r], s.drops.by[r].Load())
		}
	}
	// The engines' counters have one writer: the shard is asked for a copy.
	s.do(func(clock.Time) {
		c := &s.counters
		add("np_ecn_marked_roce_packets", s.ecnMarked)
		add("tx_lost", s.lost)
		add("rx_write_requests", c.RxWriteRequests)
		add("rx_read_requests", c.RxReadRequests)
		add("rx_atomic_requests", c.RxAtomicRequests)
		add("out_of_buffer", c.OutOfBuffer)
		add("out_of_sequence", c.OutOfSequence)
		add("duplicate_request", c.DuplicateRequest)
		add("rnr_nak_retry_err", c.RNRNakRetryErr)
		add("rnr_retry_exceeded_err", c.RNRRetryExceededErr)
		add("packet_seq_err", c.PacketSeqErr)
		add("implied_nak_seq_err", c.ImpliedNakSeqErr)
		add("local_ack_timeout_err", c.LocalAckTimeoutErr)
		add("retry_exceeded_err", c.RetryExceededErr)
		add("resp_local_length_error", c.RespLocalLengthError)
		add("resp_cqe_error", c.RespCQEError)
		add("req_cqe_error", c.ReqCQEError)
		add("req_remote_invalid_request", c.ReqRemoteInvalidRequest)
		add("req_remote_access_errors", c.ReqRemoteAccessErrors)
		add("req_remote_operation_errors", c.ReqRemoteOperationErrors)
		add("resp_remote_access_errors", c.RespRemoteAccessErrors)
		add("resp_invalid_request", c.RespInvalidRequest)
		add("resp_cqe_flush_error", c.RespCQEFlushError)
		add("req_cqe_flush_error", c.ReqCQEFlushError)
		add("ghost_acks", c.GhostAcks)
		add("bad_responses", c.BadResponses)
		add("acks_sent", c.AcksSent)
		add("naks_sent", c.NaksSent)
		add("retransmissions", c.Retransmissions)
	})
	return list
}
