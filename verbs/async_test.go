package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Second)
}

// newStrangers makes two sides that are not connected.
func newStrangers(t testing.TB) (a, b *side) {
	var net embedded.Network
	return newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap),
		newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, smallCap)
}

// COMM_EST: the peer talks before the application has moved on to RTS. Once.
func TestEventCommEst(t *testing.T) {
	a, b := newStrangers(t)
	check(t, a.qp.ConnectRC(a.end, b.end, verbs.RCAttr{}))
	for _, step := range []struct {
		state ib.QPState
		mask  ib.QPAttrMask
	}{
		{ib.StateInit, ib.QPAttrPKeyIndex | ib.QPAttrPort | ib.QPAttrAccessFlags},
		{ib.StateRTR, ib.QPAttrAV | ib.QPAttrPathMTU | ib.QPAttrDestQPN | ib.QPAttrRQPSN | ib.QPAttrMaxDestRDAtomic | ib.QPAttrMinRNRTimer},
	} {
		check(t, b.qp.Modify(&verbs.QPAttr{State: step.state, PortNum: 1, AccessFlags: ib.AccessRemoteWrite, PathMTU: ib.MTU4096, DestQPN: a.end.QPN,
			RQPSN: a.end.PSN, MaxDestRDAtomic: 1, AH: ib.AHAttr{IsGlobal: true, GRH: ib.GlobalRoute{DGID: a.end.GID}}}, ib.QPAttrState|step.mask))
	}
	check(t, b.qp.PostRecv(b.recv(1, 0, 64), b.recv(2, 0, 64)))
	check(t, a.qp.PostSend(a.send(1, 64), a.send(2, 64)))
	if e := b.event(ib.EventCommEst); e.QP != b.qp {
		t.Errorf("event %+v", e)
	}
	b.expect(1, ib.WCSuccess)
	b.expect(2, ib.WCSuccess)
	b.noEvent()
}

// QP_REQ_ERR: the peer asked for what is not enabled, and no receive can report it.
func TestEventQPReqErr(t *testing.T) {
	a, b := newStrangers(t)
	check(t, a.qp.ConnectRC(a.end, b.end, verbs.RCAttr{}))
	check(t, b.qp.ConnectRC(b.end, a.end, verbs.RCAttr{Access: ib.AccessRemoteWrite}))
	check(t, a.qp.PostSend(a.remote(b, ib.WRRDMARead, b.mr.RKey())))
	a.expect(1, ib.WCRemInvReqErr)
	if e := b.event(ib.EventQPReqErr); e.QP != b.qp || b.qp.State() != ib.StateErr {
		t.Errorf("event %+v, state %s", e, b.qp.State())
	}
	b.noEvent()
	a.noEvent() // the completion tells
}

// QP_ACCESS_ERR: the peer named memory that it may not touch. With a WRITE that takes a receive, the receive reports it.
func TestEventQPAccessErr(t *testing.T) {
	a, b := newPair(t)
	check(t, a.qp.PostSend(a.remote(b, ib.WRRDMAWrite, b.mr.RKey()+0x100)))
	a.expect(1, ib.WCRemAccessErr)
	if e := b.event(ib.EventQPAccessErr); e.QP != b.qp || b.qp.State() != ib.StateErr {
		t.Errorf("event %+v, state %s", e, b.qp.State())
	}
	b.noEvent()

	a, b = newPair(t)
	check(t, b.qp.PostRecv(b.recv(5, 0, 64)))
	check(t, a.qp.PostSend(a.remote(b, ib.WRRDMAWriteWithImm, b.mr.RKey()+0x100)))
	a.expect(1, ib.WCRemAccessErr)
	b.expect(5, ib.WCLocAccessErr)
	b.noEvent()
}

func (s *side) remote(peer *side, op ib.WROpcode, key ib.RKey) verbs.SendWR {
	return verbs.SendWR{WRID: 1, Opcode: op, Flags: ib.SendSignaled, RemoteAddr: peer.mr.Addr(), RKey: key, SGList: []verbs.SGE{s.mr.SGE(0, 64)}}
}

// CQ_ERR and QP_FATAL: completions did not fit.
func TestEventsOfAnOverrun(t *testing.T) {
	var net embedded.Network
	a := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1})
	b := newSide(t, openDevice(t, embedded.Options{Network: &net}), 64, verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1})
	connectSides(t, a, b, verbs.RCAttr{})
	for i := range uint64(65) {
		check(t, b.qp.PostRecv(b.recv(i, 0, 64)))
		check(t, a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, 8)}}))
	}
	if e := b.event(ib.EventCQErr); e.CQ != b.cq || e.QP != nil {
		t.Errorf("event %+v", e)
	}
	if e := b.event(ib.EventQPFatal); e.QP != b.qp || b.qp.State() != ib.StateErr {
		t.Errorf("event %+v, state %s", e, b.qp.State())
	}
	b.noEvent()
}

// QP_LAST_WQE_REACHED: a queue pair of a shared receive queue has failed, and has nothing of it any more.
func TestEventLastWQEReached(t *testing.T) {
	a, b, srq := newSharing(t, 8)
	check(t, srq.PostRecv(b.recv(1, 0, 8), b.recv(2, 0, 64)))
	check(t, a.qp.PostSend(a.send(3, 64))) // too long for the receive
	a.expect(3, ib.WCRemInvReqErr)
	b.expect(1, ib.WCLocLenErr)
	if e := b.event(ib.EventQPLastWQEReached); e.QP != b.qp || e.SRQ != nil || b.qp.State() != ib.StateErr {
		t.Errorf("event %+v, state %s", e, b.qp.State())
	}
	b.noEvent()
	b.nothing() // the second receive is still the queue's
	check(t, b.qp.Close())
	check(t, a.qp.Close())
	a.qp = must(a.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: a.cq, RecvCQ: a.cq, Cap: smallCap}))
	b.qp = must(b.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq, Cap: smallCap}))
	a.end.QPN, b.end.QPN = a.qp.QPN(), b.qp.QPN()
	connectSides(t, a, b, verbs.RCAttr{})
	check(t, a.qp.PostSend(a.send(4, 64)))
	b.expect(2, ib.WCSuccess)
}

// SRQ_ERR: the ring makes no sense. Queue pairs hear of it when they need a receive, and their peers by a NAK.
func TestEventSRQErr(t *testing.T) {
	a, b, srq := newSharing(t, 8)
	check(t, srq.PostRecv(b.recv(1, 0, 64)))
	srq.Lie()
	check(t, a.qp.PostSend(a.send(2, 64)))
	a.expect(2, ib.WCRemOpErr)
	if e := b.event(ib.EventSRQErr); e.SRQ != srq || e.QP != nil {
		t.Errorf("event %+v", e)
	}
	if e := b.event(ib.EventQPFatal); e.QP != b.qp {
		t.Errorf("event %+v", e)
	}
	b.event(ib.EventQPLastWQEReached)
	b.noEvent()
	if err := srq.PostRecv(b.recv(3, 0, 64)); err == nil {
		t.Error("a queue in error takes receives")
	}
	check(t, b.qp.Close())
	check(t, srq.Close())
}
