package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"syscall"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// What is reported is the real capacity, a multiple of 64, and exactly that fits.
func ExampleContext_CreateCQ() {
	a, _, done := connected()
	defer done()
	cq, err := a.ctx.CreateCQ(100)
	if err != nil {
		log.Fatal(err)
	}
	_, err = a.ctx.CreateCQ(0)
	fmt.Println(cq.Capacity(), errors.Is(err, syscall.EINVAL))
	// Output: 128 true
}

// Status first: of a completion with an error only wr_id, status, qp_num and vendor_err are valid.
func ExampleCQ_Poll() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 32))
	a.qp.PostSend(a.send(1, 64)) // longer than the receive
	var wc [4]verbs.WC
	for n := 0; n == 0; {
		var err error
		if n, err = b.cq.Poll(wc[:]); err != nil {
			log.Fatal(err) // the queue overran, or the device is gone
		}
		for _, c := range wc[:n] {
			if c.Status != ib.WCSuccess {
				fmt.Println(c.WRID, c.Status, c.QPN == b.qp.QPN())
			}
		}
	}
	// Output: 7 local length error true
}

// Only what is asked for is read, where it lies.
func ExampleCQ_PollEach() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64), b.recv(8, 0, 64))
	a.qp.PostSend(a.send(1, 10), a.send(2, 20))
	bytes := uint32(0)
	for n := 0; n < 2; {
		k, err := b.cq.PollEach(16, func(e verbs.Entry) bool {
			bytes += e.ByteLen()
			return e.Status() == ib.WCSuccess
		})
		if err != nil {
			log.Fatal(err)
		}
		n += k
	}
	fmt.Println(bytes, "bytes")
	// Output: 30 bytes
}

// A queue grows while others poll it, and does not shrink below what waits in it.
func ExampleCQ_Resize() {
	a, b, done := connected()
	defer done()
	if err := b.cq.Resize(1000); err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.cq.Capacity())

	b.qp.PostRecv(b.recv(7, 0, 64))
	a.qp.PostSend(a.send(1, 64))
	fmt.Println(b.next().WRID, b.cq.Resize(64), b.cq.Capacity())
	// Output:
	// 1024
	// 7 <nil> 64
}

// How many wait, without taking any.
func ExampleCQ_Peek() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64), b.recv(8, 0, 64))
	a.qp.PostSend(a.send(1, 64), a.send(2, 64))
	for n := 0; n < 2; {
		n, _ = b.cq.Peek(10)
	}
	one, _ := b.cq.Peek(1)
	fmt.Println(one, b.next().WRID)
	// Output: 1 7
}

// Arming and then looking again: what came before the arming makes no event, and ReqNotify says that it is there.
func ExampleCQ_ReqNotify() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64))
	a.qp.PostSend(a.send(1, 64))
	a.next()
	for n := 0; n == 0; {
		n, _ = b.cq.Peek(1)
	}
	missed, err := b.cq.ReqNotify(false)
	if err != nil {
		log.Fatal(err)
	}
	if missed {
		fmt.Println("poll first, then sleep:", b.next().WRID)
	}
	// Output: poll first, then sleep: 7
}

// One event for up to 8 completions, 500 microseconds after the first of them at the latest.
func ExampleCQ_Modify() {
	a, b, done := connected()
	defer done()
	if err := b.cq.Modify(8, 500); err != nil {
		log.Fatal(err)
	}
	b.cq.ReqNotify(false)
	b.qp.PostRecv(b.recv(7, 0, 64), b.recv(8, 0, 64))
	a.qp.PostSend(a.send(1, 64), a.send(2, 64))
	cq, err := b.ch.GetEvent(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	cq.AckEvents(1)
	n, _ := cq.Peek(8)
	fmt.Println(n, "completions, one event")
	// Output: 2 completions, one event
}

// A handler in the kernel's habit: it runs once for each arming, in a goroutine of the program's own.
func ExampleCQ_HandleEvents() {
	a, b, done := connected()
	defer done()
	ctx, stop := context.WithCancel(context.Background())
	received := make(chan uint64)
	var running sync.WaitGroup
	running.Go(func() {
		b.cq.HandleEvents(ctx, func(q *verbs.CQ) {
			var wc [4]verbs.WC
			for again := true; again; {
				for n := 1; n > 0; {
					n, _ = q.Poll(wc[:])
					for _, c := range wc[:n] {
						received <- c.WRID
					}
				}
				again, _ = q.ReqNotify(false)
			}
		})
	})
	b.cq.ReqNotify(false)
	b.qp.PostRecv(b.recv(7, 0, 64))
	a.qp.PostSend(a.send(1, 64))
	fmt.Println(<-received)
	stop()
	running.Wait() // the handler does not run any more
	// Output: 7
}

// The way down: everything that was posted is flushed and seen, and then nothing is left.
func ExampleQP_Drain() {
	_, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64), b.recv(8, 0, 64))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := b.qp.Drain(ctx, func(wc *verbs.WC) { fmt.Println(wc.WRID, wc.Status) })
	fmt.Println(err)
	// Output:
	// 7 Work Request Flushed Error
	// 8 Work Request Flushed Error
	// <nil>
}

// Completion timestamps are the device's own clock; on request they are times of day.
func ExampleContext_WallClock() {
	a, b, done := connected()
	defer done()
	b.qp.PostRecv(b.recv(7, 0, 64))
	a.qp.PostSend(a.send(1, 64))
	wc := b.next()
	ago := time.Since(a.ctx.WallClock(wc.Timestamp))
	fmt.Println(ago > 0 && ago < time.Minute, wc.Timestamp <= a.ctx.RawClock())
	// Output: true true
}
