package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/cq"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/internal/yield"
	"github.com/softnic/softnicd/verbs/internal/arena"
)

// WC is a work completion. Which of its fields mean something depends on status and opcode, see ib.WC.
type WC = ib.WC

// CQ is a completion queue.
type CQ struct {
	ctx     *Context
	channel *CompChannel // nil without
	handle  uint32
	cookie  uint64
	header  arena.Block
	closed  atomic.Bool
	empty   atomic.Uint32 // polls in a row that found nothing

	capacity atomic.Uint32
	resizing sync.Mutex // one Resize at a time

	mu     sync.Mutex
	reader *cq.Reader
	rings  []arena.Block // that the reader may still read from, oldest first
	taken  uint64        // entries taken

	// Guarded by channel.mu.
	events  uint64 // read from the channel and not taken
	waiters int    // goroutines in Wait
	acks    acks
}

// CQOption is a property of a completion queue.
type CQOption func(*ctl.CreateCQ, *CQ)

// WithChannel sends the queue's completion events to ch.
func WithChannel(ch *CompChannel) CQOption {
	return func(q *ctl.CreateCQ, v *CQ) { q.Channel, v.channel = ch.handle, ch }
}

// WithCompVector names a completion vector, from 0 to one less than the device's NumCompVectors.
func WithCompVector(n int) CQOption {
	return func(q *ctl.CreateCQ, _ *CQ) { q.CompVector = uint32(n) }
}

// CreateCQ makes a completion queue of at least so many entries, 1 to the device's MaxCQE; Capacity tells how many it got.
// It need not have room for everything that is posted on its queue pairs, but if it overruns they all fail.
func (c *Context) CreateCQ(entries int, opts ...CQOption) (*CQ, error) {
	if err := c.fail(); err != nil {
		return nil, err
	}
	if entries < 1 || entries > maxEntries {
		return nil, fmt.Errorf("create cq: %d entries: %w", entries, syscall.EINVAL)
	}
	capacity := abi.CQCapacity(uint32(entries))
	block, err := c.arenas.Alloc(abi.CQBlockSize(capacity), abi.CacheLine)
	if err != nil {
		return nil, fmt.Errorf("create cq: %w", err)
	}
	v := &CQ{ctx: c, cookie: c.newCookie()}
	header, ring := split(block)
	v.header, v.rings = header, []arena.Block{ring}
	q := &ctl.CreateCQ{Entries: uint32(entries), Arena: block.Arena, Offset: block.Offset, Cookie: v.cookie}
	for _, f := range opts {
		f(q, v)
	}
	if v.channel != nil && v.channel.ctx != c {
		c.arenas.Free(block)
		return nil, fmt.Errorf("create cq: the completion channel is of another context: %w", syscall.EINVAL)
	}
	// An event may come as soon as the daemon knows the queue.
	c.mu.Lock()
	c.cqs[v.cookie] = v
	c.mu.Unlock()
	var r ctl.CreateCQReply
	if err = c.call(ctl.OpCreateCQ, q, &r); err == nil {
		v.handle = r.Handle
		v.capacity.Store(r.Capacity)
		if v.reader, err = cq.NewReader(block.Mem, r.Capacity); err != nil {
			c.call(ctl.OpDestroyCQ, &ctl.Handle{Handle: r.Handle}, &ctl.Empty{})
		}
	}
	if err != nil {
		c.mu.Lock()
		delete(c.cqs, v.cookie)
		c.mu.Unlock()
		c.arenas.Free(block)
		return nil, err
	}
	return v, nil
}

// Capacity returns how many entries the queue holds.
func (q *CQ) Capacity() int { return int(q.capacity.Load()) }

// Poll takes up to len(wc) completions, oldest first, and returns how many. It never waits and does not allocate; it makes
// a system call only to yield the processor, when it has found nothing several times in a row.
//
// An error comes only without completions: ErrCQOverrun, ErrDeviceFatal or ErrClosed.
func (q *CQ) Poll(wc []WC) (int, error) {
	if len(wc) == 0 {
		return 0, nil
	}
	q.mu.Lock()
	n, err := q.poll(wc)
	q.mu.Unlock()
	return q.polled(n, err)
}

// polled is what follows a poll, without the lock.
func (q *CQ) polled(n int, err error) (int, error) {
	switch {
	case n > 0:
		if q.empty.Load() != 0 {
			q.empty.Store(0)
		}
		return n, nil
	case err == nil:
		q.yield()
	}
	return 0, err
}

// poll is Poll with the lock held.
func (q *CQ) poll(wc []WC) (int, error) {
	if q.closed.Load() {
		return 0, ErrClosed
	}
	n := q.take(wc)
	if n > 0 {
		return n, nil
	}
	err := q.over()
	if err != nil {
		// What came before the end is not lost with it.
		if n = q.take(wc); n > 0 {
			return n, nil
		}
	}
	return 0, err
}

// over returns why nothing will come any more, or nil.
func (q *CQ) over() error {
	if err := q.reader.Err(); err != nil {
		return err
	}
	if q.ctx.lost() {
		return ErrDeviceFatal
	}
	return nil
}

// take takes completions, and gives their slots back to the queue pairs they came from.
func (q *CQ) take(wc []WC) (n int) {
	for n < len(wc) {
		v, ok := q.next()
		if !ok {
			break
		}
		if q.account(v) {
			cq.ViewWC(v, &wc[n])
			n++
		}
	}
	q.release()
	return n
}

