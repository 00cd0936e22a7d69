package verbs_test

import (
	"fmt"
	"log"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// A server answers whoever writes to it: the completion and the header in front of the datagram say where the answer goes.
func ExamplePD_CreateAHFromWC() {
	const qkey = 0x1234567
	var net embedded.Network
	open := func() (*verbs.Context, *verbs.PD, *verbs.CQ, *verbs.QP, *verbs.Buffer, *verbs.MR, func()) {
		dev := must(embedded.New(embedded.Options{Network: &net}))
		ctx := must(dev.Open())
		pd, cq := must(ctx.AllocPD()), must(ctx.CreateCQ(16))
		qp := must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeUD, SendCQ: cq, RecvCQ: cq,
			Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
		if err := qp.ActivateUD(verbs.UDAttr{QKey: qkey}); err != nil {
			log.Fatal(err)
		}
		buf := must(pd.AllocBuffer(4096))
		mr := must(pd.RegMR(buf.Bytes(), ib.AccessLocalWrite))
		return ctx, pd, cq, qp, buf, mr, func() { ctx.Close(); dev.Close() }
	}
	wait := func(cq *verbs.CQ) verbs.WC {
		var wc [1]verbs.WC
		for {
			if n, err := cq.Poll(wc[:]); err != nil || n == 1 && wc[0].Status != ib.WCSuccess {
				log.Fatal(wc[0].Status, err)
			} else if n == 1 {
				return wc[0]
			}
			time.Sleep(time.Millisecond)
		}
	}

	serverCtx, serverPD, serverCQ, server, serverBuf, serverMR, closeServer := open()
	defer closeServer()
	_, clientPD, clientCQ, client, clientBuf, clientMR, closeClient := open()
	defer closeClient()

	// A receive has 40 bytes more than the datagram.
	server.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{serverMR.SGE(0, verbs.GRHSize+64)}})
	client.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{clientMR.SGE(1024, verbs.GRHSize+64)}})

	// The client knows the server's GID, number and Q_Key.
	gid := must(serverCtx.QueryGID(1, 0)).GID
	ah := must(clientPD.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: ib.GlobalRoute{DGID: gid}}))
	copy(clientBuf.Bytes(), "who is there?")
	client.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{clientMR.SGE(0, 13)},
		AH: ah, RemoteQPN: server.QPN(), RemoteQKey: qkey})
	wait(clientCQ) // it was sent

	wc := wait(serverCQ)
	question := serverBuf.Bytes()[verbs.GRHSize:wc.ByteLen]
	fmt.Printf("server: %s\n", question)
	back := must(serverPD.CreateAHFromWC(1, &wc, serverBuf.Bytes()[:verbs.GRHSize]))
	copy(serverBuf.Bytes()[512:], "softnicd")
	server.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{serverMR.SGE(512, 8)},
		AH: back, RemoteQPN: wc.SrcQP, RemoteQKey: qkey})
	wait(serverCQ)

	wc = wait(clientCQ)
	fmt.Printf("client: %s\n", clientBuf.Bytes()[1024+verbs.GRHSize:1024+wc.ByteLen])
	// Output:
	// server: who is there?
	// client: softnicd
}

// What is sent on an unreliable connection arrives whole or not at all.
func ExampleQP_ConnectUC() {
	t := exampleTB{}
	var net embedded.Network
	devs := [2]*embedded.Device{must(embedded.New(embedded.Options{Network: &net})), must(embedded.New(embedded.Options{Network: &net}))}
	a, b := newTypedSide(t, must(devs[0].Open()), ib.QPTypeUC, false), newTypedSide(t, must(devs[1].Open()), ib.QPTypeUC, false)
	for _, c := range []struct{ local, remote *side }{{a, b}, {b, a}} {
		if err := c.local.qp.ConnectUC(c.local.end, c.remote.end, verbs.UCAttr{}); err != nil {
			log.Fatal(err)
		}
	}
	check(t, b.qp.PostRecv(verbs.RecvWR{WRID: 1, SGList: []verbs.SGE{b.mr.SGE(0, 100)}}))
	copy(a.buf.Bytes(), "as it were")
	check(t, a.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 10)}}))
	a.expect(2, ib.WCSuccess) // it has left; nobody says whether it arrived
	wc := b.expect(1, ib.WCSuccess)
	fmt.Printf("%s\n", b.buf.Bytes()[:wc.ByteLen])
	a.ctx.Close()
	b.ctx.Close()
	devs[0].Close()
	devs[1].Close()
	// Output: as it were
}
