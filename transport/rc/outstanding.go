package rc

// What a requester counts against the bound that it shares with others: the bytes of each packet, with something for the
// memory that a packet takes in a receive buffer beside them, which for small ones is most of it. Of a READ the responses
// count, no more of them than a window at a time: its peer sends them at its own pace.

// packetOverhead is about what the Linux kernel accounts for a datagram beyond its bytes.
const packetOverhead = 512

// weight is the count of the packets of w from its k-th on.
func (r *requester) weight(w *work, k uint32) int {
	n := w.packets - k
	if w.answered() {
		n = min(n, uint32(r.window.limit))
	}
	return int(n) * (packetOverhead + int(min(w.length, uint32(r.e.mtu))))
}

// depart counts packets of w from the cursor on. A probe is outstanding already.
func (r *requester) depart(w *work, packets uint32) {
	if r.probe.active {
		return
	}
	n := r.weight(w, r.cursor.packet)
	if !w.answered() {
		n -= r.weight(w, r.cursor.packet+packets)
	}
	r.e.cfg.Outstanding.Add(n)
}

// arrive says that what is outstanding of w, the oldest request, arrived up to its k-th packet.
func (r *requester) arrive(w *work, k uint32) {
	r.e.cfg.Outstanding.Sub(r.weight(w, distance(w.first, r.una)) - r.weight(w, k))
}