// next takes the next entry, which is the caller's until release.
func (q *CQ) next() (v abi.CQEView, ok bool) {
	if v, ok = q.reader.View(); ok {
		q.reader.Take()
		q.taken++
	}
	return v, ok
}

// release gives the places of the entries that were taken back to the device.
func (q *CQ) release() {
	q.reader.Release()
	if len(q.rings) > 1 {
		q.leave()
	}
}

// account books an entry that was just taken with its queue pair, and reports whether it is for the application:
// completions of a queue pair that was destroyed or reset since are not, nor is the marker of a Drain.
func (q *CQ) account(v abi.CQEView) bool {
	if v.Queue() == abi.QueueXRCRecv {
		return true // its slot was free when it was taken, and the queue pair may be another process's
	}
	qp := q.ctx.slots.get(v.QPSlot())
	if qp == nil || uint32(qp.qpn) != v.QPN() {
		return false
	}
	w := &qp.send
	if v.Queue() != abi.QueueSend {
		w = &qp.recv
	}
	if w.reset.Load() {
		if q.taken <= w.stale.Load() {
			return false
		}
		w.reset.Store(false)
	}
	if v.Queue() == abi.QueueSharedRecv {
		return true // its slot was free when it was taken
	}
	w.done.Store(v.WQEIndex() + 1)
	return ib.WCStatus(v.Status()) == ib.WCSuccess || !w.isMarker(v.WQEIndex())
}

// Polls in a row that find nothing: the first few cost nothing but a look, in case the completion is about to come. Then
// the daemon, which may share the processor, gets its turn; the other goroutines of the process get theirs more seldom,
// because the Go scheduler wakes a thread to look for work each time, and that thread takes a processor from the daemon:
// half of a round trip between two processes went there.
const (
	freePolls    = 4
	goschedPolls = 32
)

// yield is what a poll that found nothing does.
func (q *CQ) yield() {
	n := q.empty.Add(1)
	if n <= freePolls {
		return
	}
	if n%goschedPolls == 0 {
		runtime.Gosched()
	}
	yield.Thread()
}

// Peek counts the completions that wait, n at the most, and takes none.
func (q *CQ) Peek(n int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Load() {
		return 0, ErrClosed
	}
	return q.reader.Peek(n), nil
}

// ReqNotify asks for one event on the queue's channel: at the next completion, or, with solicitedOnly, at the next receive
// whose sender asked for it, or the next error. Asking for solicited completions does not take back an earlier request for
// all.
//
// Completions that are there already cause no event. missed says that some are: who is about to wait polls first.
func (q *CQ) ReqNotify(solicitedOnly bool) (missed bool, err error) {
	kind := abi.ArmNext
	if solicitedOnly {
		kind = abi.ArmSolicited
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed.Load():
		return false, ErrClosed
	case q.channel == nil:
		return false, fmt.Errorf("req notify cq: the queue was made without a completion channel: %w", syscall.EINVAL)
	}
	missed = q.reader.ReqNotify(kind)
	if !missed && q.ctx.lost() {
		return false, ErrDeviceFatal
	}
	return missed, nil
}

// Modify moderates the queue's events (ibv_modify_cq): one comes after count completions or period microseconds, whichever
// is first; 0, 0 turns that off. EINVAL beyond the device's limits.
func (q *CQ) Modify(count, period int) error {
	if count < 0 || period < 0 {
		return fmt.Errorf("modify cq: count %d, period %d us: %w", count, period, syscall.EINVAL)
	}
	m := &ctl.ModifyCQ{CQ: q.handle, Count: uint32(min(count, 1<<31)), Period: uint32(min(period, 1<<31))}
	return q.ctx.call(ctl.OpModifyCQ, m, &ctl.Empty{})
}

// AckEvents acknowledges n events that CompChannel.GetEvent returned for this queue.
func (q *CQ) AckEvents(n int) {
	ch := q.channel
	if ch == nil || n <= 0 {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	a := &q.acks
	a.acked = min(a.acked+uint64(n), a.got)
	if a.acked == a.got && a.done != nil {
		close(a.done)
		a.done = nil
	}
}

// Close destroys the queue and what is in it. EBUSY while queue pairs use it. It waits until all events that were got are
// acknowledged; those that were not got are dropped.
func (q *CQ) Close() error {
	if err := q.ctx.call(ctl.OpDestroyCQ, &ctl.Handle{Handle: q.handle}, &ctl.Empty{}); err != nil {
		return err
	}
	q.ctx.mu.Lock()
	delete(q.ctx.cqs, q.cookie)
	q.ctx.mu.Unlock()
	q.shut()
	q.ctx.events.forget(q, q.ctx)
	if ch := q.channel; ch != nil {
		ch.forget(q)
		ch.mu.Lock()
		var done chan struct{}
		if q.acks.acked < q.acks.got {
			if q.acks.done == nil {
				q.acks.done = make(chan struct{})
			}
			done = q.acks.done
		}
		ch.mu.Unlock()
		if done != nil {
			<-done
		}
	}
	// A resize that was under way has failed, since the device knows the queue no more, or is complete.
	q.resizing.Lock()
	defer q.resizing.Unlock()
	err := q.ctx.arenas.Free(q.header)
	for _, r := range q.rings {
		err = errors.Join(err, q.ctx.arenas.Free(r))
	}
	q.rings = nil
	return err
}

// shut keeps everybody from touching the block from now on.
func (q *CQ) shut() {
	q.mu.Lock()
	q.closed.Store(true)
	q.mu.Unlock()
}
