package raw

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

// struct virtio_net_hdr, in the byte order of the host (linux/virtio_net.h):
//
//	0 flags, 1 gso_type, 2 hdr_len, 4 gso_size, 6 csum_start, 8 csum_offset
const (
	virtioHeader    = 10
	virtioNeedsCsum = 1 // the field at csum_start + csum_offset holds the sum over the pseudo-header
	virtioDataValid = 2 // somebody has looked at the checksum already
	virtioGSOUDP    = 5 // VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2
	virtioGSOECN    = 0x80
)

// transmission is the way out.
type transmission struct {
	batch.Outbox
	where  neighbours
	framer wire.Framer
	fd     int
	port   uint16
	names  []byte
	now    clock.Time
	// The group being made.
	path *wire.Path
	hop  *hop
	held []heldFrame // until it is known where they go
}

func (t *transmission) init(cfg *Config, c *nic.PortCounters) {
	t.Outbox.Init(!cfg.NoOffload)
	t.Losses = batch.Losses{Counters: c, Log: cfg.Log}
	t.port = cfg.Port
	t.names = make([]byte, (batch.MaxMessages+1)*unix.SizeofSockaddrLinklayer)
	t.where.known = make(map[flow]*neighbour)
}

// Send implements nic.Port.
func (p *Port) Send(now clock.Time, frames []wire.Frame) (sent int, err error) {
	if p.closed {
		return 0, errClosed
	}
	t := &p.out
	t.now = now
	for sent < len(frames) {
		if f := &frames[sent]; f.Packets() > 1 && (!t.GSO || t.refusal(f) != 0) {
			// The kernel splits no groups any more, or it is not known where to.
			taken, err := nic.SendApart(p, now, f, t.Apart)
			if !taken {
				return sent, err
			}
			sent++
			continue
		}
		staged, fault := t.prepare(frames[sent:])
		if staged == 0 && fault == nil {
			f := &frames[sent]
			t.release()
			// The resolver may find the way between any two looks; then the frame is not refused any more.
			switch why := t.refusal(f); {
			case why == 0:
			case why == unix.EHOSTUNREACH && t.hold(f):
				sent++
			case why == unix.EHOSTUNREACH && t.refusal(f) == 0:
			default:
				t.Lose(now, f.Path, 1, why)
				sent++
			}
			continue
		}
		done, err := t.Flush(now, t.fd, frames[sent:sent+staged], t)
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

var errClosed = errors.New("raw port is closed")

// prepare puts together groups from the first frames, as many as one system call takes, and returns how many frames they
// hold. A fault is that of the frame behind them. It stops at a frame that cannot be sent, see refusal.
func (t *transmission) prepare(frames []wire.Frame) (staged int, fault error) {
	t.Reset()
	for staged < len(frames) && !t.Full() && t.refusal(&frames[staged]) == 0 {
		path, headers := t.Path(&frames[staged])
		n, err := t.Group(frames[staged:], path, headers, t)
		staged += n
		if n == 0 || err != nil {
			return staged, err
		}
	}
	return staged, nil
}

// refusal says what keeps the packets of a frame from being sent, in the words of a system call; 0 if nothing does.
func (t *transmission) refusal(f *wire.Frame) unix.Errno {
	v4 := isIPv4(&f.Path.Dest)
	if isIPv4(&f.Path.Source) != v4 {
		return unix.EAFNOSUPPORT
	}
	h := t.where.find(t.now, f.Path)
	if h == nil {
		return unix.EHOSTUNREACH
	}
	length := f.PacketLen()
	n := length + udpHeader + ipv6Header
	if v4 {
		n = length + udpHeader + ipv4Header
	}
	if n > h.mtu || length > batch.MaxDatagram {
		return unix.EMSGSIZE
	}
	return 0
}

// Path implements batch.Resender: source ports are the path's own.
func (t *transmission) Path(f *wire.Frame) (path *wire.Path, headers int) {
	t.path, t.hop = f.Path, t.where.find(t.now, f.Path)
	if t.hop == nil {
		t.hop = &nowhere // forgotten since it was looked at
	}
	return t.path, virtioHeader + t.hop.ethernet.HeaderLen(t.path)
}

// nowhere is a hop that the kernel refuses: there is no interface 0.
var nowhere hop

// Address implements batch.Addresser, for frames along the path that Path was asked for last.
func (t *transmission) Address(k int, headers []byte, v []batch.Iovec, segments, size, bytes int) {
	frame := t.put(headers, t.path, t.hop, segments, size, bytes)

	// struct sockaddr_ll: family, protocol, interface; the rest is not asked for when the frame has its header.
	name := t.names[k*unix.SizeofSockaddrLinklayer:][:unix.SizeofSockaddrLinklayer]
	binary.NativeEndian.PutUint16(name, unix.AF_PACKET)
	copy(name[2:4], frame[offType:])
	binary.NativeEndian.PutUint32(name[4:], uint32(t.hop.ifindex))
	m := &t.Messages[k]
	m.SetName(name)
	m.SetIovecs(v)
}

// put writes what is in front of a datagram, or of a group of segments of some size, bytes in all, and returns it without
// the virtio_net_hdr. The identification of the first segment is 0, and the kernel counts from there.
func (t *transmission) put(headers []byte, p *wire.Path, h *hop, segments, size, bytes int) (frame []byte) {
	e := h.ethernet
	e.Priority = p.SL & 7
	virtio := headers[:virtioHeader]
	frame = headers[virtioHeader:]
	t.framer.Put(frame, &e, p, t.port, 0, bytes)
	clear(virtio)
	v4 := isIPv4(&p.Dest)
	if segments > 1 || !v4 {
		// Over IPv4 a checksum of 0 will do, which is what hardware sends. A group needs one, and so does IPv6.
		udp := len(frame) - udpHeader
		virtio[0] = virtioNeedsCsum
		binary.NativeEndian.PutUint16(virtio[6:], uint16(udp))
		binary.NativeEndian.PutUint16(virtio[8:], 6)
		binary.BigEndian.PutUint16(frame[udp+6:], pseudoSum(p, v4, udpHeader+bytes))
	}
	if segments > 1 {
		virtio[1] = virtioGSOUDP
		binary.NativeEndian.PutUint16(virtio[2:], uint16(len(frame)))
		binary.NativeEndian.PutUint16(virtio[4:], uint16(size))
	}
	return frame
}

// isIPv4 is GID.Is4 without the detour by net/netip.
func isIPv4(g *ib.GID) bool {
	return binary.NativeEndian.Uint64(g[:]) == 0 && g[8] == 0 && g[9] == 0 && g[10] == 0xff && g[11] == 0xff
}
