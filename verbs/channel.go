package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
)

// CompChannel is a completion channel: where completion queues that were armed tell that something came. One channel
// serves any number of queues.
type CompChannel struct {
	ctx    *Context
	handle uint32
	socket *eventSocket

	mu      sync.Mutex
	ready   []*CQ         // queues with events that were read and not taken, oldest first
	reading bool          // one goroutine reads the socket, for all that wait
	waiting int           // goroutines that wait for it
	wake    chan struct{} // closed when they should look again
	closed  bool
}

// CreateCompChannel makes a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	var r ctl.HandleReply
	out, err := c.conn.Call(ctl.OpCreateChannel, &ctl.CreateChannel{}, &r)
	if err != nil {
		return nil, err
	}
	if len(out) != 1 {
		closeAttachments(out)
		return nil, fmt.Errorf("create comp channel: the daemon sent %d descriptors: %w", len(out), syscall.EPROTO)
	}
	ch := &CompChannel{ctx: c, handle: r.Handle, wake: make(chan struct{})}
	if ch.socket, err = newEventSocket("completion channel", out[0].FD); err != nil {
		unix.Close(out[0].FD)
		return nil, err
	}
	c.mu.Lock()
	c.channels[ch] = struct{}{}
	c.mu.Unlock()
	return ch, nil
}

// FD returns the descriptor that is readable when an event waits, for a loop that waits for other things too. Only
// GetEvent reads it; an event may wait in the channel after it was read for somebody else, so such a loop calls GetEvent
// with a context that has ended until that says so.
func (ch *CompChannel) FD() int { return ch.socket.fd }

// GetEvent waits for the next completion event and returns its queue. Every event that was got is to be acknowledged with
// CQ.AckEvents, sooner or later, or the queue cannot be closed. The event tells that something was there: take it with
// CQ.Poll, which may find nothing, after arming the queue again.
//
// With a context that has ended GetEvent returns an event that is there already, and otherwise the context's error.
func (ch *CompChannel) GetEvent(ctx context.Context) (*CQ, error) {
	q, err := ch.get(ctx, nil, true)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Close destroys the channel. EBUSY while completion queues use it.
func (ch *CompChannel) Close() error {
	if err := ch.ctx.call(ctl.OpDestroyChannel, &ctl.Handle{Handle: ch.handle}, &ctl.Empty{}); err != nil {
		return err
	}
	ch.ctx.mu.Lock()
	delete(ch.ctx.channels, ch)
	ch.ctx.mu.Unlock()
	ch.shut()
	return nil
}

func (ch *CompChannel) shut() {
	ch.mu.Lock()
	ch.closed = true
	ch.broadcast()
	ch.mu.Unlock()
	ch.socket.Close()
}

// get waits for an event: of want, or of any queue for which no goroutine waits by itself. One that counts is to be
// acknowledged.
func (ch *CompChannel) get(ctx context.Context, want *CQ, counts bool) (*CQ, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if want != nil {
		want.waiters++
		defer func() { want.waiters-- }()
	}
	for {
		if q := ch.take(want, counts); q != nil {
			return q, nil
		}
		if ch.closed || want != nil && want.closed.Load() {
			return nil, ErrClosed
		}
		var err error
		if !ch.reading {
			err = ch.read(ctx)
		} else {
			err = ch.wait(ctx)
		}
		if err != nil && !errors.Is(err, errKicked) {
			if q := ch.take(want, counts); q != nil {
				return q, nil
			}
			return nil, err
		}
	}
}

// take removes the oldest event that the caller may have.
func (ch *CompChannel) take(want *CQ, counts bool) *CQ {
	for i, q := range ch.ready {
		if q != want && (want != nil || q.waiters > 0) {
			continue
		}
		if q.events--; q.events == 0 {
			ch.ready = append(ch.ready[:i], ch.ready[i+1:]...)
		}
		if counts {
			q.acks.got++
		}
		return q
	}
	return nil
}

// read reads one message for everybody. ch.mu is given up meanwhile.
func (ch *CompChannel) read(ctx context.Context) error {
	ch.reading = true
	ch.mu.Unlock()
	var m [ctl.ChannelEventSize]byte
	err := ch.socket.read(ctx, m[:])
	var q *CQ
	if err == nil {
		// The cookie of a queue that was closed names nothing.
		ch.ctx.mu.Lock()
		q = ch.ctx.cqs[binary.LittleEndian.Uint64(m[0:])]
		ch.ctx.mu.Unlock()
	}
	ch.mu.Lock()
	ch.reading = false
	if q != nil && q.channel == ch {
		ch.file(q, binary.LittleEndian.Uint32(m[8:]))
	}
	ch.broadcast() // somebody else reads now, or has an event
	return err
}

// file records events of a queue.
func (ch *CompChannel) file(q *CQ, n uint32) {
	if n == 0 || q.closed.Load() {
		return
	}
	if q.events == 0 {
		ch.ready = append(ch.ready, q)
	}
	q.events += uint64(n)
}

// wait waits until the goroutine that reads has something for somebody. ch.mu is given up meanwhile.
func (ch *CompChannel) wait(ctx context.Context) error {
	ch.waiting++
	wake := ch.wake
	ch.mu.Unlock()
	var err error
	select {
	case <-wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	ch.mu.Lock()
	ch.waiting--
	return err
}

func (ch *CompChannel) broadcast() {
	if ch.waiting > 0 {
		close(ch.wake)
		ch.wake = make(chan struct{})
	}
}

// nudge gives another goroutine that waits for q an event: the one that had it left entries behind, or may have.
func (ch *CompChannel) nudge(q *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if q.waiters > 0 && q.events == 0 {
		ch.file(q, 1)
		ch.broadcast()
	}
}

// forget drops the events of a queue that is closed, and wakes who waits for them.
func (ch *CompChannel) forget(q *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i := range ch.ready {
		if ch.ready[i] == q {
			ch.ready = append(ch.ready[:i], ch.ready[i+1:]...)
			break
		}
	}
	q.events = 0
	ch.broadcast()
	if ch.reading {
		ch.socket.kick() // whoever waits for this queue may be the one who reads for all
	}
}

// acks counts events that were got and acknowledged.
type acks struct {
	got, acked uint64
	done       chan struct{} // closed when a close waits no more
}
