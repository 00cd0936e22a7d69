package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// told runs the program and returns what it prints with -o json.
func told(t *testing.T, args string) (r report) {
	t.Helper()
	var out, help bytes.Buffer
	if err := run(append(strings.Fields(args), "-o", "json"), &out, &help); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, &help)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, &out)
	}
	// Every wr_id is accounted for, on both sides.
	for side, a := range map[string]account{"gateway": r.account, "clients": r.Clients} {
		if a.Posted == 0 || a.Completions+a.Flushed+a.Lost != a.Posted {
			t.Errorf("%s: %s: %d completed, %d flushed and %d lost are not the %d posted", args, side, a.Completions, a.Flushed, a.Lost, a.Posted)
		}
	}
	if r.Clients.Lost != 0 {
		t.Errorf("%s: the clients, whose queue is deep enough, lost %d", args, r.Clients.Lost)
	}
	if (r.Lost > 0) != r.Overrun {
		t.Errorf("%s: overrun %v, %d lost", args, r.Overrun, r.Lost)
	}
	return r
}

// The story that practitioners tell, in its figures. 100 clients, 64 sends and 64 receives each.
func TestDepths(t *testing.T) {
	const n, sq, rq = 100, 64, 64
	for _, c := range []struct {
		args      string
		capacity  int
		highWater int
		lost      int // 0: it holds
		advice    string
	}{
		// Each client has 64 sends and 64 receives waiting, and no more.
		{"-cq 12800", 12800, n * (sq + rq), 0, "fits"},
		{"-cq 12736", 12736, 12736, 64, "too small, take 12800"},
		{"-cq 0", 12800, n * (sq + rq), 0, "fits"},
		{"-cq 25600", 25600, n * (sq + rq), 0, "too large, take 12800"},
		// Each client has two loads of acknowledged sends and 64 receives waiting.
		{"-reclaim completion -cq 12800", 12800, 12800, 6400, "too small, take 19200"},
		{"-reclaim completion -cq 16000", 16000, 16000, 3200, "too small, take 19200"},
		{"-reclaim completion -cq 19136", 19136, 19136, 64, "too small, take 19200"},
		{"-reclaim completion -cq 19200", 19200, n * (2*sq + rq), 0, "too small, take 24000"},
		{"-reclaim completion -cq 20000", 20032, n * (2*sq + rq), 0, "fits"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := told(t, fmt.Sprintf("-clients %d -sq %d -rq %d %s", n, sq, rq, c.args))
			if r.Capacity != c.capacity || r.HighWater != c.highWater || r.Overrun != (c.lost > 0) || r.Lost != c.lost {
				t.Errorf("capacity %d, high-water mark %d, overrun %v, %d lost; want %d, %d, %v, %d",
					r.Capacity, r.HighWater, r.Overrun, r.Lost, c.capacity, c.highWater, c.lost > 0, c.lost)
			}
			if !strings.HasPrefix(r.Advice, c.advice) {
				t.Errorf("advice %q, want %q", r.Advice, c.advice)
			}
			if c.lost > 0 {
				if r.Events.CQErr != 1 || r.Events.QPFatal != n || r.Told == "" {
					t.Errorf("%d CQ_ERR, %d QP_FATAL, polls said %q", r.Events.CQErr, r.Events.QPFatal, r.Told)
				}
				return
			}
			// Two loads from each client were served, and the last receives flushed.
			if r.Served != 2*n*rq || r.Completions != 2*n*rq*3 || r.Flushed != n*rq || r.Events.CQErr+r.Events.QPFatal != 0 {
				t.Errorf("%d served, %d completed, %d flushed, events %+v", r.Served, r.Completions, r.Flushed, r.Events)
			}
		})
	}
}

// The same figures each time: the pause is a state.
func TestRepeats(t *testing.T) {
	for _, args := range []string{"-clients 7 -sq 16 -rq 8", "-clients 7 -sq 16 -rq 8 -reclaim completion -cq 128"} {
		first := told(t, args)
		for range 5 {
			if again := told(t, args); again.HighWater != first.HighWater || again.account.Posted != first.account.Posted ||
				again.Lost != first.Lost || again.Completions != first.Completions || again.Advice != first.Advice {
				t.Errorf("%s: %+v\nafter %+v", args, again, first)
			}
		}
	}
}

