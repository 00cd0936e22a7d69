package verbs_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// connected opens an embedded device and connects two queue pairs of it: what the examples begin with.
func connected() (a, b *side, done func()) {
	d := must(embedded.New(embedded.Options{}))
	ctx := must(d.Open())
	a, b = newSide(exampleTB{}, ctx, 64, smallCap), newSide(exampleTB{}, ctx, 64, smallCap)
	connectSides(exampleTB{}, a, b, verbs.RCAttr{})
	return a, b, func() {
		ctx.Close()
		d.Close()
	}
}

// exampleTB lets examples use the helpers of tests: what fails there ends the program here.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Fatal(args ...any) { log.Fatal(args...) }

// A message from one queue pair to another. With a daemon only the first lines differ: verbs.Open("softnic0").
func Example() {
	dev, err := embedded.New(embedded.Options{Name: "softnic0"})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	ctx, err := dev.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer ctx.Close()

	pd := must(ctx.AllocPD())
	buf := must(pd.AllocBuffer(8192))
	mr := must(pd.RegMR(buf.Bytes(), ib.AccessLocalWrite))
	cq := must(ctx.CreateCQ(16))
	init := verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	sender, receiver := must(pd.CreateQP(init)), must(pd.CreateQP(init))

	// Two programs would tell each other these, by TCP for example.
	gid := must(ctx.QueryGID(1, 0)).GID
	here := verbs.Endpoint{QPN: sender.QPN(), PSN: verbs.RandomPSN(), GID: gid}
	there := verbs.Endpoint{QPN: receiver.QPN(), PSN: verbs.RandomPSN(), GID: gid}
	if err := sender.ConnectRC(here, there, verbs.RCAttr{}); err != nil {
		log.Fatal(err)
	}
	if err := receiver.ConnectRC(there, here, verbs.RCAttr{}); err != nil {
		log.Fatal(err)
	}

	copy(buf.Bytes(), "hello, verbs")
	err = receiver.PostRecv(verbs.RecvWR{WRID: 1001, SGList: []verbs.SGE{mr.SGE(4096, 4096)}})
	if err != nil {
		log.Fatal(err)
	}
	err = sender.PostSend(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{mr.SGE(0, 12)}})
	if err != nil {
		log.Fatal(err)
	}
	var received verbs.WC
	for n := 0; n < 2; {
		var wc [2]verbs.WC
		k, err := cq.Poll(wc[:])
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range wc[:k] {
			if c.Opcode == ib.WCRecv {
				received = c
			}
		}
		n += k
	}
	fmt.Println(received.WRID, received.Status, received.ByteLen)
	fmt.Println(string(buf.Bytes()[4096:][:received.ByteLen]))
	// Output:
	// 1001 success 12
	// hello, verbs
}

// Wait polls for a moment, then sleeps until something comes: no loop that burns a core, no lost wake-up.
func ExampleCQ_Wait() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64))
	go a.qp.PostSend(a.send(1, 64))

	var wc [8]verbs.WC
	n, err := b.cq.Wait(context.Background(), wc[:])
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range wc[:n] {
		fmt.Println(c.WRID, c.Status)
	}
	// Output: 7 success
}

// The loop that C programs write: arm, poll until nothing is left, wait for the event, acknowledge it.
func ExampleCompChannel_GetEvent() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64), b.recv(8, 64, 64))
	go a.qp.PostSend(a.send(1, 64), a.send(2, 64))

	b.cq.ReqNotify(false)
	for received := 0; received < 2; {
		cq, err := b.ch.GetEvent(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		cq.AckEvents(1)
		// Arm before polling: what comes in between makes an event.
		cq.ReqNotify(false)
		for {
			var wc [8]verbs.WC
			n, err := cq.Poll(wc[:])
			if n == 0 || err != nil {
				break
			}
			for _, c := range wc[:n] {
				fmt.Println(c.WRID, c.Status)
			}
			received += n
		}
	}
	// Output:
	// 7 success
	// 8 success
}

// One side of a WRITE needs only an address and a key of the other.
func ExamplePD_RegMR() {
	a, b, done := connected()
	defer done()
	target := make([]byte, 64) // any memory will do
	mr, err := b.pd.RegMR(target, ib.AccessLocalWrite|ib.AccessRemoteWrite)
	if err != nil {
		log.Fatal(err)
	}
	copy(a.buf.Bytes(), "written from afar")
	a.qp.PostSend(verbs.SendWR{
		WRID: 1, Opcode: ib.WRRDMAWrite, Flags: ib.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 17)},
		RemoteAddr: mr.Addr() + 8, RKey: mr.RKey(),
	})
	var wc [1]verbs.WC
	if _, err := a.cq.Wait(context.Background(), wc[:]); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v: %q\n", wc[0].Status, target[8:25])
	// Output: success: "written from afar"
}

// A refused work request is named, and those before it run.
func ExamplePostError() {
	a, _, done := connected()
	defer done()
	list := make([]verbs.SendWR, 17)
	for i := range list {
		list[i] = a.send(uint64(i), 8)
	}
	err := a.qp.PostSend(list...)
	fmt.Println(err)
	// Output: work request 16: the queue is full: cannot allocate memory
}
