package nic

import (
	"fmt"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/transport"
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
		refusedQKey:       "qkey_viol_cntr",
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
		wire.DropIP:            "rx_ip_header",
	}
)

// Counters returns all counters of the device, always in the same order.
func (d *Device) Counters() []Counter {
	var list []Counter
	add := func(name string, v uint64) { list = append(list, Counter{name, v}) }
	p := d.portCounters()
	add("port_xmit_packets", p.SentPackets.Load())
	add("port_xmit_data", p.SentBytes.Load()/4) // counted in words, as on InfiniBand
	add("port_rcv_packets", p.ReceivedPackets.Load())
	add("port_rcv_data", p.ReceivedBytes.Load()/4)
	add("port_xmit_discards", p.SendErrors.Load())
	add("rx_socket_drops", p.SocketDrops.Load())
	for r := range dropNames {
		if dropNames[r] != "" {
			add(dropNames[r], p.Dropped[r].Load())
		}
	}
	var handed, spilt uint64
	for _, s := range d.shards {
		handed += s.roads.handed.Load()
		spilt += s.roads.spilt.Load()
	}
	add("rx_shard_handovers", handed)
	add("rx_shard_handover_drops", spilt)
	for r := range refusalNames {
		if refusalNames[r] != "" {
			add(refusalNames[r], d.refused(refusal(r)))
		}
	}
	add("refused_address_vectors", d.badVectors.Load())
	var sum tally
	for _, s := range d.shards {
		s.do(func(clock.Time) { sum.add(s) })
	}
	add("np_ecn_marked_roce_packets", sum.ecnMarked)
	add("np_cnp_sent", sum.cnpsSent)
	add("rp_cnp_handled", sum.cnpsHandled)
	add("tx_lost", sum.lost)
	list = appendEngine(list, &sum.counters)
	for r, n := range d.ledger.inUse() {
		if name := objectNames[r]; name != "" {
			add(name, n)
		}
	}
	return list
}

// tally is what a shard counts, and it alone writes: it is asked for a copy.
type tally struct {
	counters    transport.Counters // of queue pairs that are gone
	ecnMarked   uint64
	cnpsSent    uint64
	cnpsHandled uint64
	lost        uint64 // frames that a port that failed or was congested too long did not take
}

// add adds what a shard has counted, for all its queue pairs.
func (t *tally) add(s *shard) {
	addCounters(&t.counters, &s.counters)
	for _, p := range s.parts {
		for _, q := range p.slots {
			if q != nil {
				addCounters(&t.counters, &q.counters)
			}
		}
	}
	t.ecnMarked += s.ecnMarked
	t.cnpsSent += s.cnpsSent
	t.cnpsHandled += s.cnpsHandled
	t.lost += s.lost
}

// portCounters returns the sums of the ports of all shards.
func (d *Device) portCounters() *PortCounters {
	var all []*PortCounters
	for _, s := range d.shards {
		if c := s.port.Counters(); c != nil {
			all = append(all, c)
		}
	}
	sum := new(PortCounters)
	sum.SetSum(all...)
	return sum
}

// refused returns how many packets were refused for a reason.
func (d *Device) refused(r refusal) (n uint64) {
	for _, s := range d.shards {
		n += s.drops.by[r].Load()
	}
	return n
}

// QPCounters returns the counters of a queue pair, always in the same order: of what the device counts for all of them,
// its part.
func (c *Context) QPCounters(q *QP) ([]Counter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.ownsQP(q); err != nil {
		return nil, fmt.Errorf("query counters: %w", err)
	}
	var copied transport.Counters
	q.shard.do(func(clock.Time) { copied = q.real().counters })
	return appendEngine(nil, &copied), nil
}

func appendEngine(list []Counter, c *transport.Counters) []Counter {
	for i := range engineCounters {
		list = append(list, Counter{engineCounters[i].name, *engineCounters[i].of(c)})
	}
	return list
}

// addCounters adds from to sum.
func addCounters(sum, from *transport.Counters) {
	for i := range engineCounters {
		*engineCounters[i].of(sum) += *engineCounters[i].of(from)
	}
}

// engineCounters are what the engines count, each for its own queue pair.
var engineCounters = [...]struct {
	name string
	of   func(c *transport.Counters) *uint64
}{
	{"rx_write_requests", func(c *transport.Counters) *uint64 { return &c.RxWriteRequests }},
	{"rx_read_requests", func(c *transport.Counters) *uint64 { return &c.RxReadRequests }},
	{"rx_atomic_requests", func(c *transport.Counters) *uint64 { return &c.RxAtomicRequests }},
	{"out_of_buffer", func(c *transport.Counters) *uint64 { return &c.OutOfBuffer }},
	{"out_of_sequence", func(c *transport.Counters) *uint64 { return &c.OutOfSequence }},
	{"duplicate_request", func(c *transport.Counters) *uint64 { return &c.DuplicateRequest }},
	{"rnr_nak_retry_err", func(c *transport.Counters) *uint64 { return &c.RNRNakRetryErr }},
	{"rnr_retry_exceeded_err", func(c *transport.Counters) *uint64 { return &c.RNRRetryExceededErr }},
	{"packet_seq_err", func(c *transport.Counters) *uint64 { return &c.PacketSeqErr }},
	{"implied_nak_seq_err", func(c *transport.Counters) *uint64 { return &c.ImpliedNakSeqErr }},
	{"local_ack_timeout_err", func(c *transport.Counters) *uint64 { return &c.LocalAckTimeoutErr }},
	{"retry_exceeded_err", func(c *transport.Counters) *uint64 { return &c.RetryExceededErr }},
	{"resp_local_length_error", func(c *transport.Counters) *uint64 { return &c.RespLocalLengthError }},
	{"resp_cqe_error", func(c *transport.Counters) *uint64 { return &c.RespCQEError }},
	{"req_cqe_error", func(c *transport.Counters) *uint64 { return &c.ReqCQEError }},
	{"req_remote_invalid_request", func(c *transport.Counters) *uint64 { return &c.ReqRemoteInvalidRequest }},
	{"req_remote_access_errors", func(c *transport.Counters) *uint64 { return &c.ReqRemoteAccessErrors }},
	{"req_remote_operation_errors", func(c *transport.Counters) *uint64 { return &c.ReqRemoteOperationErrors }},
	{"resp_remote_access_errors", func(c *transport.Counters) *uint64 { return &c.RespRemoteAccessErrors }},
	{"resp_invalid_request", func(c *transport.Counters) *uint64 { return &c.RespInvalidRequest }},
	{"resp_cqe_flush_error", func(c *transport.Counters) *uint64 { return &c.RespCQEFlushError }},
	{"req_cqe_flush_error", func(c *transport.Counters) *uint64 { return &c.ReqCQEFlushError }},
	{"ghost_acks", func(c *transport.Counters) *uint64 { return &c.GhostAcks }},
	{"bad_responses", func(c *transport.Counters) *uint64 { return &c.BadResponses }},
	{"acks_sent", func(c *transport.Counters) *uint64 { return &c.AcksSent }},
	{"naks_sent", func(c *transport.Counters) *uint64 { return &c.NaksSent }},
	{"retransmissions", func(c *transport.Counters) *uint64 { return &c.Retransmissions }},
	{"messages_dropped", func(c *transport.Counters) *uint64 { return &c.MessagesDropped }},
}