// A consumer that forgets to post its receives again: the clients' second load is answered by RNR NAKs, each connection
// gives up after its retries, and all that the gateway has of it is a counter.
func TestForgets(t *testing.T) {
	const n, depth = 10, 16
	for _, reclaim := range []string{"poll", "completion"} {
		for _, retries := range []int{1, 3} {
			r := told(t, fmt.Sprintf("-clients %d -sq %d -rq %d -repost=false -rnr-retry %d -reclaim %s", n, depth, depth, retries, reclaim))
			want := uint64(n * (retries + 1))
			// On a machine that stalls a client may ask after its packet once more; that NAK it does not count, since it waits
			// already.
			if c := r.Counters; c.OutOfBuffer < want || c.RNRNakRetryErr != want || c.RNRRetryExceededErr != n {
				t.Errorf("%s, %d retries: counters %+v, want %d RNR NAKs", reclaim, retries, c, want)
			}
			if len(r.Clients.Errors) != 1 || r.Clients.Errors[ib.WCRNRRetryExcErr.Name()] != n || r.Clients.Flushed < n*(depth-1) {
				t.Errorf("%s, %d retries: the clients see %v, and %d flushed", reclaim, retries, r.Clients.Errors, r.Clients.Flushed)
			}
			if r.Events.CQErr+r.Events.QPFatal != 0 {
				t.Errorf("%s, %d retries: events %+v", reclaim, retries, r.Events)
			}
			// The answers to the first load: half of them had a place before the clients were gone, or all.
			served := n * depth / 2
			if reclaim == "completion" {
				served = n * depth
			}
			if r.Served != served {
				t.Errorf("%s, %d retries: %d served, want %d", reclaim, retries, r.Served, served)
			}
			if got := r.Errors[ib.WCRetryExcErr.Name()]; (reclaim == "poll") != (got == n) {
				t.Errorf("%s, %d retries: the gateway sees %v", reclaim, retries, r.Errors)
			}
		}
	}
}

// Queues that are far too small, or hardly anything: whatever happens, everything is accounted for.
func TestCorners(t *testing.T) {
	for _, args := range []string{
		"-clients 1 -sq 1 -rq 1", "-clients 1 -sq 1 -rq 1 -reclaim completion", "-clients 3 -sq 5 -rq 100 -cq 1",
		"-clients 30 -sq 64 -rq 4 -cq 64", "-clients 30 -sq 64 -rq 4 -cq 64 -repost=false -reclaim completion",
	} {
		told(t, args)
	}
}

func TestText(t *testing.T) {
	for args, want := range map[string]string{
		"-clients 4":                                  "fits: no more than 512 requests",
		"-clients 4 -cq 448":                          "OVERRUN. 448 completions fit",
		"-clients 4 -reclaim completion":              "OVERRUN. 512 completions fit",
		"-clients 4 -repost=false":                    "16 RNR NAKs came back, and after 3 retries 4 connections failed",
		"-clients 4 -reclaim completion -cq 1000":     "768 completions wait",
		"-clients 4 -rnr-retry 1 -repost=false -cq 0": "4 times IBV_WC_RNR_RETRY_EXC_ERR",
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(args), &out, io.Discard); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %q in\n%s", args, want, &out)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range []string{
		"-clients 0", "-sq 0", "-rq -1", "-sq 4096", "-reclaim never", "-rnr-retry 7", "-rnr-retry 0", "-o xml", "-cq -5", "more", "-x",
	} {
		if err := run(strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s is taken", args)
		}
	}
}

// The ledger is no rubber stamp: what completes twice, or was never posted, is an error, and what has no end is lost.
func TestLedger(t *testing.T) {
	var l ledger
	for i := range 4 {
		if l.next() != uint64(i) {
			t.Fatalf("wr_id %d, want %d", l.next(), i)
		}
		l.enter(0, sendRequest, i)
	}
	end := func(id uint64, s ib.WCStatus) error { _, err := l.end(&verbs.WC{WRID: id, Status: s}); return err }
	for id, s := range map[uint64]ib.WCStatus{0: ib.WCSuccess, 1: ib.WCWRFlushErr, 3: ib.WCRetryExcErr} {
		if err := end(id, s); err != nil {
			t.Fatal(err)
		}
	}
	if end(0, ib.WCSuccess) == nil || end(4, ib.WCSuccess) == nil || end(1<<63, ib.WCSuccess) == nil {
		t.Error("a completion too many is taken")
	}
	a := l.account()
	if a.Posted != 4 || a.Completions != 2 || a.Flushed != 1 || a.Lost != 1 || a.Errors["IBV_WC_RETRY_EXC_ERR"] != 1 {
		t.Errorf("%+v", a)
	}
}
