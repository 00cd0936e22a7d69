package verbs

import (
	"fmt"

	"github.com/softnic/softnicd/ib"
)

// UCAttr are the attributes of an unreliable connection. The zero value of a field means the value behind it.
type UCAttr struct {
	Port      uint8          // 1
	SGIDIndex uint8          // 0
	PathMTU   ib.MTU         // the port's active MTU
	Access    ib.AccessFlags // remote write
	FlowLabel uint32         // 0
	HopLimit  uint8          // 64
}

// ConnectUC is what ConnectRC is for an unreliable connection. Nobody says when a side is ready: what is sent to one that
// is not in RTR yet, or has no receive, is lost.
func (q *QP) ConnectUC(local, remote Endpoint, a UCAttr) error {
	if a.Port == 0 {
		a.Port = 1
	}
	p, err := q.ctx.QueryPort(a.Port)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if a.PathMTU == 0 {
		a.PathMTU = p.ActiveMTU
	}
	if a.Access == 0 {
		a.Access = ib.AccessRemoteWrite
	}
	if a.HopLimit == 0 {
		a.HopLimit = 64
	}
	attr := QPAttr{
		PortNum: a.Port, AccessFlags: a.Access, PathMTU: a.PathMTU, DestQPN: remote.QPN, RQPSN: remote.PSN, SQPSN: local.PSN,
		AH: ib.AHAttr{IsGlobal: true, PortNum: a.Port, GRH: ib.GlobalRoute{
			DGID: remote.GID, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel,
		}},
	}
	return q.climb(&attr, [3]ib.QPAttrMask{
		ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags,
		ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN,
		ib.QPAttrSQPSN,
	})
}

// UDAttr are the attributes of a queue pair for datagrams.
type UDAttr struct {
	Port uint8 // 0 means 1
	// QKey is what datagrams for this queue pair have to bear. One with the top bit set, a controlled Q_Key, is EPERM for
	// other users than root and the daemon's own.
	QKey ib.QKey
	PSN  ib.PSN // of the first datagram; nobody looks at it
}

// ActivateUD takes a queue pair for datagrams that was just made through INIT and RTR to RTS. To be reached it tells
// others its GID, its number and its Q_Key.
func (q *QP) ActivateUD(a UDAttr) error {
	if a.Port == 0 {
		a.Port = 1
	}
	attr := QPAttr{PortNum: a.Port, QKey: a.QKey, SQPSN: a.PSN}
	return q.climb(&attr, [3]ib.QPAttrMask{ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrQKey, 0, ib.QPAttrSQPSN})
}

// climb takes the steps to RTS, but for one that the caller has taken, to post receives before.
func (q *QP) climb(attr *QPAttr, masks [3]ib.QPAttrMask) error {
	for i, to := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		if q.State() == to {
			continue
		}
		attr.State = to
		if err := q.Modify(attr, ib.QPAttrState|masks[i]); err != nil {
			return err
		}
	}
	return nil
}
