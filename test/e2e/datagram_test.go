package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// newDatagramSide makes a queue pair for datagrams that is ready.
func newDatagramSide(ctx *verbs.Context, qkey ib.QKey) *side {
	s := newSide(ctx, 1<<16)
	s.qp = must(s.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeUD, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	if err := s.qp.ActivateUD(verbs.UDAttr{QKey: qkey}); err != nil {
		panic(err)
	}
	return s
}

// Questions and answers over real sockets, of both families and on one device: the answer goes where the header in front of
// the question says, and that header says what was asked for.
func TestDatagramsOverSockets(t *testing.T) {
	const (
		qkey = 0x1234567
		dscp = 0x20 // in the traffic class, which the device adds ECT(0) to
		ect0 = 2
	)
	for name, addrs := range map[string][2]string{
		"IPv4": {"127.0.0.1", "127.0.0.2"}, "IPv6": {"::1", "127.0.0.1"}, "one device": {"127.0.0.1", "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := net.Listen("tcp", net.JoinHostPort(addrs[0], "0")); err != nil {
				t.Skipf("this host has no %s: %v", addrs[0], err)
			} else {
				l.Close()
			}
			d := startDaemon(t, "--device", "a="+addrs[0], "--device", "b="+addrs[1])
			open := func(device string) *verbs.Context {
				ctx := must(verbs.Open(device, verbs.WithSocket(d.socket)))
				t.Cleanup(func() { ctx.Close() })
				return ctx
			}
			peer := "b"
			if name != "IPv4" {
				peer = "a"
			}
			a, b := newDatagramSide(open("a"), qkey), newDatagramSide(open(peer), qkey)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			to := must(a.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{
				DGID: b.endpoint().GID, TrafficClass: dscp, HopLimit: 5,
			}}))
			for i := range 200 {
				n := i * 5
				question := []byte(fmt.Sprintf("%0*d", n, i))
				copy(a.mem, question)
				check(t, b.recv(1, 4096, n+verbs.GRHSize+10))
				check(t, a.recv(2, 4096, 100))
				check(t, a.qp.PostSend(verbs.SendWR{WRID: 3, Opcode: ib.WRSend, SGList: []verbs.SGE{a.mr.SGE(0, len(question))},
					AH: to, RemoteQPN: b.qp.QPN(), RemoteQKey: qkey}))
				check(t, a.expect(ctx, 3))
				wc, err := b.next(ctx)
				check(t, err)
				if got := b.mem[4096+verbs.GRHSize:][:int(wc.ByteLen)-verbs.GRHSize]; !bytes.Equal(got, question) {
					t.Fatalf("%q arrived, %q was asked", got, question)
				}
				attr := must(b.ctx.InitAHFromWC(1, &wc, b.mem[4096:]))
				if attr.GRH.DGID != a.endpoint().GID || attr.GRH.TrafficClass != dscp|ect0 || name != "one device" && attr.GRH.HopLimit != 5 {
					t.Fatalf("the header says %+v", attr)
				}
				back := must(b.pd.CreateAH(attr))
				check(t, b.qp.PostSend(verbs.SendWR{WRID: 4, Opcode: ib.WRSendWithImm, ImmData: uint32(i),
					SGList: []verbs.SGE{b.mr.SGE(0, 10)}, AH: back, RemoteQPN: wc.SrcQP, RemoteQKey: qkey}))
				check(t, b.expect(ctx, 4))
				wc, err = a.next(ctx)
				check(t, err)
				if wc.WRID != 2 || wc.ImmData != uint32(i) || wc.ByteLen != verbs.GRHSize+10 {
					t.Fatalf("the answer is %+v", wc)
				}
				check(t, back.Destroy())
			}
		})
	}
}
