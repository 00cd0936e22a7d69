package netdev

import (
	"context"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Event says that an interface changed: its state, MTU, name or addresses, or that it came or went. What it is now,
// [ByIndex] tells; several changes may be one event.
type Event struct {
	// Index is the interface's; 0 when notices were lost and any may have changed.
	Index int
}

// Watch reports changes until ctx is done, then closes the channel. Nothing that happens after Watch returned is missed,
// however slowly the channel is read.
func Watch(ctx context.Context) (<-chan Event, error) {
	w := &watcher{events: make(chan Event)}
	if err := w.subscribe(ctx); err != nil {
		return nil, err
	}
	go w.run(ctx)
	return w.events, nil
}

// watcher merges the kernel's notices. What waits to be read is a list of interfaces, not of notices, so it stays short.
type watcher struct {
	events chan Event
	links  chan netlink.LinkUpdate
	addrs  chan netlink.AddrUpdate
	cancel context.CancelFunc // ends the current subscription
	wait   []Event
}

func (w *watcher) subscribe(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	links, addrs := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	ignore := func(error) {} // the channel's end says as much
	err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{ErrorCallback: ignore})
	if err != nil {
		cancel()
		return fmt.Errorf("watch network interfaces: %w", err)
	}
	err = netlink.AddrSubscribeWithOptions(addrs, ctx.Done(), netlink.AddrSubscribeOptions{ErrorCallback: ignore})
	if err != nil {
		cancel()
		for range links {
		}
		return fmt.Errorf("watch addresses: %w", err)
	}
	w.links, w.addrs, w.cancel = links, addrs, cancel
	return nil
}

// unsubscribe ends the subscription and waits until it has: who sends on the channels must not be left standing there.
func (w *watcher) unsubscribe() {
	w.cancel()
	for range w.links {
	}
	for range w.addrs {
	}
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.events)
	defer w.unsubscribe()
	for {
		var out chan Event
		var next Event
		if len(w.wait) > 0 {
			out, next = w.events, w.wait[0]
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
			w.wait = w.wait[1:]
		case u, ok := <-w.links:
			if !ok && !w.again(ctx) {
				return
			} else if ok {
				w.note(int(u.Index))
			}
		case u, ok := <-w.addrs:
			if !ok && !w.again(ctx) {
				return
			} else if ok {
				w.note(u.LinkIndex)
			}
		}
	}
}

func (w *watcher) note(index int) {
	if e := (Event{index}); !slices.Contains(w.wait, e) {
		w.wait = append(w.wait, e)
	}
}

// again subscribes once more after notices were lost: the kernel's queue overflowed.
func (w *watcher) again(ctx context.Context) bool {
	w.unsubscribe()
	if ctx.Err() != nil || w.subscribe(ctx) != nil {
		return false
	}
	w.note(0)
	return true
}
