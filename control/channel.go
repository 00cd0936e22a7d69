package control

import (
	"encoding/binary"
)

// channel is a completion channel: events of any number of completion queues on one socket. While the socket is full each
// queue counts its own events, so that a channel which nobody reads costs a word per queue and loses nothing.
type channel struct {
	box         *mailbox
	queues      int       // completion queues attached
	first, last *notifier // queues with events pending, oldest first
}

// newChannel returns a channel and the application's end of its socket.
func newChannel() (*channel, int, error) {
	ch := new(channel)
	box, fd, err := newMailbox("completion channel", ch)
	if err != nil {
		return nil, -1, err
	}
	ch.box = box
	return ch, fd, nil
}

// notifier is the channel as one completion queue sees it. It implements cq.Notifier.
type notifier struct {
	channel *channel
	cookie  uint64
	handle  uint32
	count   uint32 // events pending
	queued  bool
	gone    bool
	next    *notifier
}

// Notify is called by shards: it may take the time of a system call, and never waits for the application.
func (n *notifier) Notify(cookie uint64, handle uint32) {
	box := n.channel.box
	box.mu.Lock()
	defer box.mu.Unlock()
	if n.gone {
		return
	}
	n.cookie, n.handle = cookie, handle
	if n.count++; n.count == 0 {
		n.count-- // 2^32 events unread: the number stays at the most
	}
	if !n.queued {
		n.queued = true
		if n.channel.last == nil {
			n.channel.first = n
		} else {
			n.channel.last.next = n
		}
		n.channel.last = n
	}
	box.push()
}

// drop forgets the pending events of a completion queue that is destroyed.
func (n *notifier) drop() {
	n.channel.box.mu.Lock()
	defer n.channel.box.mu.Unlock()
	n.gone = true
	n.count = 0
}

// peek implements nextEvent. The layout is that of ctl.ChannelEvent.
func (ch *channel) peek(message []byte) bool {
	for ch.first != nil && ch.first.count == 0 {
		ch.unlink()
	}
	n := ch.first
	if n == nil {
		return false
	}
	binary.LittleEndian.PutUint64(message[0:], n.cookie)
	binary.LittleEndian.PutUint32(message[8:], n.count)
	binary.LittleEndian.PutUint32(message[12:], n.handle)
	return true
}

// sent implements nextEvent.
func (ch *channel) sent() {
	ch.first.count = 0
	ch.unlink()
}

func (ch *channel) unlink() {
	n := ch.first
	ch.first, n.next, n.queued = n.next, nil, false
	if ch.first == nil {
		ch.last = nil
	}
}
