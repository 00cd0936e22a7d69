package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
	"github.com/softnic/softnicd/verbs/embedded"
)

// config is what the story is told with.
type config struct {
	clients int
	sq, rq  int    // depth of each send and receive queue of the gateway
	cq      int    // entries of its completion queue
	reclaim string // poll or completion
	repost  bool
	retries int // RNR retries of the clients
}

// story is both sides and how far they are.
type story struct {
	config
	network  embedded.Network
	devices  [2]*embedded.Device // gateway's, clients'
	contexts [2]*verbs.Context
	gateway  *gateway
	clients  *clients
	report   report
}

// tell runs the story from beginning to end.
func tell(c config) (*report, error) {
	s := &story{config: c}
	defer s.close()
	if err := s.build(); err != nil {
		return nil, err
	}
	listening, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.gateway.listen(listening); close(done) }()
	defer func() { stop(); <-done }()
	for _, act := range []func() error{s.quiet, s.pause, s.peak, s.resume, s.end} {
		if err := act(); err != nil {
			return nil, err
		}
	}
	return &s.report, nil
}

// build makes two devices on a wire, and connects.
func (s *story) build() (err error) {
	for i, o := range []embedded.Options{
		{Name: "gateway", Network: &s.network, ReclaimOnCompletion: s.reclaim == "completion"},
		{Name: "clients", Network: &s.network},
	} {
		if s.devices[i], err = embedded.New(o); err != nil {
			return err
		}
		if s.contexts[i], err = s.devices[i].Open(); err != nil {
			return err
		}
	}
	if s.gateway, err = newGateway(s.contexts[0], &s.config); err != nil {
		return err
	}
	if s.clients, err = newClients(s.contexts[1], s.config.clients, s.rq); err != nil {
		return err
	}
	for i := range s.gateway.conns {
		g, c := &s.gateway.conns[i], &s.clients.list[i]
		if err := g.qp.ConnectRC(g.end, c.end, verbs.RCAttr{}); err != nil {
			return err
		}
		for slot := range s.rq {
			if err := s.gateway.receive(i, slot); err != nil {
				return err
			}
		}
		if err := c.qp.ConnectRC(c.end, g.end, verbs.RCAttr{RNRRetry: uint8(s.retries)}); err != nil {
			return err
		}
	}
	s.report.Capacity = s.gateway.cq.Capacity()
	return nil
}

// patience is how long the story waits for something that has to happen. Only what is broken takes so long.
const patience = time.Minute

// await gives the clients their turn, and calls step, until done.
func (s *story) await(what string, step func() error, done func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		if err := s.clients.poll(); err != nil {
			return err
		}
		if step != nil {
			if err := step(); err != nil {
				return err
			}
		}
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: nothing happens for %v", what, patience)
		}
		runtime.Gosched()
	}
}

// quiet is the time before the peak: each client in its turn sends a load, and the consumer takes what comes.
func (s *story) quiet() error {
	g := s.gateway
	for i := range s.clients.list {
		if err := s.clients.send(i); err != nil {
			return err
		}
		want := (i + 1) * s.rq
		err := s.await("quiet time", g.consume, func() (bool, error) {
			return g.overran() || g.requests == want && s.clients.acked == want, nil
		})
		if err != nil && !errors.Is(err, verbs.ErrCQOverrun) {
			return err
		}
		if g.overran() {
			break
		}
	}
	s.report.Quiet = g.requests
	return nil
}

// pause begins: the consumer polls no more. The disks answer what it gave them, as long as they can.
func (s *story) pause() error {
	g := s.gateway
	err := s.await("answers", g.answer, func() (bool, error) { return g.stuck(), nil })
	if err != nil {
		return err
	}
	s.report.Answered, s.report.Unsent = g.answers, g.unsent()
	return s.await("acknowledgements", nil, s.waits(g.answers))
}

// peak: each client sends another load into the receives that the consumer posted again before. Without them it is told
// that the receiver is not ready, and after some retries its connection fails.
func (s *story) peak() error {
	g := s.gateway
	if !g.overran() {
		for i := range s.clients.list {
			if err := s.clients.send(i); err != nil {
				return err
			}
		}
		arrived := s.waits(g.answers + s.config.clients*s.rq)
		if !s.repost {
			arrived = func() (bool, error) { return s.clients.sendsOpen() == 0, nil }
		}
		if err := s.await("the peak", nil, arrived); err != nil {
			return err
		}
	}
	n, err := g.waiting()
	s.report.Peak = n
	return err
}

// waits is done when so many completions wait, or when there are so many that the queue overran.
func (s *story) waits(n int) func() (bool, error) {
	return func() (bool, error) {
		waiting, err := s.gateway.waiting()
		return waiting >= n || s.gateway.overran(), err
	}
}

// resume ends the pause: the consumer takes what waits, which gives the disks room, until everything is answered. After an
// overrun it takes what there is, and is told.
func (s *story) resume() error {
	g := s.gateway
	step := func() error {
		err := g.consume()
		if err != nil {
			return err
		}
		return g.answer()
	}
	err := s.await("the rest", step, func() (bool, error) {
		return g.unsent() == 0 && g.answered == g.answers, nil
	})
	if errors.Is(err, verbs.ErrCQOverrun) {
		s.report.Told = err.Error()
		return nil
	}
	return err
}

// end takes the connections down. What is still posted is flushed, so that every request has its end, unless there is no
// place for it.
func (s *story) end() error {
	g, c := s.gateway, s.clients
	failed := &verbs.QPAttr{State: ib.StateErr}
	for i := range g.conns {
		if err := g.conns[i].qp.Modify(failed, ib.QPAttrState); err != nil {
			return err
		}
		if err := c.list[i].qp.Modify(failed, ib.QPAttrState); err != nil {
			return err
		}
	}
	// The device counts what it could not post. The ledger is not told: it is compared in the end.
	var status verbs.CQStatus
	err := s.await("the end", nil, func() (_ bool, err error) {
		if err := g.consume(); err != nil && !errors.Is(err, verbs.ErrCQOverrun) {
			return false, err
		}
		if status, err = g.cq.Status(); err != nil {
			return false, err
		}
		return c.ledger.open == 0 && g.ledger.open == int(status.Overruns), nil
	})
	if err != nil {
		return err
	}
	return s.report.fill(s, &status)
}

func (s *story) close() {
	for i, d := range s.devices {
		if s.contexts[i] != nil {
			s.contexts[i].Close()
		}
		if d != nil {
			d.Close()
		}
	}
}
