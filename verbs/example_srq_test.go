package verbs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// Ten clients share the receives of one queue, which says when it runs low.
func ExamplePD_CreateSRQ() {
	dev := must(embedded.New(embedded.Options{}))
	defer dev.Close()
	ctx := must(dev.Open())
	defer ctx.Close()
	client := newSide(exampleTB{}, ctx, 64, smallCap)
	server := newSide(exampleTB{}, ctx, 64, smallCap)

	srq := must(server.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 64, MaxSGE: 1}))
	for i := range uint64(4) {
		if err := srq.PostRecv(server.recv(i, 0, 64)); err != nil {
			log.Fatal(err)
		}
	}
	// Tell me once when fewer than 4 are left.
	if err := srq.Modify(verbs.SRQAttr{SRQLimit: 4}, ib.SRQAttrLimit); err != nil {
		log.Fatal(err)
	}
	// Each queue pair of the server is made like this one.
	server.qp = must(server.pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: server.cq, RecvCQ: server.cq, SRQ: srq,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 1},
	}))
	server.end.QPN = server.qp.QPN()
	connectSides(exampleTB{}, client, server, verbs.RCAttr{})

	client.qp.PostSend(client.send(1, 64))
	for {
		e, err := ctx.AsyncEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if e.SRQ == srq {
			fmt.Println(e.Type)
			return
		}
	}
	// Output: SRQ limit reached
}
