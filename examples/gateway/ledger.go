package main

import (
	"fmt"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// ledger has an entry for every work request that was posted; a wr_id is its number. What has an end was polled. What
// has none when all is over was lost.
type ledger struct {
	entries []entry
	open    int // without an end
	success int
	flushed int
	failed  map[ib.WCStatus]int // otherwise
}

// entry is one work request.
type entry struct {
	conn  int // its connection
	kind  kind
	slot  int // of the connection's buffers
	ended bool
}

// kind is what a work request is for.
type kind uint8

const (
	recvRequest kind = iota // gateway
	writeBlock
	sendStatus
	sendRequest // client
	recvStatus
)

// next returns the wr_id of the request that is posted next. If posting fails nobody enters it, and it is used again.
func (l *ledger) next() uint64 { return uint64(len(l.entries)) }

// enter books the request that was just posted with the wr_id that next returned.
func (l *ledger) enter(conn int, k kind, slot int) {
	l.entries = append(l.entries, entry{conn: conn, kind: k, slot: slot})
	l.open++
}

// end books a completion. A wr_id that was never posted, or that completes again, is an error of the device.
func (l *ledger) end(wc *verbs.WC) (*entry, error) {
	if wc.WRID >= uint64(len(l.entries)) {
		return nil, fmt.Errorf("a completion of wr_id %d, which was never posted", wc.WRID)
	}
	e := &l.entries[wc.WRID]
	if e.ended {
		return nil, fmt.Errorf("wr_id %d completed twice", wc.WRID)
	}
	e.ended = true
	l.open--
	switch wc.Status {
	case ib.WCSuccess:
		l.success++
	case ib.WCWRFlushErr:
		l.flushed++
	default:
		if l.failed == nil {
			l.failed = map[ib.WCStatus]int{}
		}
		l.failed[wc.Status]++
	}
	return e, nil
}

// lost walks the entries and counts those without an end.
func (l *ledger) lost() (n int) {
	for i := range l.entries {
		if !l.entries[i].ended {
			n++
		}
	}
	return n
}

// account is what a ledger says.
type account struct {
	Posted      int            `json:"posted"`
	Completions int            `json:"completions"` // polled, but for the flushed ones
	Flushed     int            `json:"flushed"`
	Lost        int            `json:"lost"`
	Errors      map[string]int `json:"errors,omitempty"` // of the completions, by status
}

func (l *ledger) account() account {
	a := account{Posted: len(l.entries), Completions: l.success, Flushed: l.flushed, Lost: l.lost()}
	for s, n := range l.failed {
		if a.Errors == nil {
			a.Errors = map[string]int{}
		}
		a.Errors[s.Name()] = n
		a.Completions += n
	}
	return a
}
