package control

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softnic/softnicd/abi/ctl"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
)

// journalSize is how many events the daemon keeps for those who ask later.
const journalSize = 1024

// journal is what happened in the daemon, the last journalSize events. Who wants to follow it has a socket that wakes, and
// asks for what is new: so nobody who is slow, stopped or hostile keeps a shard waiting, which is who writes.
type journal struct {
	mu     sync.Mutex
	events [journalSize]ctl.Event // number n is at n modulo size
	last   uint64                 // number of the newest; 0: none yet
	bells  []int                  // sockets
}

// add writes an event down. It does not allocate and waits for nobody but other writers and readers.
func (j *journal) add(e ctl.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	e.Number, e.Time = j.last, uint64(time.Now().UnixNano())
	j.events[j.last%journalSize] = e
	for _, fd := range j.bells {
		// What finds the socket full need not be sent: it has something to read.
		_ = unix.Sendto(fd, bellRing, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

var bellRing = []byte{1}

// after fills r with the events behind a number.
func (j *journal) after(number uint64, r *ctl.EventsReply) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if number >= j.last {
		return
	}
	first := number + 1
	if oldest := j.last - min(j.last, journalSize) + 1; first < oldest {
		r.Lost = oldest - first
		first = oldest
	}
	for n := first; n <= j.last && int(r.N) < len(r.Events); n++ {
		r.Events[r.N] = j.events[n%journalSize]
		r.N++
	}
}

// subscribe returns the daemon's end of a socket that wakes, the application's, and the number of the newest event.
func (j *journal) subscribe() (ours, theirs int, last uint64, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, 0, fmt.Errorf("socket pair: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.bells = append(j.bells, pair[0])
	return pair[0], pair[1], j.last, nil
}

// unsubscribe ends a subscription.
func (j *journal) unsubscribe(fd int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, b := range j.bells {
		if b == fd {
			j.bells = append(j.bells[:i], j.bells[i+1:]...)
			unix.Close(fd)
			return
		}
	}
}

// watch writes down what happens to the ports of devices, until the function that it returns is called.
func (j *journal) watch(devices []*Device) (stop func()) {
	var stops []func()
	for i, d := range devices {
		number := uint32(i + 1)
		stops = append(stops, d.NIC.Watch(func(c nic.Change) {
			switch c.Kind {
			case nic.ChangeEvent:
				j.add(ctl.Event{Device: number, Kind: ctl.EventAsync, Event: uint32(c.Event)})
			case nic.ChangeMTU:
				j.add(ctl.Event{Device: number, Kind: ctl.EventMTU, Value: c.Value})
			}
		}))
	}
	return func() {
		for _, f := range stops {
			f()
		}
	}
}

// recorder writes down what happens to one context.
type recorder struct {
	journal *journal
	about   ctl.Event     // what its events have in common
	context atomic.Uint64 // its number, once that is known
}

// record writes down an asynchronous event of the context. Those of the port are written down once, and not for every
// context that hears them.
func (r *recorder) record(t ib.EventType, handle uint32) {
	if r == nil || portEvent(t) {
		return
	}
	e := r.about
	e.Context = r.context.Load()
	e.Kind, e.Event, e.Handle = ctl.EventAsync, uint32(t), handle
	r.journal.add(e)
}

// opened writes down that the context is there. Its number is known only now; an event that was faster names none.
func (r *recorder) opened(serial uint64) {
	if r == nil {
		return
	}
	r.context.Store(serial)
	r.note(ctl.EventContextOpened)
}

// note writes down what became of the context.
func (r *recorder) note(kind uint32) {
	if r == nil {
		return
	}
	e := r.about
	e.Context = r.context.Load()
	e.Kind = kind
	r.journal.add(e)
}

// portEvent reports whether an event concerns the port.
func portEvent(t ib.EventType) bool {
	switch t {
	case ib.EventPortActive, ib.EventPortErr, ib.EventGIDChange, ib.EventLIDChange, ib.EventPKeyChange, ib.EventSMChange,
		ib.EventClientReregister:
		return true
	}
	return false
}
