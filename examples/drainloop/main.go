// Drainloop is the loop that every RDMA tutorial begins with: poll a batch of completions, check the status of each,
// use the data, post the receive again.
//
//	go run ./examples/drainloop                   # a device in this process
//	go run ./examples/drainloop -device softnic0  # a device of the daemon
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "drainloop:", err)
		os.Exit(1)
	}
}

const (
	depth = 16   // receives that are posted
	size  = 4096 // of each
	batch = 8    // completions a poll
)

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("drainloop", flag.ContinueOnError)
	device := f.String("device", "", "a device of the daemon; without it one in this process")
	messages := f.Int("n", 1000, "messages")
	if err := f.Parse(args); err != nil {
		return err
	}
	ctx, done, err := open(*device)
	if err != nil {
		return err
	}
	defer done()
	from, to, err := newPair(ctx)
	if err != nil {
		return err
	}

	sent := make(chan error, 1)
	go func() { sent <- from.sendAll(*messages) }()
	r, err := to.drain(*messages)
	if err != nil {
		return err
	}
	if err := <-sent; err != nil {
		return err
	}
	fmt.Fprintf(out, "%d messages, %d bytes, all in order\n", r.messages, r.bytes)
	return nil
}

type received struct {
	messages int
	bytes    int
}

// drain is the loop.
func (e *end) drain(messages int) (r received, err error) {
	var wc [batch]verbs.WC
	for deadline := time.Now().Add(30 * time.Second); r.messages < messages; {
		n, err := e.cq.Poll(wc[:])
		if err != nil {
			return r, err // the queue overran, or the device is gone
		}
		if n == 0 && time.Now().After(deadline) {
			return r, fmt.Errorf("%d of %d messages after 30 s", r.messages, messages)
		}
		for i := range n {
			// Status first: of a completion with an error only wr_id, status, qp_num and vendor_err are valid.
			if wc[i].Status != ib.WCSuccess {
				return r, fmt.Errorf("receive %d: %v (vendor error %#x)", wc[i].WRID, wc[i].Status, wc[i].VendorErr)
			}
			// The wr_id says which buffer it was: it is ours now, and the device does not touch it.
			slot := int(wc[i].WRID)
			data := e.buf[slot*size:][:wc[i].ByteLen]
			if want := line(r.messages); string(data) != want {
				return r, fmt.Errorf("message %d is %q, want %q", r.messages, data, want)
			}
			r.messages++
			r.bytes += len(data)
			// The buffer is used: back to the device with it, before the sender runs out of receives.
			if err := e.post(slot); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// sendAll sends the messages, as many at a time as the send queue has slots. It sleeps where drain spins.
func (e *end) sendAll(messages int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wc [batch]verbs.WC
	for posted, completed := 0, 0; completed < messages; {
		for posted < messages && posted-completed < depth {
			slot := posted % depth
			n := copy(e.buf[slot*size:], line(posted))
			err := e.qp.PostSend(verbs.SendWR{
				WRID: uint64(slot), Opcode: ib.WRSend, Flags: ib.SendSignaled, SGList: []verbs.SGE{e.mr.SGE(slot*size, n)},
			})
			if err != nil {
				return err
			}
			posted++
		}
		n, err := e.cq.Wait(ctx, wc[:])
		if err != nil {
			return err
		}
		for i := range n {
			if wc[i].Status != ib.WCSuccess {
				return fmt.Errorf("send: %v", wc[i].Status)
			}
		}
		completed += n
	}
	return nil
}

func line(i int) string { return fmt.Sprintf("message %d", i) }

// end is one end of a connection.
type end struct {
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
	buf []byte
}

// newPair connects two queue pairs of the device. The receives of the second are posted before the first can send.
func newPair(ctx *verbs.Context) (from, to *end, err error) {
	gid, err := ctx.QueryGID(1, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*end
	var addr [2]verbs.Endpoint
	for i := range ends {
		if ends[i], err = newEnd(ctx); err != nil {
			return nil, nil, err
		}
		addr[i] = verbs.Endpoint{QPN: ends[i].qp.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID}
	}
	for i := range ends {
		if err := ends[i].qp.ConnectRC(addr[i], addr[1-i], verbs.RCAttr{}); err != nil {
			return nil, nil, err
		}
	}
	for slot := range depth {
		if err := ends[1].post(slot); err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

func newEnd(ctx *verbs.Context) (*end, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	ch, err := ctx.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	// Room for everything that can be outstanding: the queue cannot overrun.
	e := &end{}
	if e.cq, err = ctx.CreateCQ(2*depth, verbs.WithChannel(ch)); err != nil {
		return nil, err
	}
	e.qp, err = pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	buf, err := pd.AllocBuffer(depth * size)
	if err != nil {
		return nil, err
	}
	e.buf = buf.Bytes()
	e.mr, err = pd.RegMR(e.buf, ib.AccessLocalWrite)
	return e, err
}

// post gives a receive buffer to the device.
func (e *end) post(slot int) error {
	return e.qp.PostRecv(verbs.RecvWR{WRID: uint64(slot), SGList: []verbs.SGE{e.mr.SGE(slot*size, size)}})
}

// open opens a device, of the daemon or of this process.
func open(device string) (ctx *verbs.Context, done func(), err error) {
	if device != "" {
		ctx, err = verbs.Open(device)
		return ctx, func() { ctx.Close() }, err
	}
	d, err := embedded.New(embedded.Options{})
	if err != nil {
		return nil, nil, err
	}
	if ctx, err = d.Open(); err != nil {
		d.Close()
		return nil, nil, err
	}
	return ctx, func() { ctx.Close(); d.Close() }, nil
}
