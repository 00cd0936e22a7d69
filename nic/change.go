package nic

import (
	"sync"

	"github.com/softnic/softnicd/ib"
)

// Change is something that happened to a device's port.
type Change struct {
	Kind  ChangeKind
	Event ib.EventType // of a ChangeEvent: every context hears it too
	Value uint64       // of a ChangeMTU: bytes of an IP packet
}

// ChangeKind says what a Change is.
type ChangeKind uint8

// Kinds of changes.
const (
	ChangeEvent ChangeKind = iota + 1 // PORT_ACTIVE, PORT_ERR, GID_CHANGE
	ChangeMTU                         // the interface's MTU
)

// Watch calls f for each change of the port from now on, until the function that it returns is called. f must neither
// block nor call the device: the shard may be who tells.
func (d *Device) Watch(f func(Change)) (stop func()) { return d.watchers.add(f) }

// watchers are who wants to know of changes.
type watchers struct {
	mu   sync.Mutex
	list []*func(Change)
}

func (w *watchers) add(f func(Change)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := &f
	w.list = append(w.list, own)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.list {
			if w.list[i] == own {
				w.list = append(w.list[:i], w.list[i+1:]...)
				return
			}
		}
	}
}

func (w *watchers) tell(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.list {
		(*f)(c)
	}
}
