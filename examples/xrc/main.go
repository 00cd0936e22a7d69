// Xrc shows what extended reliable connections are for: one server with several worker processes, many clients, every
// client able to reach every worker. With plain reliable connections each client needs a queue pair for each worker, and so
// does each worker for each client; with XRC one connection leads a client to all workers of the node.
//
//	go run ./examples/xrc                           # 4 workers, 8 clients, in this process
//	go run ./examples/xrc -workers 16 -clients 32
//	go run ./examples/xrc -device softnic0          # a device of the daemon
//
// Each client sends one request to each worker, who sends it back, turned round: so the answers, too, come over XRC. The
// workers' shared receive queues are in one domain, the clients' in another.
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
		fmt.Fprintln(os.Stderr, "xrc:", err)
		os.Exit(1)
	}
}

const size = 64 // bytes of a message

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("xrc", flag.ContinueOnError)
	device := f.String("device", "", "a device of the daemon; without it one in this process")
	workers := f.Int("workers", 4, "worker processes of the server")
	clients := f.Int("clients", 8, "clients")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *workers < 1 || *clients < 1 {
		return errors.New("there must be workers and clients")
	}
	open, done, err := opener(*device)
	if err != nil {
		return err
	}
	defer done()
	s, err := newServer(open, *workers, *clients)
	if err != nil {
		return err
	}
	answers := 0
	for c := range *clients {
		n, err := s.serve(open, c)
		if err != nil {
			return fmt.Errorf("client %d: %w", c, err)
		}
		answers += n
	}
	plain := 2 * *workers * *clients
	fmt.Fprintf(out, "%d answers for %d clients of %d workers\n", answers, *clients, *workers)
	fmt.Fprintf(out, "queue pairs: %d with XRC, %d with RC: %d saved\n", s.pairs, plain, plain-s.pairs)
	return nil
}

// process is what a process has: its own context, and a shared receive queue that messages come to.
type process struct {
	ctx  *verbs.Context
	pd   *verbs.PD
	cq   *verbs.CQ
	mr   *verbs.MR
	xrcd *verbs.XRCD
	srq  *verbs.SRQ
}

func newProcess(open func() (*verbs.Context, error), domain string, messages int) (*process, error) {
	p := &process{}
	var err error
	if p.ctx, err = open(); err != nil {
		return nil, err
	}
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		return nil, err
	}
	ch, err := p.ctx.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	if p.cq, err = p.ctx.CreateCQ(4*messages, verbs.WithChannel(ch)); err != nil {
		return nil, err
	}
	buf, err := p.pd.AllocBuffer((messages + 1) * size)
	if err != nil {
		return nil, err
	}
	if p.mr, err = p.pd.RegMR(buf.Bytes(), ib.AccessLocalWrite); err != nil {
		return nil, err
	}
	// Processes that give the same name meet in the same domain.
	if p.xrcd, err = p.ctx.OpenXRCD(verbs.XRCDAttr{Name: domain, Flags: ib.XRCDCreate}); err != nil {
		return nil, err
	}
	p.srq, err = p.pd.CreateXSRQ(verbs.SRQAttr{MaxWR: uint32(messages), MaxSGE: 1}, p.xrcd, p.cq)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if err := p.srq.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{p.mr.SGE((i+1)*size, size)}}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// initiator makes the queue pair that a process sends over.
func (p *process) initiator() (*verbs.QP, error) {
	return p.pd.CreateQP(verbs.QPInitAttr{
		Type: ib.QPTypeXRCSend, SendCQ: p.cq, Cap: verbs.QPCap{MaxSendWR: 16, MaxSendSGE: 1},
	})
}

// server is the workers, and the way back to each client.
type server struct {
	workers []*process
	pairs   int // queue pairs made so far, by anybody
}

func newServer(open func() (*verbs.Context, error), workers, clients int) (*server, error) {
	s := &server{}
	for range workers {
		w, err := newProcess(open, "xrc example: workers", clients)
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// serve lets one client ask every worker. A target of the workers' domain, which any of them may make, is all that the
// server needs to hear the client; for the answers one worker sends over an initiator of its own.
func (s *server) serve(open func() (*verbs.Context, error), number int) (answers int, err error) {
	client, err := newProcess(open, fmt.Sprint("xrc example: client ", number), len(s.workers))
	if err != nil {
		return 0, err
	}
	defer client.ctx.Close()
	front := s.workers[number%len(s.workers)]
	ask, err := s.connect(client, front)
	if err != nil {
		return 0, err
	}
	reply, err := s.connect(front, client)
	if err != nil {
		return 0, err
	}
	for i, w := range s.workers {
		text := fmt.Sprintf("client %d to worker %d", number, i)
		if err := client.send(ask, w.srq.Number(), text); err != nil {
			return answers, err
		}
		// The worker has it, in its own memory, although another one made the connection.
		got, err := w.receive()
		if err != nil {
			return answers, err
		}
		if err := front.send(reply, client.srq.Number(), turned(got)); err != nil {
			return answers, err
		}
		if got, err = client.receive(); err != nil {
			return answers, err
		}
		if got != turned(text) {
			return answers, fmt.Errorf("the answer is %q", got)
		}
		answers++
	}
	return answers, nil
}

// connect leads from a process to everybody in the domain of another: an initiator here, a target there.
func (s *server) connect(from, to *process) (*verbs.QP, error) {
	gid, err := from.ctx.QueryGID(1, 0)
	if err != nil {
		return nil, err
	}
	ini, err := from.initiator()
	if err != nil {
		return nil, err
	}
	target, err := to.xrcd.CreateQP()
	if err != nil {
		return nil, err
	}
	s.pairs += 2
	here := verbs.Endpoint{QPN: ini.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID}
	there := verbs.Endpoint{QPN: target.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID}
	return ini, errors.Join(target.ConnectRC(there, here, verbs.RCAttr{}), ini.ConnectRC(here, there, verbs.RCAttr{}))
}

// send sends a text to a shared receive queue, and waits until it has arrived.
func (p *process) send(qp *verbs.QP, srqn uint32, text string) error {
	copy(p.mr.Bytes()[:size], text)
	err := qp.PostSend(verbs.SendWR{
		Opcode: ib.WRSend, Flags: ib.SendSignaled, RemoteSRQN: srqn, SGList: []verbs.SGE{p.mr.SGE(0, len(text))},
	})
	if err != nil {
		return err
	}
	_, err = p.next(ib.WCSend)
	return err
}

// receive waits for a message.
func (p *process) receive() (string, error) {
	wc, err := p.next(ib.WCRecv)
	if err != nil {
		return "", err
	}
	off := (int(wc.WRID) + 1) * size
	return string(p.mr.Bytes()[off : off+int(wc.ByteLen)]), nil
}

// next waits for a completion, which everything here knows the kind of.
func (p *process) next(want ib.WCOpcode) (verbs.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var wc [1]verbs.WC
	if _, err := p.cq.Wait(ctx, wc[:]); err != nil {
		return wc[0], err
	}
	if wc[0].Status != ib.WCSuccess || wc[0].Opcode != want {
		return wc[0], fmt.Errorf("%v: %v", wc[0].Opcode, wc[0].Status)
	}
	return wc[0], nil
}

func turned(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

// opener returns what opens a device, of the daemon or of this process, as each process would.
func opener(device string) (open func() (*verbs.Context, error), done func(), err error) {
	if device != "" {
		return func() (*verbs.Context, error) { return verbs.Open(device) }, func() {}, nil
	}
	d, err := embedded.New(embedded.Options{})
	if err != nil {
		return nil, nil, err
	}
	return d.Open, func() { d.Close() }, nil
}
