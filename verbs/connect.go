package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// Endpoint is what two sides of a connection tell each other, out of band, before they connect.
type Endpoint struct {
	QPN ib.QPN
	PSN ib.PSN // of the first packet that this side sends
	GID ib.GID
}

// RandomPSN returns an unpredictable starting sequence number: who cannot see the packets cannot forge any.
func RandomPSN() ib.PSN {
	var b [4]byte
	rand.Read(b[:])
	return ib.NewPSN(binary.LittleEndian.Uint32(b[:]))
}

// RCAttr are the attributes of a reliable connection. The zero value of a field means the value behind it.
type RCAttr struct {
	Port        uint8          // 1
	SGIDIndex   uint8          // 0
	PathMTU     ib.MTU         // the port's active MTU
	Access      ib.AccessFlags // remote write, read and atomic
	RDAtomic    uint8          // 16: READs and atomics outstanding, either way
	MinRNRTimer uint8          // 12: 0.64 ms
	Timeout     uint8          // 14: 67 ms
	RetryCnt    uint8          // 7
	RNRRetry    uint8          // 7: for ever
	FlowLabel   uint32         // 0
	HopLimit    uint8          // 64
}

func (a RCAttr) fill(active ib.MTU) RCAttr {
	or := func(v *uint8, d uint8) {
		if *v == 0 {
			*v = d
		}
	}
	or(&a.Port, 1)
	or(&a.RDAtomic, 16)
	or(&a.MinRNRTimer, 12)
	or(&a.Timeout, 14)
	or(&a.RetryCnt, 7)
	or(&a.RNRRetry, 7)
	or(&a.HopLimit, 64)
	or((*uint8)(&a.PathMTU), uint8(active))
	if a.Access == 0 {
		a.Access = ib.AccessRemoteWrite | ib.AccessRemoteRead | ib.AccessRemoteAtomic
	}
	return a
}

// ConnectRC takes a queue pair that was just made, of RC or either half of XRC, through INIT and RTR to RTS, connected to
// remote. It is three calls of Modify with the attributes of a. Of local only the PSN counts. Receives can be posted before,
// in INIT, by whoever calls Modify; after ConnectRC the peer may send at once, and waits for a receive by its RNR timer.
func (q *QP) ConnectRC(local, remote Endpoint, a RCAttr) error {
	port := a.Port
	if port == 0 {
		port = 1
	}
	p, err := q.ctx.QueryPort(port)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	a = a.fill(p.ActiveMTU)
	attr := QPAttr{
		State: ib.StateInit, PortNum: a.Port, AccessFlags: a.Access,
		PathMTU: a.PathMTU, DestQPN: remote.QPN, RQPSN: remote.PSN, MaxDestRDAtomic: a.RDAtomic, MinRNRTimer: a.MinRNRTimer,
		AH: ib.AHAttr{IsGlobal: true, PortNum: a.Port, GRH: ib.GlobalRoute{
			DGID: remote.GID, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel,
		}},
		SQPSN: local.PSN, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, MaxRDAtomic: a.RDAtomic,
	}
	for _, step := range []struct {
		to   ib.QPState
		mask ib.QPAttrMask
	}{
		{ib.StateInit, ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags},
		{ib.StateRTR, ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN | ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer},
		{ib.StateRTS, ib.QPAttrSQPSN | ib.QPAttrTimeout | ib.QPAttrRetryCnt | ib.QPAttrRNRRetry | ib.QPAttrMaxRDAtomic},
	} {
		attr.State = step.to
		step.mask &^= q.lacks()
		if q.State() == step.to {
			continue // the caller has done that one, to post receives before
		}
		if err := q.Modify(&attr, ib.QPAttrState|step.mask); err != nil {
			return err
		}
	}
	return nil
}
