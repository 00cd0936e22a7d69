package udp

import (
	"encoding/binary"
	"errors"

	"github.com/softnic/softnicd/clock"
	"github.com/softnic/softnicd/ib"
	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/nic"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const controlSize = 128

// transmission is the way out: groups being put together for one sendmmsg of one socket, in memory made beforehand.
type transmission struct {
	v4, v6 family
	batch.Outbox

	socket   *sender   // whose groups these are
	path     wire.Path // of the current group, with the source port that it really leaves by
	names    []byte
	controls []byte

	port  uint16 // where to, in UDP
	scope uint32 // of link-local addresses
}

func (t *transmission) init(cfg *Config) {
	t.Outbox.Init(!cfg.NoOffload)
	t.Mixed = true
	t.port, t.scope = cfg.Port, uint32(cfg.Interface)
	t.names = make([]byte, (batch.MaxMessages+1)*batch.NameSize)
	t.controls = make([]byte, (batch.MaxMessages+1)*controlSize)
}

// open makes the sockets of an address family, unless they are there.
func (t *transmission) open(is4 bool, cfg *Config) error {
	f := t.family(is4)
	if err := f.open(is4, cfg); err != nil {
		return err
	}
	t.GSO = t.GSO && f.sockets[0].canSplit()
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
		if !p.out.GSO && frames[sent].Packets() > 1 {
			// The kernel has split groups until now.
			taken, err := nic.SendApart(p, now, &frames[sent], p.out.Apart)
			if !taken {
				return sent, err
			}
			sent++
			continue
		}
		staged, fault := p.out.prepare(frames[sent:])
		if staged == 0 && fault == nil {
			// Nothing to send it with: no address of that family, or longer than a datagram.
			p.out.Lose(now, frames[sent].Path, frames[sent].Packets(), unix.EAFNOSUPPORT)
			sent++
			continue
		}
		done, err := p.out.Flush(now, p.out.socket.fd, frames[sent:sent+staged], &p.out)
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

// LongestRun is what nic.LongestRun asks: a run leaves as a group, or in one.
func (p *Port) LongestRun(_ *wire.Path, size int) int { return p.out.LongestRun(size) }

var errClosed = errors.New("UDP port is closed")

// prepare puts together groups from the first frames, as many as one system call takes, and returns how many frames they
// hold. A fault is that of the frame behind them.
func (t *transmission) prepare(frames []wire.Frame) (staged int, fault error) {
	t.Reset()
	t.socket = t.socketFor(frames[0].Path)
	if t.socket == nil {
		return 0, nil
	}
	for staged < len(frames) && !t.Full() && t.socketFor(frames[staged].Path) == t.socket {
		path, headers := t.Path(&frames[staged])
		n, err := t.Group(frames[staged:], path, headers, t)
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

// isIPv4 is GID.Is4 without the detour by net/netip.
func isIPv4(g *ib.GID) bool {
	return binary.NativeEndian.Uint64(g[:]) == 0 && g[8] == 0 && g[9] == 0 && g[10] == 0xff && g[11] == 0xff
}

// isLinkLocal reports whether g is in fe80::/10.
func isLinkLocal(g *ib.GID) bool { return g[0] == 0xfe && g[1]&0xc0 == 0x80 }
