package nic

import (
	"sync/atomic"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/wire"
)

// refusal is why a packet does not reach a queue pair. Every one is a silent drop that is counted: an answer would help
// who guesses, and could be aimed at others.
type refusal uint8

const (
	accepted refusal = iota
	refusedOwnSource
	refusedMulticast
	refusedCNP
	refusedUnknownQPN
	refusedService
	refusedState
	refusedPKey
	refusedQKey
	refusedSource
	refusedDest
	refusedForeign
	numRefusals
)

// drops counts refusals. The shard writes, anybody reads.
type drops struct{ by [numRefusals]atomic.Uint64 }

func (d *drops) count(r refusal) { d.by[r].Add(1) }

// judge finds the queue pair that p is for, and asks what stands between the wire and the transport, in the order of IBA
// 9.6. Length, version, opcode and ICRC were the port's to judge.
func (s *shard) judge(p *wire.Packet) (*QP, refusal) {
	gids := s.dev.gids.Load()
	// Who sends from our own address, yet from outside, forges it. On loopback everybody has that address.
	if !p.Local && gids.has(&p.Source) && !p.Source.Addr().IsLoopback() {
		return nil, refusedOwnSource
	}
	bth := p.BTH()
	q := s.table.find(bth.DestQP())
	if q == nil {
		return nil, refusedUnknownQPN
	}
	cnp := p.Opcode == wire.CNP
	if cnp && s.dev.limits.NoDCQCN {
		return nil, refusedCNP
	}
	if !cnp && p.Opcode.Service() != serviceOf(q.typ) {
		return nil, refusedService
	}
	if cnp && !q.heeds() || !cnp && !q.receives(p.Opcode) {
		return nil, refusedState
	}
	if !q.pkey().Matches(bth.PKey()) {
		return nil, refusedPKey
	}
	switch {
	case q.typ == ib.QPTypeUD && cnp:
		// It comes from whoever was sent a datagram, and concerns what is sent to him alone.
	case q.typ == ib.QPTypeUD:
		// Datagrams come from whoever knows the Q_Key (IBA 10.2.5).
		if wire.FindDETH(p.Header).QKey() != q.attr.QKey {
			return nil, refusedQKey
		}
	// IBA A17: a connection hears its peer alone. The path exists from RTR on.
	case p.Source != q.path.Dest:
		return nil, refusedSource
	case p.Dest != q.path.Source:
		return nil, refusedDest
	}
	if !gids.has(&p.Dest) {
		return nil, refusedForeign
	}
	return q, accepted
}

// receives reports whether packets with opcode o are heard in q's state: requests from RTR on, responses while there can
// be requests of our own.
func (q *QP) receives(o wire.Opcode) bool {
	if q.path == nil && q.typ != ib.QPTypeUD {
		return false
	}
	switch q.state {
	case ib.StateRTS, ib.StateSQD, ib.StateSQE:
		return true
	case ib.StateRTR:
		return o.IsRequest()
	}
	return false
}

// heeds reports whether CNPs are heard in q's state: those in which packets may have left.
func (q *QP) heeds() bool {
	return q.state >= ib.StateRTR && q.state <= ib.StateSQE && (q.path != nil || q.typ == ib.QPTypeUD)
}

func serviceOf(t ib.QPType) wire.Service {
	switch t {
	case ib.QPTypeRC:
		return wire.ServiceRC
	case ib.QPTypeUC:
		return wire.ServiceUC
	case ib.QPTypeUD, ib.QPTypeGSI:
		return wire.ServiceUD
	case ib.QPTypeXRCSend, ib.QPTypeXRCRecv:
		return wire.ServiceXRC
	}
	return 0xff
}
