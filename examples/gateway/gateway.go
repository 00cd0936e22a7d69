package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// blocks is how many blocks the disks have.
const blocks = 64

// block is what the disks have under a number.
func block(n int) []byte {
	b := make([]byte, blockSize)
	for i := range b {
		b[i] = byte(n*7 + i)
	}
	return b
}

// gateway is the server: queue pairs that share a completion queue, a consumer that polls it, and disks that answer.
// In life consumer and disks are threads; here the story gives each its turn, so that every run is the same.
type gateway struct {
	ctx    *verbs.Context
	cq     *verbs.CQ
	conns  []connection
	mr     *verbs.MR
	store  *verbs.MR
	ledger ledger
	wc     []verbs.WC
	events events

	repost bool // receives are posted again when their completion was polled
	// reclaimPoll says when a slot of a send queue is free again: when its completion was polled, as on hardware, or
	// already when the peer has acknowledged.
	reclaimPoll bool

	requests int // that the consumer has taken
	answers  int // sends posted
	answered int // of them, completions polled
}

// connection is the gateway's end of one.
type connection struct {
	qp     *verbs.QP
	end    verbs.Endpoint
	mem    int            // its receive buffers in the memory of all
	outbox []verbs.SendWR // what the disks want to send, in order
	kinds  []kind
	sent   int // of the outbox
	held   int // sends posted whose completion was not polled
}

// events are the asynchronous events that came.
type events struct {
	cqErr, qpFatal atomic.Int64
}

func newGateway(ctx *verbs.Context, c *config) (*gateway, error) {
	g := &gateway{
		ctx: ctx, conns: make([]connection, c.clients), wc: make([]verbs.WC, 256),
		repost: c.repost, reclaimPoll: c.reclaim == "poll",
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	if g.cq, err = ctx.CreateCQ(c.cq); err != nil {
		return nil, err
	}
	perConn := c.rq * requestSize
	buf, err := pd.AllocBuffer(len(g.conns) * perConn)
	if err != nil {
		return nil, err
	}
	if g.mr, err = pd.RegMR(buf.Bytes(), ib.AccessLocalWrite); err != nil {
		return nil, err
	}
	if buf, err = pd.AllocBuffer(blocks * blockSize); err != nil {
		return nil, err
	}
	for n := range blocks {
		copy(buf.Bytes()[n*blockSize:], block(n))
	}
	if g.store, err = pd.RegMR(buf.Bytes(), 0); err != nil { // read only
		return nil, err
	}
	depth := verbs.QPCap{
		MaxSendWR: uint32(c.sq), MaxRecvWR: uint32(c.rq), MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: statusSize,
	}
	for i := range g.conns {
		v := &g.conns[i]
		v.mem = i * perConn
		if v.qp, v.end, err = newQP(ctx, pd, g.cq, depth); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// listen counts asynchronous events until ctx ends.
func (g *gateway) listen(ctx context.Context) {
	for {
		e, err := g.ctx.AsyncEvent(ctx)
		if err != nil {
			return
		}
		switch e.Type {
		case ib.EventCQErr:
			g.events.cqErr.Add(1)
		case ib.EventQPFatal:
			g.events.qpFatal.Add(1)
		}
	}
}

// overran reports whether the completion queue did.
func (g *gateway) overran() bool { return g.events.cqErr.Load() > 0 }

// receive posts one receive buffer of a connection.
func (g *gateway) receive(conn, slot int) error {
	v := &g.conns[conn]
	at := v.mem + slot*requestSize
	err := v.qp.PostRecv(verbs.RecvWR{WRID: g.ledger.next(), SGList: []verbs.SGE{g.mr.SGE(at, requestSize)}})
	if err != nil {
		return fmt.Errorf("gateway: connection %d: %w", conn, err)
	}
	g.ledger.enter(conn, recvRequest, slot)
	return nil
}

// consume is the consumer: it polls until there is nothing, hands requests to the disks, and posts their receives again.
// The error is verbs.ErrCQOverrun once everything that fit was taken.
func (g *gateway) consume() error {
	for {
		n, err := g.cq.Poll(g.wc)
		if n == 0 || err != nil {
			return err
		}
		for i := range g.wc[:n] {
			if err := g.complete(&g.wc[i]); err != nil {
				return err
			}
		}
	}
}

func (g *gateway) complete(wc *verbs.WC) error {
	e, err := g.ledger.end(wc)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	if e.kind != recvRequest {
		g.conns[e.conn].held--
		g.answered++
		return nil
	}
	if wc.Status != ib.WCSuccess {
		return nil // flushed; the ledger has it
	}
	g.requests++
	conn, slot := e.conn, e.slot // posting again moves the ledger
	g.order(conn, slot)
	if !g.repost || g.overran() { // nothing is to be had from connections that have failed
		return nil
	}
	return g.receive(conn, slot)
}

// order reads a request and gives it to the disks, which have the answer at once and will post it when they can: the
// block, and behind it the status.
func (g *gateway) order(conn, slot int) {
	v := &g.conns[conn]
	at := v.mem + slot*requestSize
	request := g.mr.Bytes()[at : at+requestSize]
	n := int(binary.BigEndian.Uint64(request[0:]) % blocks)
	status := append([]byte(nil), request[24:24+statusSize]...)
	v.outbox = append(v.outbox, verbs.SendWR{
		Opcode: ib.WRRDMAWrite, SGList: []verbs.SGE{g.store.SGE(n*blockSize, blockSize)},
		RemoteAddr: binary.BigEndian.Uint64(request[8:]), RKey: ib.RKey(binary.BigEndian.Uint64(request[16:])),
	}, verbs.SendWR{
		Opcode: ib.WRSend, Flags: ib.SendInline, InlineData: status,
	})
	v.kinds = append(v.kinds, writeBlock, sendStatus)
}

// answer is the disks: they post what they have for every connection, as far as its send queue takes it. They do not
// wait for the consumer, and do not hear of completions.
func (g *gateway) answer() error {
	for i := range g.conns {
		v := &g.conns[i]
		for v.sent < len(v.outbox) {
			wr := v.outbox[v.sent]
			wr.WRID = g.ledger.next()
			err := v.qp.PostSend(wr)
			if errors.Is(err, syscall.ENOMEM) {
				break // the send queue is full: later
			}
			if err != nil {
				return fmt.Errorf("gateway: connection %d: %w", i, err)
			}
			g.ledger.enter(i, v.kinds[v.sent], 0)
			v.sent++
			v.held++
			g.answers++
		}
	}
	return nil
}

// stuck reports whether the disks can post nothing more unless somebody polls.
func (g *gateway) stuck() bool {
	for i := range g.conns {
		v := &g.conns[i]
		full := g.reclaimPoll && v.held == int(v.qp.Cap().MaxSendWR)
		if v.sent < len(v.outbox) && !full {
			return false
		}
	}
	return true
}

// unsent returns what the disks have not posted.
func (g *gateway) unsent() (n int) {
	for i := range g.conns {
		n += len(g.conns[i].outbox) - g.conns[i].sent
	}
	return n
}

// waiting returns how many completions wait, without taking any.
func (g *gateway) waiting() (int, error) { return g.cq.Peek(g.cq.Capacity()) }
