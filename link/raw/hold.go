package raw

import (
	"slices"

	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// maxHeld bounds the frames that wait for an answer about where they go: as many small packets as the kernel keeps for a
// neighbour that it looks for, about.
const maxHeld = 64

// heldFrame is a frame to a destination that the resolver is looking for. Those of UC and UD would not come again, and the
// peers of a NIC know where each other is by the time their queue pairs and address handles are made.
type heldFrame struct {
	n       *neighbour
	path    wire.Path
	payload []byte // of the UDP datagram
}

// hold keeps a copy of a frame until the resolver has answered, and reports false if nobody is looking for its destination or
// too many wait already. It allocates.
func (t *transmission) hold(f *wire.Frame) bool {
	n := t.where.known[flow{f.Path.Source, f.Path.Dest}]
	if n == nil || len(t.held) >= maxHeld || n.held == 0 && !n.asking.Load() {
		return false
	}
	payload, err := f.AppendTo(nil, 0)
	if err != nil {
		return false
	}
	t.held = append(t.held, heldFrame{n, *f.Path, payload})
	n.held++
	return true
}

// release sends the frames whose destinations have been found, in their order, and loses those that nobody looks for any
// more.
func (t *transmission) release() {
	if len(t.held) == 0 {
		return
	}
	keep := t.held[:0]
	for i := range t.held {
		f := &t.held[i]
		// In this order, for the resolver answers before it says that it is done.
		asking := f.n.asking.Load()
		h := f.n.hop.Load()
		// An answer that comes while this loop runs is for the next one: no frame overtakes another of its flow.
		before := func(k heldFrame) bool { return k.n == f.n }
		if h == nil && asking || slices.ContainsFunc(keep, before) {
			keep = append(keep, *f)
			continue
		}
		f.n.held--
		if why := t.sendHeld(f, h); why != nil {
			t.Lose(t.now, &f.path, 1, why)
			continue
		}
		t.Losses.Counters.SentPackets.Add(1)
		t.Losses.Counters.SentBytes.Add(uint64(len(f.payload)))
	}
	clear(t.held[len(keep):])
	t.held = keep
}

func (t *transmission) sendHeld(f *heldFrame, h *hop) error {
	if h == nil {
		return unix.EHOSTUNREACH
	}
	headers := virtioHeader + h.ethernet.HeaderLen(&f.path)
	ip := udpHeader + ipv6Header
	if isIPv4(&f.path.Dest) {
		ip = udpHeader + ipv4Header
	}
	if ip+len(f.payload) > h.mtu {
		return unix.EMSGSIZE
	}
	b := make([]byte, headers+len(f.payload))
	copy(b[headers:], f.payload)
	t.put(b[:headers], &f.path, h, 1, len(f.payload), len(f.payload))
	return unix.Sendto(t.fd, b, unix.MSG_DONTWAIT, &unix.SockaddrLinklayer{Ifindex: h.ifindex})
}
