package main

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// Sizes of what travels.
const (
	requestSize = 32  // block number, address and key of where it is to go, number of the request
	blockSize   = 256 // of the gateway's store
	statusSize  = 8   // number of the request
	slotSize    = requestSize + blockSize + statusSize
)

// clients are all clients. They share a completion queue too, one that has room for everything they can post.
type clients struct {
	cq     *verbs.CQ
	list   []client
	mr     *verbs.MR
	ledger ledger
	wc     []verbs.WC
	depth  int // requests in a load
	sent   int // requests
	ended  int // of them: taken by the gateway's device, or failed
	acked  int // taken
	served int // blocks that arrived, whole, and their statuses
}

// client is one of them. It has buffers for two loads.
type client struct {
	qp  *verbs.QP
	end verbs.Endpoint
	mem int // its buffers in the memory of all
	n   int // requests sent
}

// newClients makes n clients that each send loads of so many requests.
func newClients(ctx *verbs.Context, n, depth int) (*clients, error) {
	c := &clients{list: make([]client, n), wc: make([]verbs.WC, 256), depth: depth}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	perClient := verbs.QPCap{MaxSendWR: uint32(depth), MaxRecvWR: uint32(2 * depth), MaxSendSGE: 1, MaxRecvSGE: 1}
	if c.cq, err = ctx.CreateCQ(n * 3 * depth); err != nil {
		return nil, err
	}
	buf, err := pd.AllocBuffer(n * 2 * depth * slotSize)
	if err != nil {
		return nil, err
	}
	if c.mr, err = pd.RegMR(buf.Bytes(), ib.AccessLocalWrite|ib.AccessRemoteWrite); err != nil {
		return nil, err
	}
	for i := range c.list {
		v := &c.list[i]
		v.mem = i * 2 * depth * slotSize
		v.qp, v.end, err = newQP(ctx, pd, c.cq, perClient)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newQP makes a queue pair, every request of which has a completion in q, and says what its peer has to know.
func newQP(ctx *verbs.Context, pd *verbs.PD, q *verbs.CQ, depth verbs.QPCap) (*verbs.QP, verbs.Endpoint, error) {
	qp, err := pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: q, RecvCQ: q, Cap: depth, SigAll: true})
	if err != nil {
		return nil, verbs.Endpoint{}, err
	}
	gid, err := ctx.QueryGID(1, 0)
	return qp, verbs.Endpoint{QPN: qp.QPN(), PSN: verbs.RandomPSN(), GID: gid.GID}, err
}

// send sends a load of requests from client i. The receive for a request's status is posted before the request is.
func (c *clients) send(i int) error {
	v := &c.list[i]
	for range c.depth {
		slot := v.n
		v.n++
		at := v.mem + slot*slotSize // request, block, status
		err := v.qp.PostRecv(verbs.RecvWR{
			WRID: c.ledger.next(), SGList: []verbs.SGE{c.mr.SGE(at+requestSize+blockSize, statusSize)},
		})
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		c.ledger.enter(i, recvStatus, slot)

		request := c.mr.Bytes()[at : at+requestSize]
		binary.BigEndian.PutUint64(request[0:], uint64(blockOf(i, slot)))
		binary.BigEndian.PutUint64(request[8:], c.mr.Addr()+uint64(at+requestSize))
		binary.BigEndian.PutUint64(request[16:], uint64(c.mr.RKey()))
		binary.BigEndian.PutUint64(request[24:], uint64(slot))
		err = v.qp.PostSend(verbs.SendWR{
			WRID: c.ledger.next(), Opcode: ib.WRSend, SGList: []verbs.SGE{c.mr.SGE(at, requestSize)},
		})
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		c.ledger.enter(i, sendRequest, slot)
		c.sent++
	}
	return nil
}

// blockOf is the block that a client wants by its n-th request.
func blockOf(client, n int) int { return (client*31 + n) % blocks }

// poll takes the clients' completions. Clients never pause.
func (c *clients) poll() error {
	for {
		n, err := c.cq.Poll(c.wc)
		if n == 0 || err != nil {
			return err
		}
		for i := range c.wc[:n] {
			e, err := c.ledger.end(&c.wc[i])
			if err != nil {
				return fmt.Errorf("clients: %w", err)
			}
			if e.kind == sendRequest {
				c.ended++
			}
			if c.wc[i].Status != ib.WCSuccess {
				continue // the ledger has it
			}
			switch e.kind {
			case sendRequest:
				c.acked++
			case recvStatus:
				if err := c.check(e); err != nil {
					return err
				}
				c.served++
			}
		}
	}
}

// check compares the block that came for a request with what is on the gateway's disks. The status of a request arrives
// behind its block, and requests are answered in order, so the n-th status is that of the n-th request.
func (c *clients) check(e *entry) error {
	at := c.list[e.conn].mem + e.slot*slotSize
	mem := c.mr.Bytes()[at : at+slotSize]
	if id := binary.BigEndian.Uint64(mem[requestSize+blockSize:]); id != uint64(e.slot) {
		return fmt.Errorf("client %d: the status of request %d says %d", e.conn, e.slot, id)
	}
	if !bytes.Equal(mem[requestSize:requestSize+blockSize], block(blockOf(e.conn, e.slot))) {
		return fmt.Errorf("client %d: the block of request %d is not what the disk has", e.conn, e.slot)
	}
	return nil
}

// sendsOpen returns how many requests have neither been taken nor refused.
func (c *clients) sendsOpen() int { return c.sent - c.ended }
