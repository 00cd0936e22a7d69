package batch

import (
	"time"

	"github.com/softnic/softnicd/clock"
	"golang.org/x/sys/unix"
)

// A received message may stay in the kernel for a while after it was read: it is held.
//
// The kernel puts what is sent next into the pages that were given back last. Between two processes of one host these are
// pages that the receiver has just read: each of their lines is still in its cache, and has to be taken back from there to be
// written, at 9 GB/s where the two processors share a cache and 2.3 where they do not. That was two fifths of a sender's time,
// or three quarters. Pages that come back when the receiver's cache has forgotten them are written two or three times as fast.
//
// So messages of a bulk transfer are read by MSG_PEEK, each once since the kernel keeps an offset (SO_PEEK_OFF), and leave the
// queue in order when a mebibyte has come after them.
const (
	// mostHeld is enough for a processor's own cache of 1 or 2 MiB to forget what was read: where the receiver puts it goes through
	// that cache too. 4 MiB cost two devices that send to each other a tenth, being more than larger caches have room for.
	mostHeld = 1 << 20
	// holdShare bounds what is held to that part of the socket's receive buffer, which it takes from what is under way.
	holdShare = 8
	// leastHeld is the least that is worth it.
	leastHeld = 512 << 10
	// heldMessages bounds them by their number: each peek passes them all by.
	heldMessages = 128
	// holdTime is how long nothing large may have come, and how long there may always have been more to receive: it is the
	// sender who gains, and one who is ahead needs nothing. The socket polls readable as long as it holds something, so who wants
	// to sleep waits for that.
	holdTime = 200 * time.Microsecond
)

// holding is what a socket holds.
type holding struct {
	limit int // bytes; 0: it never holds
	bytes int
	sizes [heldMessages]int // of the messages, a ring
	first int
	count int
	// A large message came, the last one at that time.
	bulk  bool
	large clock.Time
	// Everything had been received, the last time then.
	idle clock.Time
}

// Hold lets a UDP socket hold what it received, if its receive buffer is large enough and the kernel has SO_PEEK_OFF. It is to be
// called before anything is received. Pages that a network card's driver lends would come back late to no purpose.
func (s *Socket) Hold() {
	limit := min(ReceiveBuffer(s.FD)/holdShare, mostHeld)
	if limit >= leastHeld && unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0) == nil {
		s.held.limit = limit
	}
}

// Held returns the bytes that are held.
func (s *Socket) Held() int { return s.held.bytes }

// flags are those of the next receive. Only peeks pass by what is held.
func (h *holding) flags(now clock.Time) int {
	if h.holds(now) {
		return unix.MSG_PEEK
	}
	return 0
}

// holds reports whether messages are held: small ones too, acknowledgements, while large ones come.
func (h *holding) holds(now clock.Time) bool {
	return h.bulk && now.Sub(h.large) <= holdTime && now.Sub(h.idle) <= holdTime
}

// add notes that messages were received with these flags when so many were asked for. They are large that fill a good part of a
// buffer of size bytes.
func (h *holding) add(now clock.Time, came []Message, asked, size, flags int) {
	if h.limit == 0 {
		return
	}
	if len(came) < asked {
		h.idle = now
	}
	for i := range came {
		n := int(came[i].n)
		if n >= size/4 {
			h.bulk, h.large = true, now
		}
		if flags != 0 {
			h.sizes[(h.first+h.count)%heldMessages] = n
			h.count++
			h.bytes += n
		}
	}
}

// surplus returns how many of the messages are to leave, the oldest first, so that there is room for as many as more.
func (h *holding) surplus(now clock.Time, more int) int {
	if !h.holds(now) {
		return h.count
	}
	n, bytes := 0, h.bytes
	for ; n < h.count && (bytes > h.limit || h.count-n+more > heldMessages); n++ {
		bytes -= h.sizes[(h.first+n)%heldMessages]
	}
	return n
}

// forget takes the n oldest messages off the list.
func (h *holding) forget(n int) {
	for range n {
		h.bytes -= h.sizes[h.first]
		h.first, h.count = (h.first+1)%heldMessages, h.count-1
	}
}

// release takes messages out of the kernel's queue that are not to be held any more, with room for as many as more.
func (in *Inbox) release(s *Socket, now clock.Time, more int) {
	h := &s.held
	for n, failed := h.surplus(now, more), false; n > 0; {
		// MSG_TRUNC, or the kernel's offset would go back by what was copied, which is nothing.
		gone, errno := recvmmsg(s.FD, in.discarded[:min(n, recvMessages)], unix.MSG_TRUNC)
		switch {
		case errno == 0:
			h.forget(gone)
			n -= gone
		case errno == unix.EINTR:
		case failed:
			// They are not there, which only happens to a socket that another has read from.
			h.forget(h.count)
			_ = unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)
			return
		default:
			failed = true // an error of the network is told once
		}
	}
}
