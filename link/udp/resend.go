package udp

import (
	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// resend sends the frames of a group that the kernel refused, each by itself and as a copy. If it was the payload of one
// that could not be read, this finds which; if it was the group as such, they travel all the same. What is still refused
// is lost.
func (p *Port) resend(now clock.Time, frames []wire.Frame) (done int, err error) {
	t := &p.out
	const k = maxMessages // groups behind this one wait in the other messages, and in the arena
	for i := range frames {
		f := &frames[i]
		t.path = *f.Path
		t.path.SourcePort = t.socket.port
		b, err := t.copyFrame(t.single[:0], f, 0)
		if err != nil {
			return i, &nic.FrameFault{Err: err}
		}
		t.iovecs[maxIovecs] = iovec{addressOf(b), uint64(len(b))}
		t.address(k, t.iovecs[maxIovecs:], 1, len(b))
		_, errno := sendmmsg(t.socket.fd, t.messages[k:])
		for errno == unix.EINTR {
			_, errno = sendmmsg(t.socket.fd, t.messages[k:])
		}
		switch errno {
		case 0:
			p.counters.SentPackets.Add(1)
			p.counters.SentBytes.Add(uint64(len(b)))
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return i, nil
		default:
			p.lose(now, f.Path, 1, errno)
		}
	}
	return len(frames), nil
}
