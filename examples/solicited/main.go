// Solicited shows the solicited event: a sender streams many messages and asks for the receiver's attention with the last
// of each batch only, and the receiver's handler runs once a batch instead of once a message.
//
//	go run ./examples/solicited                   # a device in this process
//	go run ./examples/solicited -device softnic0  # a device of the daemon
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "solicited:", err)
		os.Exit(1)
	}
}

const (
	perBatch = 32
	size     = 64
)

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("solicited", flag.ContinueOnError)
	device := f.String("device", "", "a device of the daemon; without it one in this process")
	batches := f.Int("n", 10, "batches")
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
	h := &handler{end: to, batch: make(chan error, 1)}
	running, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- to.cq.HandleEvents(running, h.handle) }()
	// Armed before anything can come: one event, at the next solicited completion or error.
	if _, err := to.cq.ReqNotify(true); err != nil {
		return err
	}
	for range *batches {
		if err := from.sendBatch(); err != nil {
			return err
		}
		select {
		case err = <-h.batch:
		case <-time.After(30 * time.Second):
			err = errors.New("the handler does not run")
		}
		if err != nil {
			return err
		}
	}
	stop()
	<-stopped // from here on the handler does not run
	fmt.Fprintf(out, "%d messages, %d calls of the handler\n", h.messages.Load(), h.calls.Load())
	return nil
}

// handler is the receiver.
type handler struct {
	*end
	calls, messages atomic.Int64
	batch           chan error // a batch is complete
}

// handle runs once for each arming. It arms again first and polls afterwards: what comes in between is either polled here
// or makes the next event, and is never lost.
func (h *handler) handle(q *verbs.CQ) {
	h.calls.Add(1)
	for again := true; again; {
		if err := h.drain(q); err != nil {
			h.batch <- err
			return
		}
		// More may have come since the last look and before this arming. Then nobody would tell: it is polled now.
		again, _ = q.ReqNotify(true)
	}
}

func (h *handler) drain(q *verbs.CQ) error {
	var wc [16]verbs.WC
	for {
		n, err := q.Poll(wc[:])
		if n == 0 {
			return err
		}
		for i := range n {
			if wc[i].Status != ib.WCSuccess {
				return fmt.Errorf("receive: %v", wc[i].Status)
			}
			if err := h.post(int(wc[i].WRID)); err != nil {
				return err
			}
			if h.messages.Add(1)%perBatch == 0 {
				h.batch <- nil
			}
		}
	}
}

// sendBatch sends a batch. Only the last message is solicited, and only the last is signaled: its completion says that all
// before it are done, too.
func (e *end) sendBatch() error {
	list := make([]verbs.SendWR, perBatch)
	for i := range list {
		list[i] = verbs.SendWR{Opcode: ib.WRSend, SGList: []verbs.SGE{e.mr.SGE(i*size, size)}}
	}
	list[perBatch-1].Flags = ib.SendSignaled | ib.SendSolicited
	if err := e.qp.PostSend(list...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := e.cq.Wait(ctx, wc[:]); err != nil {
		return err
	}
	if wc[0].Status != ib.WCSuccess {
		return fmt.Errorf("send: %v", wc[0].Status)
	}
	return nil
}

// end is one end of a connection.
type end struct {
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
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
	for slot := range 2 * perBatch {
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
	e := &end{}
	if e.cq, err = ctx.CreateCQ(3*perBatch, verbs.WithChannel(ch)); err != nil {
		return nil, err
	}
	e.qp, err = pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: perBatch, MaxRecvWR: 2 * perBatch, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return nil, err
	}
	buf, err := pd.AllocBuffer(2 * perBatch * size)
	if err != nil {
		return nil, err
	}
	e.mr, err = pd.RegMR(buf.Bytes(), ib.AccessLocalWrite)
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
