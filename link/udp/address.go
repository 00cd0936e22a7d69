package udp

import (
	"encoding/binary"

	"github.com/softnic/softnicd/link/internal/batch"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

// Path implements batch.Resender: the source port is that of the socket.
func (t *transmission) Path(f *wire.Frame) (path *wire.Path, headers int) {
	t.path = *f.Path
	t.path.SourcePort = t.socket.port
	return &t.path, 0
}

// Address implements batch.Addresser, for frames along the path that Path was asked for last.
func (t *transmission) Address(k int, _ []byte, iovecs []batch.Iovec, segments, size, _ int) {
	p := &t.path
	v4 := isIPv4(&p.Dest)
	m := &t.Messages[k]
	name := t.names[k*batch.NameSize : (k+1)*batch.NameSize]
	control := t.controls[k*controlSize : (k+1)*controlSize]
	clear(name)
	c := batch.ControlWriter{B: control}
	binary.BigEndian.PutUint16(name[2:], t.port)
	level, class, hops := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if v4 {
		binary.NativeEndian.PutUint16(name, unix.AF_INET)
		copy(name[4:], p.Dest[12:])
		m.SetName(name[:16])
		// struct in_pktinfo: interface, source, and a field for receivers.
		info := c.Begin(level, unix.IP_PKTINFO, 12)
		if isGroup(&p.Dest) {
			binary.NativeEndian.PutUint32(info, t.scope) // no route says where groups are
		}
		copy(info[4:], p.Source[12:])
	} else {
		level, class, hops = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
		var scope uint32
		if isLinkLocal(&p.Dest) || isLinkLocal(&p.Source) || isGroup(&p.Dest) {
			scope = t.scope
		}
		binary.NativeEndian.PutUint16(name, unix.AF_INET6)
		copy(name[8:], p.Dest[:])
		binary.NativeEndian.PutUint32(name[24:], scope)
		m.SetName(name)
		// struct in6_pktinfo: source, interface.
		info := c.Begin(level, unix.IPV6_PKTINFO, 20)
		copy(info, p.Source[:])
		binary.NativeEndian.PutUint32(info[16:], scope)
	}
	if p.TrafficClass != 0 {
		binary.NativeEndian.PutUint32(c.Begin(level, class, 4), uint32(p.TrafficClass))
	}
	if p.HopLimit != 0 && p.HopLimit != hopLimit {
		binary.NativeEndian.PutUint32(c.Begin(level, hops, 4), uint32(p.HopLimit))
	}
	if segments > 1 {
		binary.NativeEndian.PutUint16(c.Begin(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(size))
	}
	m.SetControl(control[:c.Len])
	m.SetIovecs(iovecs)
}
