package rc

// window is how many packets may be outstanding. A loss halves it, since go-back-N sends everything behind a hole again;
// each full window that was acknowledged adds a packet. It never closes: at minWindow a loss still leaves something
// behind it that shows the hole to the peer.
type window struct {
	size  int
	limit int
	acked int // packets acknowledged since the size last changed
}

const minWindow = 4

// newWindow starts fully open, as hardware does: on most paths nothing is ever lost.
func newWindow(limit int) window {
	limit = min(max(limit, 1), maxSpan)
	return window{size: limit, limit: limit}
}

// open reports whether another packet may go when so many are outstanding.
func (w *window) open(outstanding int) bool { return outstanding < w.size }

// grow counts n packets that were acknowledged.
func (w *window) grow(n int) {
	if w.size == w.limit {
		return
	}
	w.acked += n
	for w.acked >= w.size && w.size < w.limit {
		w.acked -= w.size
		w.size++
	}
}

// shrink halves the window after a loss.
func (w *window) shrink() {
	w.size = max(w.size/2, min(minWindow, w.limit))
	w.acked = 0
}
