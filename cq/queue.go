package cq

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/softnic/softnicd/abi"
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
)

// Why a queue is dead.
var (
	// ErrOverrun: an entry found the queue full.
	ErrOverrun = errors.New("completion queue overrun")
	// ErrConsumer: the application claims to have taken entries that were never there, or fewer than it said before.
	ErrConsumer = errors.New("completion queue consumer index out of range")
)

// Notifier carries completion events to the application.
type Notifier interface {
	// Notify announces an event of the queue with this cookie and handle. It must not block; it is called without the
	// queue's lock, from whatever goroutine posts.
	Notify(cookie uint64, handle uint32)
}

// Config describes a queue.
type Config struct {
	Block    []byte   // shared with the application, abi.CQBlockSize(Capacity) bytes
	Capacity uint32   // entries, a multiple of 64, see abi.CQCapacity
	Notifier Notifier // nil: no completion channel, no events
	Cookie   uint64   // the application's name of the queue, in events
	Handle   uint32   // the session's name of the queue, in events
}

// Queue is the device's half of a completion queue. Any number of goroutines may use it.
//
// The block is the application's memory and may fault at any touch. The caller runs every method that says so in a
// goroutine with a fault guard and contains the panic; the queue holds no lock after one.
type Queue struct {
	notifier Notifier
	cookie   uint64
	handle   uint32

	mu        sync.Mutex
	block     *abi.CQBlock // its header is the queue's
	ring      *abi.CQBlock // where the next entry goes: block until the first Resize
	capacity  uint32       // of ring
	pos       uint32       // of the next entry in the ring
	produced  uint32       // entries posted, modulo 2^32
	consumed  uint32       // the application's last claim that was believed
	highWater uint32
	overruns  uint64
	dead      error
	moderator moderator

	deadline atomic.Int64 // clock.Time of the held event
	step     func(word)   // tests: called before every touch of shared memory
}

// New makes a queue and clears its block. It touches the block.
func New(c Config) (*Queue, error) {
	block, err := abi.NewCQBlock(c.Block, c.Capacity)
	if err != nil {
		return nil, err
	}
	block.Reset()
	q := &Queue{
		notifier: c.Notifier, cookie: c.Cookie, handle: c.Handle,
		block: block, ring: block, capacity: c.Capacity,
	}
	q.deadline.Store(int64(clock.Never))
	return q, nil
}

// Post appends an entry and reports whether the queue took it. If not, the queue is dead: full, or its application lied
// about what it has taken. solicited says that the entry is a receive whose sender asked for a solicited event; an entry
// with an error counts as one, too (IBA 11.4.2.2).
//
// It touches the block. A fault leaves the entry unposted.
func (q *Queue) Post(now clock.Time, e *abi.CQE, solicited bool) bool {
	posted, event := q.post(now, e, solicited || e.Status != uint8(ib.WCSuccess))
	if event {
		q.notifier.Notify(q.cookie, q.handle) // without the lock
	}
	return posted
}

// Silent reports whether the queue has no notifier, and so no events.
func (q *Queue) Silent() bool { return q.notifier == nil }

// Lock locks a silent queue for several entries, which Append makes: a locked instruction waits until the cache lines of the
// entries written before it have come from the processor of who polls, some 100 ns each. Others wait for the queue meanwhile,
// so the caller waits for nobody, and calls none of its other methods before Unlock.
func (q *Queue) Lock() { q.mu.Lock() }

// Unlock ends Lock.
func (q *Queue) Unlock() { q.mu.Unlock() }

// Append is Post for who has locked the queue. It stays locked, also after a fault.
func (q *Queue) Append(e *abi.CQE) bool {
	posted, _ := q.append(0, e, false) // the time is that of events
	return posted
}

func (q *Queue) post(now clock.Time, e *abi.CQE, solicited bool) (posted, event bool) {
	q.mu.Lock()
	defer q.mu.Unlock() // also when the block faults
	return q.append(now, e, solicited)
}

// append wants the lock held.
func (q *Queue) append(now clock.Time, e *abi.CQE, solicited bool) (posted, event bool) {
	if q.dead != nil {
		q.overruns++
		return false, false
	}
	// The claim is read only when what was believed last would set a record, or fill a ring that has become smaller than
	// the record: a queue that is kept short costs the device no look at the application's cache line.
	used := q.produced - q.consumed
	if used >= min(q.highWater, q.capacity) {
		if used = q.lookConsumed(); q.dead == nil && used >= q.capacity {
			q.dead = ErrOverrun
		}
		if q.dead != nil {
			q.overruns++
			return false, q.die()
		}
		q.highWater = max(q.highWater, used+1)
	}
	q.touch(wordEntry)
	q.ring.Write(q.pos, q.produced, e)
	q.ring.Expect(q.pos)
	q.pos = q.ring.Next(q.pos)
	q.produced++
	q.touch(wordProduced)
	if q.notifier == nil {
		q.block.SetProduced(q.produced)
		return true, false
	}
	q.block.SetProducedSeq(q.produced)
	return true, q.eventDue(now, solicited)
}

// lookConsumed reads the application's claim, judges it, and returns the entries that wait.
func (q *Queue) lookConsumed() (used uint32) {
	q.touch(wordConsumed)
	claim := q.block.Consumed()
	// Between the last claim and what was posted: neither back nor ahead.
	if claim-q.consumed > q.produced-q.consumed {
		q.dead = ErrConsumer
		return 0
	}
	q.consumed = claim
	return q.produced - claim
}

// die tells the application that the queue is dead, and reports whether an event is due: who sleeps until something
// happens must learn that nothing will.
func (q *Queue) die() (event bool) {
	q.touch(wordState)
	q.block.SetState(abi.CQOverrun)
	if q.notifier == nil {
		return false
	}
	q.touch(wordArm)
	seq, kind := abi.SplitArm(q.block.Arm())
	if seq == q.moderator.fired || kind == abi.ArmNone {
		return false
	}
	q.fire(seq)
	return true
}

// Capacity returns how many entries the queue holds.
func (q *Queue) Capacity() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.capacity
}

// Occupancy returns how many entries wait, as the application says. It touches the block.
func (q *Queue) Occupancy() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting()
}

func (q *Queue) waiting() uint32 {
	q.touch(wordConsumed)
	claim := q.block.Consumed()
	if claim-q.consumed > q.produced-q.consumed {
		claim = q.consumed // a lie, for Post to find
	}
	return q.produced - claim
}

// HighWater returns the most entries that ever waited at once.
func (q *Queue) HighWater() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.highWater
}

// Overruns returns how many entries were lost, all since the queue died.
func (q *Queue) Overruns() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.overruns
}

// Dead reports whether the queue takes no entries any more.
func (q *Queue) Dead() bool { return q.Err() != nil }

// Err returns why the queue is dead: ErrOverrun, ErrConsumer, or nil while it lives.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dead
}

func (q *Queue) touch(w word) {
	if q.step != nil {
		q.step(w)
	}
}
