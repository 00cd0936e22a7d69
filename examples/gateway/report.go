package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// report is what came out.
type report struct {
	Capacity  int    `json:"capacity"`   // of the gateway's completion queue
	HighWater int    `json:"high_water"` // the most completions that ever waited in it
	Overrun   bool   `json:"overrun"`
	account          // of the gateway
	Advice    string `json:"advice"`

	Clients  account  `json:"clients"`
	Served   int      `json:"served"` // requests whose block and status reached their client, byte for byte
	Counters counters `json:"counters"`
	Events   struct {
		CQErr   int64 `json:"CQ_ERR"`
		QPFatal int64 `json:"QP_FATAL"`
	} `json:"events"`

	Quiet    int    `json:"quiet"`    // requests taken before the pause
	Answered int    `json:"answered"` // sends posted during the pause
	Unsent   int    `json:"unsent"`   // sends for which the send queues had no place then
	Peak     int    `json:"peak"`     // completions that waited when it ended
	Told     string `json:"told,omitempty"`
	advice   cq.Advice
}

// counters are the devices' own, under the names that Linux drivers give them.
type counters struct {
	OutOfBuffer         uint64 `json:"gateway.out_of_buffer"`          // RNR NAKs that the gateway's device sent
	RNRNakRetryErr      uint64 `json:"clients.rnr_nak_retry_err"`      // RNR NAKs that the clients' received
	RNRRetryExceededErr uint64 `json:"clients.rnr_retry_exceeded_err"` // connections that gave up
}

func (r *report) fill(s *story, status *verbs.CQStatus) error {
	g := s.gateway
	r.HighWater, r.Overrun = status.HighWater, status.Overrun
	r.account, r.Clients, r.Served = g.ledger.account(), s.clients.ledger.account(), s.clients.served
	r.Events.CQErr, r.Events.QPFatal = g.events.cqErr.Load(), g.events.qpFatal.Load()
	r.advice = cq.Advise(cq.Evidence{
		Capacity: uint64(status.Capacity), HighWater: uint64(status.HighWater), Overruns: status.Overruns,
		Demand: uint64(status.Demand), ReclaimOnCompletion: status.ReclaimOnCompletion,
	})
	r.Advice = r.advice.String()
	for i, ctx := range s.contexts {
		list, err := ctx.QueryCounters()
		if err != nil {
			return err
		}
		for _, c := range list {
			switch {
			case i == 0 && c.Name == "out_of_buffer":
				r.Counters.OutOfBuffer = c.Value
			case i == 1 && c.Name == "rnr_nak_retry_err":
				r.Counters.RNRNakRetryErr = c.Value
			case i == 1 && c.Name == "rnr_retry_exceeded_err":
				r.Counters.RNRRetryExceededErr = c.Value
			}
		}
	}
	return nil
}

func (r *report) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// text tells the story.
func (r *report) text(out io.Writer, c *config) {
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("%d clients, each with %d sends and %d receives at the gateway, and one completion queue of %d entries.",
		c.clients, c.sq, c.rq, r.Capacity)
	p("quiet   The clients send %d requests. The consumer takes them and gives them to the disks.", r.Quiet)
	if c.repost {
		p("        It posts their receives again.")
	} else {
		p("        It forgets to post their receives again.")
	}
	p("pause   The consumer stops polling. The disks answer each request with a WRITE and a SEND: they post %d sends,", r.Answered)
	switch {
	case r.Unsent > 0:
		p("        and then find the send queues full (ENOMEM) with %d to go: a slot comes back when its completion is polled.", r.Unsent)
	case c.reclaim == "completion":
		p("        which is all of them: a slot comes back when the client acknowledges, polled or not.")
	default:
		p("        which is all of them.")
	}
	switch {
	case r.Overrun:
		p("peak    OVERRUN. %d completions fit; CQ_ERR, and QP_FATAL for %d queue pairs: every connection is lost.", r.Capacity, r.Events.QPFatal)
	case !c.repost:
		p("peak    The clients send again and find no receives: %d RNR NAKs came back, and after %d retries %d connections failed.",
			r.Counters.RNRNakRetryErr, c.retries, r.Counters.RNRRetryExceededErr)
		p("        What the clients see: %s.", statuses(r.Clients))
		p("        What the gateway sees: no completion and no event; only its device counts out_of_buffer, %d.", r.Counters.OutOfBuffer)
	default:
		p("peak    The clients send %d requests more. %d completions wait.", c.clients*c.rq, r.Peak)
	}
	switch {
	case r.Overrun:
		p("after   The consumer takes the %d that fit, and is told: %s.", r.Capacity, r.Told)
	case !c.repost:
		p("after   The consumer polls again. %d blocks had arrived whole; %d sends were still to go, to clients that are gone:", r.Served, r.Unsent)
		p("        %s.", statuses(r.account))
	default:
		p("after   The consumer polls again, and everything is answered: %d blocks arrived whole.", r.Served)
	}
	p("")
	p("%d work requests were posted: %d completed, %d were flushed, %d were lost. High-water mark %d of %d.",
		r.Posted, r.Completions, r.Flushed, r.Lost, r.HighWater, r.Capacity)
	p("Advice: %s.", r.Advice)
}

// statuses counts the completions that were no success.
func statuses(a account) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(a.Errors)) {
		list = append(list, fmt.Sprintf("%d times %s", a.Errors[name], name))
	}
	return strings.Join(append(list, fmt.Sprintf("%d times %s", a.Flushed, ib.WCWRFlushErr.Name())), ", ")
}
