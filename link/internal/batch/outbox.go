package batch

import (
	"fmt"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// Outbox is the way out: groups of frames, each a message that the kernel splits, for one system call.
type Outbox struct {
	Stage
	Losses
	// GSO says that the kernel splits messages; it is taken back when the kernel refuses.
	GSO bool
	// Mixed says that packets of several queue pairs may share a group. All that Group is given leave by one source port then,
	// whatever their paths would like.
	Mixed bool
	// Messages are the groups; the one behind them all, Messages[MaxMessages], is for frames by themselves.
	Messages [MaxMessages + 1]Message
	groups   int
	sizes    [MaxMessages]groupSize
	// Apart is room for the packets of a run that cannot travel as a group (nic.SendApart).
	Apart *wire.Burst
}

// groupSize is what a group consists of.
type groupSize struct{ frames, packets, bytes int }

// Addresser finishes Messages[k]: where it goes, and of how many segments of which size it consists. One segment may be
// shorter, the last. headers are the bytes reserved in front.
type Addresser interface {
	Address(k int, headers []byte, v []Iovec, segments, size, bytes int)
}

// Init makes the memory. GSO says that the kernel splits messages.
func (o *Outbox) Init(gso bool) {
	o.Stage.Init()
	o.GSO, o.Apart = gso, wire.NewBurst(wire.MaxRun)
}

// Reset forgets all groups.
func (o *Outbox) Reset() {
	o.groups = 0
	o.Stage.Reset()
}

// Full reports whether there is room for another group.
func (o *Outbox) Full() bool { return o.groups == MaxMessages }

// LongestRun returns of how many packets of a size a run may consist: of no more than a group. It is what nic.LongestRun asks.
func (o *Outbox) LongestRun(size int) int {
	if !o.GSO {
		return 0
	}
	return min(MaxSegments, MaxDatagram/size)
}

// Group makes one message of the first frames: those of one path, or of several that lead the same way, whose packets have one
// length, the last of which may be shorter, with so many bytes of headers in front. path is that of the first with the source
// port that they really leave by. It returns how many; 0 without an error when there is no room. An error is the fault of the
// frame behind them.
func (o *Outbox) Group(frames []wire.Frame, path *wire.Path, headers int, a Addresser) (n int, err error) {
	size := frames[0].PacketLen()
	if size > MaxDatagram || !o.Room(&frames[0], headers) {
		return 0, nil
	}
	limit := 1
	if o.GSO {
		limit = MaxSegments
	}
	o.begin()
	var front []byte
	if headers > 0 {
		front = o.reserve(headers)
	}
	var sum groupSize
	for n < len(frames) && sum.packets < limit {
		f := &frames[n]
		packets, bytes, each := f.Packets(), f.Len(), f.PacketLen()
		if !o.together(f.Path, frames[0].Path) || each > size || each < size && packets > 1 || sum.packets+packets > limit ||
			sum.bytes+bytes > MaxDatagram || !o.Room(f, 0) {
			break
		}
		if err = o.add(f, path, uint16(sum.packets)); err != nil {
			break
		}
		n++
		sum.packets += packets
		sum.bytes += bytes
		if each < size {
			break
		}
	}
	if n == 0 {
		return 0, err
	}
	sum.frames = n
	o.sizes[o.groups] = sum
	a.Address(o.groups, front, o.message(), sum.packets, size, sum.bytes)
	o.groups++
	return n, err
}

// together tells whether packets along two paths may share a group: all headers in front of the BTH are the same.
func (o *Outbox) together(a, b *wire.Path) bool {
	return a == b || o.Mixed && a.Dest == b.Dest && a.Source == b.Source && a.TrafficClass == b.TrafficClass &&
		a.HopLimit == b.HopLimit && a.SL == b.SL && a.FlowLabel == b.FlowLabel
}

// Flush sends the groups on a socket and returns how many of their frames were taken. What Group was told about a group's
// first frame, resend is asked for each frame of a group that has to go by themselves.
func (o *Outbox) Flush(now clock.Time, fd int, frames []wire.Frame, resend Resender) (done int, err error) {
	for k := 0; k < o.groups; {
		n, errno := Sendmmsg(fd, o.Messages[k:o.groups])
		if errno == 0 {
			var packets, bytes int
			for ; n > 0; n-- {
				g := &o.sizes[k]
				done += g.frames
				packets += g.packets
				bytes += g.bytes
				k++
			}
			o.Counters.SentPackets.Add(uint64(packets))
			o.Counters.SentBytes.Add(uint64(bytes))
			continue
		}
		g := &o.sizes[k]
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return done, nil
		case unix.EBADF, unix.ENOTSOCK:
			return done, fmt.Errorf("send on socket %d: %w", fd, errno)
		case unix.EFAULT:
			// Gathered payload was unmapped after its ICRC was made.
		case unix.EIO:
			// A device without checksum offload refuses groups on some kernels.
			if g.packets > 1 && o.GSO {
				o.GSO = false
				o.Log.Warn("the kernel refuses to split UDP datagrams; sending them one by one", "err", errno)
			}
		case unix.EINVAL, unix.EMSGSIZE, unix.ENOPROTOOPT, unix.EOPNOTSUPP:
			// Perhaps only as a group: its segments exceed the MTU, or IPsec is in the way.
		default:
			o.Lose(now, frames[done].Path, g.packets, errno)
			done += g.frames
			k++
			continue
		}
		n, err := o.resend(now, fd, frames[done:done+g.frames], resend)
		done += n
		if n < g.frames || err != nil {
			return done, err
		}
		k++
	}
	return done, nil
}

// Resender says along which path a frame really leaves, with how many bytes of headers in front.
type Resender interface {
	Addresser
	Path(f *wire.Frame) (path *wire.Path, headers int)
}

// resend sends the packets of a group that the kernel refused, each by itself and as a copy. If it was the payload of one
// that could not be read, this finds which; if it was the group as such, they travel all the same. What is still refused
// is lost, and so is the rest of a run on the way of which the network is congested.
func (o *Outbox) resend(now clock.Time, fd int, frames []wire.Frame, r Resender) (done int, err error) {
	const k = MaxMessages // groups behind this one wait in the other messages, and in the arena
	for i := range frames {
		f := &frames[i]
		if f.Packets() > 1 {
			o.Apart.Split(f)
			n, err := o.resend(now, fd, o.Apart.Frames(), r)
			o.Apart.Consume(o.Apart.Len())
			if err != nil || n == 0 {
				return i, err
			}
			continue
		}
		path, headers := r.Path(f)
		b, v, err := o.alone(f, headers, path)
		if err != nil {
			return i, &nic.FrameFault{Err: err}
		}
		size := len(b) - headers
		r.Address(k, b[:headers], v, 1, size, size)
		_, errno := Sendmmsg(fd, o.Messages[k:])
		for errno == unix.EINTR {
			_, errno = Sendmmsg(fd, o.Messages[k:])
		}
		switch errno {
		case 0:
			o.Counters.SentPackets.Add(1)
			o.Counters.SentBytes.Add(uint64(size))
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return i, nil
		default:
			o.Lose(now, f.Path, 1, errno)
		}
	}
	return len(frames), nil
}

// Pending returns the messages that Flush would send.
func (o *Outbox) Pending() []Message { return o.Messages[:o.groups] }
