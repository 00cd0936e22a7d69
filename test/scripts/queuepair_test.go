package scripts

import (
	"fmt"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// queuePair is the device's side of the engine, on slices. It holds the engine to completing everything once, in order.
type queuePair struct {
	t           testing.TB
	sends       []transport.Request
	recvs       []transport.Receive
	posted      uint32
	postedRecvs uint32
	ended       uint32
	endedRecvs  uint32
	silent      int // sends that ended without an entry
	malformed   map[uint64]bool
	shared      bool // the receives are a shared queue's
	broken      bool // which is in error
	overrun     func()
	sendDone    []completion
	recvDone    []completion
	states      []ib.QPState
	events      []ib.EventType
}

func (q *queuePair) FetchSend(r *transport.Request) transport.Fetched {
	if len(q.sends) == 0 {
		return transport.Empty
	}
	from := q.sends[0]
	q.sends = q.sends[1:]
	list, data := append(r.SGE[:0], from.SGE...), append(r.Inline.B[:0], from.Inline.B...)
	*r = from
	r.SGE, r.Inline.B = list, data
	if q.malformed[r.WRID] {
		return transport.Malformed
	}
	return transport.Ready
}

func (q *queuePair) FetchRecv(r *transport.Receive) transport.Fetched {
	switch {
	case q.broken:
		return transport.Broken
	case len(q.recvs) == 0, q.shared && len(q.states) > 0 && q.states[len(q.states)-1] == ib.StateErr:
		return transport.Empty
	}
	from := q.recvs[0]
	q.recvs = q.recvs[1:]
	list := append(r.SGE[:0], from.SGE...)
	*r = from
	r.SGE = list
	if q.malformed[r.WRID] {
		return transport.Malformed
	}
	return transport.Ready
}

func (q *queuePair) CompleteSend(r *transport.Request, c *transport.Completion) {
	if r.Index != q.ended {
		q.t.Errorf("send %d completed, but it is the turn of %d", r.Index+1, q.ended+1)
	}
	q.ended++
	if c.Status == ib.WCSuccess && r.Flags&ib.SendSignaled == 0 {
		q.silent++
		return
	}
	q.sendDone = append(q.sendDone, completion{r.WRID, *c, true})
	q.full()
}

func (q *queuePair) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if r.Index != q.endedRecvs {
		q.t.Errorf("receive %d completed, but it is the turn of %d", r.Index, q.endedRecvs)
	}
	q.endedRecvs++
	q.recvDone = append(q.recvDone, completion{r.WRID, *c, true})
	q.full()
}

// full overruns the CQ, if the script says so.
func (q *queuePair) full() {
	if f := q.overrun; f != nil {
		q.overrun = nil
		f()
	}
}

func (q *queuePair) SetState(st ib.QPState) { q.states = append(q.states, st) }
func (q *queuePair) Event(e ib.EventType)   { q.events = append(q.events, e) }

// completion is one that came, or is wanted. Of sends wr_id and status are compared; with details everything is.
type completion struct {
	wrid uint64
	transport.Completion
	details bool
}

func success(wrids ...uint64) completion {
	return completion{wrid: wrids[0]}
}

func failure(wrid uint64, st ib.WCStatus) completion {
	return completion{wrid: wrid, Completion: transport.Completion{Status: st}}
}

// flushed are requests that ended with the flush error, in their order.
func flushed(wrids ...uint64) (list []completion) {
	for _, id := range wrids {
		list = append(list, failure(id, ib.WCWRFlushErr))
	}
	return list
}

// because adds the vendor error, for those failures that a status does not tell apart.
func (c completion) because(v transport.VendorErr) completion {
	c.VendorErr, c.details = v, true
	return c
}

// as adds what was done and how many bytes it took.
func (c completion) as(op ib.WCOpcode, bytes uint32) completion {
	c.Opcode, c.ByteLen, c.details = op, bytes, true
	return c
}

func received(wrid uint64, bytes uint32) completion {
	c := success(wrid).as(ib.WCRecv, bytes)
	c.SrcQP = there
	return c
}

func writtenImm(wrid uint64, bytes, imm uint32) completion {
	c := received(wrid, bytes).imm(imm)
	c.Opcode = ib.WCRecvRDMAWithImm
	return c
}

func (c completion) imm(v uint32) completion {
	c.Flags, c.Imm = ib.WCWithImm, v
	return c
}

func (c completion) invalidated(k ib.RKey) completion {
	c.Flags, c.Imm = ib.WCWithInv, uint32(k)
	return c
}

func (c completion) solicited() completion {
	c.Solicited = true
	return c
}

func (c completion) String() string {
	s := fmt.Sprintf("%d: %v", c.wrid, c.Status)
	if c.details {
		s += fmt.Sprintf(" %+v", c.Completion)
	}
	return s
}

func (s *script) compare(what string, got *[]completion, want []completion) {
	s.t.Helper()
	equal := len(*got) == len(want)
	for i := 0; equal && i < len(want); i++ {
		g := (*got)[i]
		equal = g.wrid == want[i].wrid && g.Status == want[i].Status && (!want[i].details || g.Completion == want[i].Completion)
	}
	if !equal {
		s.t.Fatalf("%s:\n got %v\nwant %v", what, *got, want)
	}
	*got = nil
}
