package batch

import (
	"encoding/binary"
	"net/netip"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const (
	// recvMessages buffers take what one system call brings, each a datagram or many merged.
	recvMessages = 64
	// fewMessages is how many are asked for while they come merged, so that they stay in the processor's cache.
	fewMessages     = 8
	recvControlSize = 128
	maxReady        = 16
)

// Socket is a socket that receives.
type Socket struct {
	FD int
	// Addr and GID are the address that it is bound to, if it is to one.
	Addr netip.Addr
	GID  ib.GID

	drops uint32 // SO_RXQ_OVFL, as last seen
	held  holding
}

// Inbox is the way in: messages from several sockets, in memory made beforehand.
type Inbox struct {
	Sockets []*Socket
	turn    uint // which ready socket goes first
	events  [maxReady]unix.EpollEvent

	size     int
	messages [recvMessages]Message
	iovecs   [recvMessages]Iovec
	// discarded are messages without room for anything.
	discarded [recvMessages]Message
	from      [recvMessages]*Socket
	buffers   []byte
	names     []byte
	controls  []byte

	received     Received
	ask          int // messages to ask for
	count, given int // messages received, and how many of them Next has returned

	// Datagram and SL are what the datagrams of the current message have in common.
	Datagram wire.Datagram
	SL       uint8
	splitter
	open     func(*Received)
	counters *nic.PortCounters
}

// Init makes buffers for messages of at most size bytes. open is told of each that Recv takes up, and calls Begin unless there
// is nothing in it; c counts packets and what is none.
func (in *Inbox) Init(size int, open func(*Received), c *nic.PortCounters) {
	in.size, in.ask, in.open, in.counters = size, fewMessages, open, c
	in.buffers = make([]byte, recvMessages*size)
	in.names = make([]byte, recvMessages*NameSize)
	in.controls = make([]byte, recvMessages*recvControlSize)
	for i := range in.messages {
		in.iovecs[i] = IovecOf(in.buffers[i*size : (i+1)*size])
		in.messages[i].SetIovecs(in.iovecs[i : i+1])
	}
}

// Received is a message that came. Its bytes are good until the next Fill.
type Received struct {
	Socket    *Socket
	Bytes     []byte
	Name      []byte // NameSize bytes
	Control   []byte
	Truncated bool
}

// Next returns the messages of the last Fill, one after another, and then nil. Each is good until the next.
func (in *Inbox) Next() *Received {
	if in.given == in.count {
		return nil
	}
	i := in.given
	in.given++
	m, r := &in.messages[i], &in.received
	*r = Received{in.from[i], in.buffers[i*in.size:][:m.n], in.names[i*NameSize:][:NameSize], nil, m.Truncated()}
	// What follows the length is of an earlier message.
	r.Control = in.controls[i*recvControlSize:][:min(m.controlLen, recvControlSize)]
	return r
}

// Fill receives messages from whichever sockets have some; epoll watches them all.
func (in *Inbox) Fill(now clock.Time, epoll int) bool {
	in.count, in.given = 0, 0
	if len(in.Sockets) == 1 {
		in.fillFrom(now, in.Sockets[0])
		in.adapt()
		return in.count > 0
	}
	n, errno := ready(epoll, in.events[:])
	if errno != 0 {
		return false
	}
	in.turn++
	for i := range n {
		fd := int(in.events[(uint(i)+in.turn)%uint(n)].Fd)
		for _, r := range in.Sockets {
			if r.FD == fd {
				in.fillFrom(now, r)
			}
		}
	}
	in.adapt()
	return in.count > 0
}

// adapt decides how many messages to ask for next: many if as many as we asked for came and were single datagrams, few
// if they came merged.
func (in *Inbox) adapt() {
	if in.count == 0 {
		return
	}
	bytes := 0
	for i := range in.messages[:in.count] {
		bytes += int(in.messages[i].n)
	}
	switch mean := bytes / in.count; {
	case mean >= in.size/4:
		in.ask = fewMessages
	case in.count >= fewMessages:
		in.ask = recvMessages
	}
}

func (in *Inbox) fillFrom(now clock.Time, s *Socket) {
	if in.count >= in.ask {
		return
	}
	if s.held.count > 0 {
		in.release(s, now, in.ask-in.count)
	}
	free := in.messages[in.count:in.ask]
	for i := range free {
		k := in.count + i
		free[i].SetName(in.names[k*NameSize : (k+1)*NameSize])
		free[i].SetControl(in.controls[k*recvControlSize : (k+1)*recvControlSize])
	}
	flags := s.held.flags(now)
	n, errno := recvmmsg(s.FD, free, flags)
	for errno == unix.EINTR {
		n, errno = recvmmsg(s.FD, free, flags)
	}
	if errno != 0 {
		n = 0
	}
	s.held.add(now, free[:n], len(free), in.size, flags)
	for range n {
		in.from[in.count] = s
		in.count++
	}
}

// CountDrops counts what the socket lost, if data is of a control message SO_RXQ_OVFL: the sum since the socket was made,
// as of when this datagram was queued.
func (s *Socket) CountDrops(c *nic.PortCounters, data []byte) {
	if len(data) < 4 {
		return
	}
	total := binary.NativeEndian.Uint32(data)
	if lost := total - s.drops; int32(lost) > 0 {
		c.SocketDrops.Add(uint64(lost))
		s.drops = total
	}
}
