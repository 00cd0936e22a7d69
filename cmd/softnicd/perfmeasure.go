package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// perfMeasure is the active side: it connects, runs the plans one after the other and reports each.
func perfMeasure(ctx context.Context, plans []perfPlan, h perfHost, meet func(context.Context) (*perfLink, error), output string, out, screen io.Writer) error {
	link, err := meet(ctx)
	if err != nil {
		return err
	}
	defer link.close()
	w := newPerfWriter(output, out, &plans[0])
	for i := range plans {
		if err := link.send(perfMessage{Kind: kindPlan, Plan: &plans[i]}); err != nil {
			return link.because(err)
		}
		r, err := perfOne(ctx, plans[i], h, link, true, screen)
		if err != nil {
			return err
		}
		if err := w.write(r); err != nil {
			return err
		}
	}
	return nil
}

// perfServe is the passive side: it does what the active one says, then ends.
func perfServe(ctx context.Context, o *perfOptions, screen io.Writer) error {
	network, address := "tcp", fmt.Sprintf(":%d", o.port)
	if o.exchange != "" {
		network, address = "unix", o.exchange
	} else {
		fmt.Fprintf(screen, "waiting for a peer on TCP port %d\n", o.port)
	}
	link, err := acceptPerf(ctx, network, address)
	if err != nil {
		return err
	}
	defer link.close()
	for more := true; more; {
		m, err := link.expect(ctx, kindPlan)
		if err != nil {
			return err
		}
		if m.Plan == nil {
			return errors.New("the peer sent no plan")
		}
		if err := m.Plan.check(); err != nil {
			err = fmt.Errorf("the peer asks for what cannot be done: %w", err)
			link.fail(err)
			return err
		}
		if o.test != "" && o.test != m.Plan.Test {
			err := fmt.Errorf("the server was started for %s, the client for %s", o.test, m.Plan.Test)
			link.fail(err)
			return usage(err)
		}
		if _, err := perfOne(ctx, *m.Plan, perfHost{device: o.device, socket: o.socket}, link, false, nil); err != nil {
			return err
		}
		more = m.Plan.More
	}
	return nil
}

// because prefers what the peer said to what became of writing to it.
func (l *perfLink) because(err error) error {
	select {
	case <-time.After(100 * time.Millisecond):
	case _, ok := <-l.in:
		if !ok && l.err != nil && !errors.Is(l.err, io.EOF) {
			return l.err
		}
	}
	return err
}

// perfOne is one measurement, on either side. Only the client's result means something.
func perfOne(ctx context.Context, plan perfPlan, h perfHost, link *perfLink, client bool, screen io.Writer) (r *perfResult, err error) {
	defer func() {
		if err != nil {
			link.fail(err)
		}
	}()
	p, err := openPeer(plan, h, link)
	if err != nil {
		return nil, err
	}
	defer p.close()
	p.lay()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	if client {
		p.countDaemonOnce()
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	shown := showProgress(screen, &plan)
	defer shown.stop()
	var share perfShare
	var latency *histogram
	if plan.definition.latency {
		g := &pingPong{perfPeer: p, client: client, tell: shown}
		share, err = g.run()
		latency = &g.latency
	} else {
		s := &stream{perfPeer: p, sending: client || plan.Both, receiving: plan.receives() && (!client || plan.Both), tell: shown}
		share, err = s.run()
		latency = &s.latency
	}
	if err == nil {
		err = p.untilPeerDone(ctx)
	}
	if err == nil {
		err = p.checkLeft()
	}
	if err != nil {
		return nil, err
	}
	both, err := p.settle(ctx, share)
	if err != nil {
		return nil, err
	}
	return newPerfResult(&plan, share, both, latency), nil
}

// untilPeerDone waits for the peer to have sent everything too.
func (p *perfPeer) untilPeerDone(ctx context.Context) error {
	select {
	case <-p.sleep.Done():
	case <-ctx.Done():
	case <-time.After(perfPatience):
		return errors.New("the peer does not end")
	}
	return p.interrupted()
}
