package control

import (
	"encoding/binary"

	"github.com/softnic/softnicd/ib"
)

// maxAsync is how many asynchronous events wait for an application that does not read them. One more, and it has lost
// track of its objects: all that is left to tell it is DEVICE_FATAL.
const maxAsync = 1024

// async is the asynchronous event socket of a context.
type async struct {
	box    *mailbox
	events []asyncEvent // ring
	first  int
	n      int
	fatal  bool // told, or about to be, that the context is lost
}

type asyncEvent struct {
	kind   ib.EventType
	handle uint32
	cookie uint64
}

// newAsync returns the socket's daemon side and the application's end.
func newAsync() (*async, int, error) {
	a := &async{events: make([]asyncEvent, 16)}
	box, fd, err := newMailbox("asynchronous events", a)
	if err != nil {
		return nil, -1, err
	}
	a.box = box
	return a, fd, nil
}

// raise is called by shards and never waits for the application. After DEVICE_FATAL nothing follows.
func (a *async) raise(kind ib.EventType, handle uint32, cookie uint64) {
	a.box.mu.Lock()
	defer a.box.mu.Unlock()
	if a.fatal {
		return
	}
	if a.n == maxAsync-1 && kind != ib.EventDeviceFatal {
		kind, handle, cookie = ib.EventDeviceFatal, 0, 0
	}
	a.fatal = kind == ib.EventDeviceFatal
	if a.n == len(a.events) {
		a.grow()
	}
	a.events[(a.first+a.n)%len(a.events)] = asyncEvent{kind, handle, cookie}
	a.n++
	a.box.push()
}

func (a *async) grow() {
	bigger := make([]asyncEvent, 2*len(a.events))
	for i := range a.n {
		bigger[i] = a.events[(a.first+i)%len(a.events)]
	}
	a.events, a.first = bigger, 0
}

// peek implements nextEvent. The layout is that of ctl.AsyncEvent.
func (a *async) peek(message []byte) bool {
	if a.n == 0 {
		return false
	}
	e := &a.events[a.first]
	binary.LittleEndian.PutUint32(message[0:], uint32(e.kind))
	binary.LittleEndian.PutUint32(message[4:], e.handle)
	binary.LittleEndian.PutUint64(message[8:], e.cookie)
	return true
}

// sent implements nextEvent.
func (a *async) sent() {
	a.first = (a.first + 1) % len(a.events)
	a.n--
}
