package udp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// What one system call may carry. The arena is small enough to stay in the processor's cache.
const (
	maxMessages = 64
	maxIovecs   = 2048
	arenaSize   = 256 << 10
	controlSize = 128
	nameSize    = 28 // struct sockaddr_in6
)

// transmission is the way out: groups being put together for one sendmmsg of one socket, in memory made beforehand.
type transmission struct {
	v4, v6 family
	gso    bool

	socket   *sender   // whose groups these are
	path     wire.Path // of the current group, with the source port that it really leaves by
	groups   int
	messages [maxMessages + 1]message // the last is for resend
	count    [maxMessages]int         // frames in each
	bytes    [maxMessages]int
	iovecs   [maxIovecs + 1]iovec // the last is for resend
	used     int                  // iovecs
	first    int                  // iovec of the current group
	arena    []byte
	names    []byte
	controls []byte
	single   []byte // for resend

	port  uint16 // where to, in UDP
	scope uint32 // of link-local addresses
}

func (t *transmission) init(cfg *Config) {
	t.gso = !cfg.NoOffload
	t.port, t.scope = cfg.Port, uint32(cfg.Interface)
	t.arena = make([]byte, 0, arenaSize)
	t.names = make([]byte, (maxMessages+1)*nameSize)
	t.controls = make([]byte, (maxMessages+1)*controlSize)
	t.single = make([]byte, 0, maxDatagram)
}

// open makes the sockets of an address family, unless they are there.
func (t *transmission) open(is4 bool, cfg *Config) error {
	f := t.family(is4)
	if err := f.open(is4, cfg); err != nil {
		return err
	}
	t.gso = t.gso && f.sockets[0].canSplit()
	return nil
}

func (t *transmission) family(is4 bool) *family {
	if is4 {
		return &t.v4
	}
	return &t.v6
}

// Send implements nic.Port.
func (p *Port) Send(now clock.Time, frames []wire.Frame) (sent int, err error) {
	if p.closed {
		return 0, errClosed
	}
	for sent < len(frames) {
		staged, fault := p.out.stage(frames[sent:])
		if staged == 0 && fault == nil {
			// Nothing to send it with: no address of that family, or longer than a datagram.
			p.lose(now, frames[sent].Path, 1, unix.EAFNOSUPPORT)
			sent++
			continue
		}
		done, err := p.flush(now, frames[sent:sent+staged])
		sent += done
		if err != nil || done < staged {
			return sent, err
		}
		if fault != nil {
			return sent, &nic.FrameFault{Err: fault}
		}
	}
	return sent, nil
}

var errClosed = errors.New("UDP port is closed")

// stage puts together groups from the first frames, as many as one system call takes, and returns how many frames they
// hold. A fault is that of the frame behind them.
func (t *transmission) stage(frames []wire.Frame) (staged int, fault error) {
	t.groups, t.used, t.arena = 0, 0, t.arena[:0]
	t.socket = t.socketFor(frames[0].Path)
	if t.socket == nil {
		return 0, nil
	}
	for staged < len(frames) && t.groups < maxMessages && t.socketFor(frames[staged].Path) == t.socket {
		n, err := t.group(frames[staged:])
		staged += n
		if n == 0 || err != nil {
			return staged, err
		}
	}
	return staged, nil
}

// socketFor chooses by the source port that the path would like; another choice only spreads differently.
func (t *transmission) socketFor(p *wire.Path) *sender {
	v4 := isIPv4(&p.Dest)
	f := t.family(v4)
	if len(f.sockets) == 0 || isIPv4(&p.Source) != v4 {
		return nil
	}
	return &f.sockets[int(p.SourcePort)%len(f.sockets)]
}

// flush sends the groups and returns how many of their frames were taken.
func (p *Port) flush(now clock.Time, frames []wire.Frame) (done int, err error) {
	t := &p.out
	for k := 0; k < t.groups; {
		n, errno := sendmmsg(t.socket.fd, t.messages[k:t.groups])
		if errno == 0 {
			var bytes uint64
			first := done
			for ; n > 0; n-- {
				done += t.count[k]
				bytes += uint64(t.bytes[k])
				k++
			}
			p.counters.SentPackets.Add(uint64(done - first))
			p.counters.SentBytes.Add(bytes)
			continue
		}
		count := t.count[k]
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			return done, nil
		case unix.EBADF, unix.ENOTSOCK:
			return done, fmt.Errorf("send on UDP port %d: %w", t.socket.port, errno)
		case unix.EFAULT:
			// Gathered payload was unmapped after its ICRC was made.
		case unix.EIO:
			// A device without checksum offload refuses groups on some kernels.
			if count > 1 && t.gso {
				t.gso = false
				p.cfg.Log.Warn("the kernel refuses to split UDP datagrams; sending them one by one",
					"option", "UDP_SEGMENT", "err", errno)
			}
		case unix.EINVAL, unix.EMSGSIZE, unix.ENOPROTOOPT, unix.EOPNOTSUPP:
			// Perhaps only as a group: its segments exceed the MTU, or IPsec is in the way.
		default:
			p.lose(now, frames[done].Path, count, errno)
			done += count
			k++
			continue
		}
		n, err := p.resend(now, frames[done:done+count])
		done += n
		if n < count || err != nil {
			return done, err
		}
		k++
	}
	return done, nil
}

// lose counts frames that the network refused. To the transport they are lost like any others.
func (p *Port) lose(now clock.Time, path *wire.Path, n int, errno unix.Errno) {
	p.counters.SendErrors.Add(uint64(n))
	if p.warned && now.Sub(p.lastWarn) < warnEvery {
		return
	}
	p.warned, p.lastWarn = true, now
	p.cfg.Log.Warn("the network refuses frames; they count as lost", "source", path.Source.Addr(),
		"destination", path.Dest.Addr(), "err", errno, "so_far", p.counters.SendErrors.Load())
}

// isIPv4 is GID.Is4 without the detour by net/netip.
func isIPv4(g *ib.GID) bool {
	return binary.NativeEndian.Uint64(g[:]) == 0 && g[8] == 0 && g[9] == 0 && g[10] == 0xff && g[11] == 0xff
}

// isLinkLocal reports whether g is in fe80::/10.
func isLinkLocal(g *ib.GID) bool { return g[0] == 0xfe && g[1]&0xc0 == 0x80 }
