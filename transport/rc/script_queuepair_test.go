package rc

import (
	"fmt"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/transport"
)

// Completions.

type completed struct {
	wrid   uint64
	status ib.WCStatus
	detail transport.Completion
}

func success(wrid uint64) completed { return completed{wrid: wrid} }

func failed(wrid uint64, s ib.WCStatus) completed { return completed{wrid: wrid, status: s} }

func flushed(wrids ...uint64) (c []completed) {
	for _, id := range wrids {
		c = append(c, failed(id, ib.WCWRFlushErr))
	}
	return c
}

// fakeQP is a queue pair on slices. It holds the engine to completing every request once and in order.
type fakeQP struct {
	t           testing.TB
	lkey        ib.LKey
	sends       []transport.Request
	recvs       []transport.Receive
	posted      uint32
	postedRecvs uint32
	malformed   map[uint32]bool // indexes of sends that make no sense
	ended       uint32          // sends that have ended, silent ones included
	endedRecvs  uint32
	silent      int
	sendDone    []completed
	recvDone    []completed
	states      []ib.QPState
	events      []ib.EventType
	overrun     bool // the next entry does not fit the CQ
	modify      func(ib.QPState)
	forget      bool // record nothing, for tests that count allocations
}

func (q *fakeQP) FetchSend(r *transport.Request) transport.Fetched {
	if len(q.sends) == 0 {
		return transport.Empty
	}
	from := &q.sends[0]
	list, data := append(r.SGE[:0], from.SGE...), append(r.Inline.B[:0], from.Inline.B...)
	*r = *from
	r.SGE, r.Inline.B = list, data
	q.sends = q.sends[1:]
	if q.malformed[r.Index] {
		return transport.Malformed
	}
	return transport.Ready
}

func (q *fakeQP) FetchRecv(r *transport.Receive) transport.Fetched {
	if len(q.recvs) == 0 {
		return transport.Empty
	}
	from := &q.recvs[0]
	list := append(r.SGE[:0], from.SGE...)
	*r = *from
	r.SGE = list
	q.recvs = q.recvs[1:]
	return transport.Ready
}

func (q *fakeQP) CompleteSend(r *transport.Request, c *transport.Completion) {
	if r.Index != q.ended {
		q.t.Errorf("send %d completed, but it is the turn of %d", r.Index, q.ended)
	}
	q.ended++
	switch {
	case q.forget:
	case c.Status == ib.WCSuccess && r.Flags&ib.SendSignaled == 0:
		q.silent++
	default:
		q.sendDone = append(q.sendDone, completed{r.WRID, c.Status, *c})
	}
	if q.overrun {
		q.overrun = false
		q.modify(ib.StateErr)
	}
}

func (q *fakeQP) CompleteRecv(r *transport.Receive, c *transport.Completion) {
	if r.Index != q.endedRecvs {
		q.t.Errorf("receive %d completed, but it is the turn of %d", r.Index, q.endedRecvs)
	}
	q.endedRecvs++
	if !q.forget {
		q.recvDone = append(q.recvDone, completed{r.WRID, c.Status, *c})
	}
}

func (q *fakeQP) SetState(s ib.QPState) { q.states = append(q.states, s) }
func (q *fakeQP) Event(e ib.EventType)  { q.events = append(q.events, e) }

func (q *fakeQP) compare(what string, got, want []completed) {
	q.t.Helper()
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].wrid == want[i].wrid && got[i].status == want[i].status
	}
	if !same {
		q.t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// vendor compares vendor_err of a send completion that was not yet compared.
func (q *fakeQP) vendor(i int, want transport.VendorErr) {
	q.t.Helper()
	if i >= len(q.sendDone) || q.sendDone[i].detail.VendorErr != want {
		q.t.Fatalf("send completions %v: vendor_err of number %d is not %#x", q.sendDone, i, want)
	}
}

func (c completed) String() string { return fmt.Sprintf("%d:%d", c.wrid, c.status) }
