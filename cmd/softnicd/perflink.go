package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/verbs"
)

// perfLink is how the two sides talk out of band: JSON values on a stream. A goroutine reads, so that who polls a
// completion queue learns of the peer's end by looking at a word.
type perfLink struct {
	conn io.Closer
	enc  *json.Encoder
	in   chan perfMessage
	err  error // of the reader; valid after in is closed

	peerDone atomic.Bool
	peerSent []int64 // after peerDone: messages that the peer has sent, by queue pair
	broken   atomic.Bool
	onEnd    atomic.Pointer[func()] // called by the reader at the peer's end, or the link's
}

// perfMessage is what goes over the link: one of these.
type perfMessage struct {
	Kind  string     `json:"kind"`
	Plan  *perfPlan  `json:"plan,omitempty"`
	Side  *perfSide  `json:"side,omitempty"`
	Sent  []int64    `json:"sent,omitempty"`
	Share *perfShare `json:"share,omitempty"`
	Error string     `json:"error,omitempty"`
}

// Kinds of messages, in the order in which they come. All but the plan go both ways.
const (
	kindPlan  = "plan"
	kindSide  = "side"
	kindReady = "ready"
	kindDone  = "done" // everything is sent and acknowledged
	kindShare = "share"
	kindError = "error" // instead of any other
)

// perfSide is what a side tells about itself.
type perfSide struct {
	QPs []verbs.Endpoint `json:"qps"`
	// With XRC the targets and the numbers of their shared receive queues.
	Targets []verbs.Endpoint `json:"targets,omitempty"`
	SRQs    []uint32         `json:"srqs,omitempty"`
	Addr    uint64           `json:"addr"`
	RKey    ib.RKey          `json:"rkey"`
	Daemon  perfProcess      `json:"daemon"`
}

// perfShare is what a side has to say when it is over.
type perfShare struct {
	Sent        int64         `json:"sent"`
	Received    int64         `json:"received"` // by receive requests
	BytesPerS   float64       `json:"bytes_per_s"`
	Peak        float64       `json:"peak"` // bytes a second, in the best moment
	CPU         time.Duration `json:"cpu"`
	Events      uint64        `json:"events"`
	Completions uint64        `json:"completions"`
}

// perfPatience bounds every wait for the peer that is not the measurement itself.
const perfPatience = 30 * time.Second

func joinHostPort(host string, port uint16) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// dialPerf connects; until patience is over it tries again.
func dialPerf(ctx context.Context, network, address string, patience time.Duration) (*perfLink, error) {
	for end := time.Now().Add(patience); ; {
		c, err := (&net.Dialer{Timeout: perfPatience}).DialContext(ctx, network, address)
		if err == nil {
			return newPerfLink(c), nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("find the peer: %w (is `softnicd perf --server` running there?)", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// acceptPerf waits for one peer.
func acceptPerf(ctx context.Context, network, address string) (*perfLink, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, taken(err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	c, err := l.Accept()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return newPerfLink(c), nil
}

func newPerfLink(c net.Conn) *perfLink {
	// Of everything that comes before the measurement ends a side waits for at most two messages at a time.
	l := &perfLink{conn: c, enc: json.NewEncoder(c), in: make(chan perfMessage, 4)}
	go l.read(json.NewDecoder(c))
	return l
}

func (l *perfLink) read(d *json.Decoder) {
	defer close(l.in)
	for {
		var m perfMessage
		if err := d.Decode(&m); err != nil {
			l.err = err
			l.end(&l.broken)
			return
		}
		switch m.Kind {
		case kindDone:
			l.peerSent = m.Sent
			l.end(&l.peerDone)
			continue
		case kindError:
			l.err = fmt.Errorf("the peer says: %s", m.Error)
			l.end(&l.broken)
			return
		}
		l.in <- m
	}
}

// end sets what ends a measurement and wakes who sleeps in it.
func (l *perfLink) end(what *atomic.Bool) {
	what.Store(true)
	if f := l.onEnd.Load(); f != nil {
		(*f)()
	}
}

// begin forgets the end of the measurement before, and says whom to wake at the end of this one.
func (l *perfLink) begin(wake func()) {
	l.peerDone.Store(false)
	l.onEnd.Store(&wake)
	if l.broken.Load() {
		wake()
	}
}

func (l *perfLink) send(m perfMessage) error {
	if err := l.enc.Encode(m); err != nil {
		return fmt.Errorf("tell the peer: %w", err)
	}
	return nil
}

// expect waits for a message of a kind.
func (l *perfLink) expect(ctx context.Context, kind string) (perfMessage, error) {
	late := time.NewTimer(perfPatience)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return perfMessage{}, ctx.Err()
	case <-late.C:
		return perfMessage{}, fmt.Errorf("the peer did not send its %s within %v", kind, perfPatience)
	case m, ok := <-l.in:
		if !ok {
			return m, l.failure()
		}
		if m.Kind != kind {
			return m, fmt.Errorf("the peer sent its %s, its %s was due", m.Kind, kind)
		}
		return m, nil
	}
}

// barrier waits until both sides are there.
func (l *perfLink) barrier(ctx context.Context) error {
	if err := l.send(perfMessage{Kind: kindReady}); err != nil {
		return err
	}
	_, err := l.expect(ctx, kindReady)
	return err
}

// failure explains why the link is broken.
func (l *perfLink) failure() error {
	for range l.in {
		// What came before the end does not matter any more.
	}
	if l.err == nil || errors.Is(l.err, io.EOF) {
		return errors.New("the peer is gone")
	}
	return l.err
}

// fail tells the peer that this side gives up.
func (l *perfLink) fail(err error) {
	_ = l.send(perfMessage{Kind: kindError, Error: err.Error()})
}

func (l *perfLink) close() { l.conn.Close() }
