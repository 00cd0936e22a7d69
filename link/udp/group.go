package udp

import (
	"encoding/binary"
	"time"

	"github.com/softnic/softnicd/dma"
	"github.com/softnic/softnicd/wire"
	"golang.org/x/sys/unix"
)

const (
	// maxSegments is the kernel's UDP_MAX_SEGMENTS before Linux 6.9, 128 since.
	maxSegments = 64
	// maxDatagram is what fits behind an IPv4 and a UDP header; it bounds a group too.
	maxDatagram = 65507
	// gatherFrom is the payload from which on references beat a copy beside the header.
	gatherFrom = 512
	// maxIovLen is the kernel's UIO_MAXIOV, for one message.
	maxIovLen = 1024
	udpHeader = 8
	warnEvery = time.Minute
)

// group makes one message of the first frames: those of one path and one length, the last of which may be shorter. It
// returns how many; 0 without an error when there is no room. An error is the fault of the frame behind them.
func (t *transmission) group(frames []wire.Frame) (n int, err error) {
	path := frames[0].Path
	t.path = *path
	t.path.SourcePort = t.socket.port

	size := frames[0].Len()
	if size > maxDatagram {
		return 0, nil
	}
	limit := 1
	if t.gso {
		limit = min(len(frames), maxSegments)
	}
	t.first = t.used
	bytes := 0
	for n < limit {
		f := &frames[n]
		length := f.Len()
		if f.Path != path || length > size || bytes+length > maxDatagram || !t.room(f) {
			break
		}
		id := uint16(n)
		if err = t.add(f, id); err != nil {
			break
		}
		n++
		bytes += length
		if length < size {
			break
		}
	}
	if n == 0 {
		return 0, err
	}
	t.count[t.groups], t.bytes[t.groups] = n, bytes
	t.address(t.groups, t.iovecs[t.first:t.used], n, size)
	t.groups++
	return n, err
}

// room reports whether a frame fits, whichever way it is added.
func (t *transmission) room(f *wire.Frame) bool {
	need := len(f.Payload()) + 2
	return cap(t.arena)-len(t.arena) >= f.Len() && maxIovecs-t.used >= need && maxIovLen-(t.used-t.first) >= need
}

// add puts a frame behind the last: by reference if its owner promised to leave the payload alone and it is worth it,
// else as a copy, with the ICRC made over the copy, since the owner may write what we read.
func (t *transmission) add(f *wire.Frame, id uint16) error {
	if f.Stable && f.PayloadLen() >= gatherFrom {
		if ok, err := t.gather(f, id); ok {
			return err
		}
	}
	begin := len(t.arena)
	b, err := t.copyFrame(t.arena, f, id)
	if err != nil {
		return err
	}
	t.arena = b
	t.append(b[begin:])
	return nil
}

// copyFrame appends the whole datagram to b, which has room for it.
func (t *transmission) copyFrame(b []byte, f *wire.Frame, id uint16) ([]byte, error) {
	sum := wire.StartChecksum(&t.path, udpHeader+f.Len(), id).BTH(f.Header())
	b = append(b, f.Header()...)
	body := len(b)
	b = b[:body+f.PayloadLen()]
	if err := dma.ReadPieces(b[body:], f.Payload()); err != nil {
		return nil, err
	}
	b = append(b, zeros[:f.Pad()]...)
	sum = sum.Update(b[body:])
	b = b[:len(b)+wire.ICRCSize]
	sum.Put(b[len(b)-wire.ICRCSize:])
	return b, nil
}

var zeros [4]byte

// gather refers to the payload where it lies, between a header and a trailer in the arena. It does nothing and returns
// false if some of the memory cannot be addressed.
func (t *transmission) gather(f *wire.Frame, id uint16) (ok bool, err error) {
	pieces := f.Payload()
	begin, used, last := len(t.arena), t.used, iovec{}
	if used > 0 {
		last = t.iovecs[used-1]
	}
	undo := func() {
		t.arena, t.used = t.arena[:begin], used
		if used > 0 {
			t.iovecs[used-1] = last
		}
	}
	t.arena = append(t.arena, f.Header()...)
	t.append(t.arena[begin:])
	for i := range pieces {
		b := pieces[i].Mem.Bytes(pieces[i].Off, pieces[i].Len)
		if b == nil {
			undo()
			return false, nil
		}
		t.append(b)
	}
	sum := wire.StartChecksum(&t.path, udpHeader+f.Len(), id).BTH(f.Header())
	err = dma.Guarded(func() {
		for i := range pieces {
			sum = sum.Update(pieces[i].Mem.Bytes(pieces[i].Off, pieces[i].Len))
		}
	})
	if err != nil {
		undo()
		return true, err
	}
	at := len(t.arena)
	t.arena = append(t.arena, zeros[:f.Pad()]...)
	sum = sum.Update(t.arena[at:])
	t.arena = t.arena[:len(t.arena)+wire.ICRCSize]
	sum.Put(t.arena[len(t.arena)-wire.ICRCSize:])
	t.append(t.arena[at:])
	return true, nil
}

// append adds bytes to the message, to the last iovec if they follow it in memory: a group of copied frames is one, and
// a trailer and the next header are.
func (t *transmission) append(b []byte) {
	base := addressOf(b)
	if t.used > t.first {
		if v := &t.iovecs[t.used-1]; v.base+uintptr(v.len) == base {
			v.len += uint64(len(b))
			return
		}
	}
	t.iovecs[t.used] = iovec{base, uint64(len(b))}
	t.used++
}

// address finishes message k: where it goes, how, and of how many segments of which size it consists.
func (t *transmission) address(k int, iovecs []iovec, segments, size int) {
	p := &t.path
	v4 := isIPv4(&p.Dest)
	m := &t.messages[k]
	name := t.names[k*nameSize : (k+1)*nameSize]
	control := t.controls[k*controlSize : (k+1)*controlSize]
	clear(name)
	c := cmsgWriter{b: control}
	binary.BigEndian.PutUint16(name[2:], t.port)
	level, class, hops := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	if v4 {
		binary.NativeEndian.PutUint16(name, unix.AF_INET)
		copy(name[4:], p.Dest[12:])
		m.nameLen = 16
		// struct in_pktinfo: interface, source, and a field for receivers.
		copy(c.begin(level, unix.IP_PKTINFO, 12)[4:], p.Source[12:])
	} else {
		level, class, hops = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_HOPLIMIT
		var scope uint32
		if isLinkLocal(&p.Dest) || isLinkLocal(&p.Source) {
			scope = t.scope
		}
		binary.NativeEndian.PutUint16(name, unix.AF_INET6)
		copy(name[8:], p.Dest[:])
		binary.NativeEndian.PutUint32(name[24:], scope)
		m.nameLen = nameSize
		// struct in6_pktinfo: source, interface.
		info := c.begin(level, unix.IPV6_PKTINFO, 20)
		copy(info, p.Source[:])
		binary.NativeEndian.PutUint32(info[16:], scope)
	}
	if p.TrafficClass != 0 {
		binary.NativeEndian.PutUint32(c.begin(level, class, 4), uint32(p.TrafficClass))
	}
	if p.HopLimit != 0 && p.HopLimit != hopLimit {
		binary.NativeEndian.PutUint32(c.begin(level, hops, 4), uint32(p.HopLimit))
	}
	if segments > 1 {
		binary.NativeEndian.PutUint16(c.begin(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(size))
	}
	m.name, m.control, m.controlLen = addressOf(name), addressOf(control), uint64(c.len)
	m.iov, m.iovLen = addressOfIovecs(iovecs), uint64(len(iovecs))
}
