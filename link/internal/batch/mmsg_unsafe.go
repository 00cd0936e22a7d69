package batch

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's structures, with addresses as plain numbers. Payload lies in mappings that come and go: a Go pointer left
// behind in one of these would, once the runtime took that range of addresses for itself, be a bad pointer to the garbage
// collector. What they point to in Go's own heap is kept alive by the port and by the frames being sent, and Go does not
// move heap memory.

// Iovec is struct iovec.
type Iovec struct {
	base uintptr
	len  uint64
}

// IovecOf returns the iovec of b.
func IovecOf(b []byte) Iovec { return Iovec{addressOf(b), uint64(len(b))} }

// Message is struct mmsghdr on a 64-bit system.
type Message struct {
	name       uintptr
	nameLen    uint32
	_          uint32
	iov        uintptr
	iovLen     uint64
	control    uintptr
	controlLen uint64
	flags      int32
	_          int32
	n          uint32 // bytes sent or received
	_          uint32
}

// NameSize is the longest name: struct sockaddr_in6.
const NameSize = 28

// The layouts are the kernel's, or this does not compile.
var (
	_ [unsafe.Sizeof(unix.Iovec{})]byte                             = [unsafe.Sizeof(Iovec{})]byte{}
	_ [unsafe.Sizeof(unix.Msghdr{})]byte                            = [unsafe.Offsetof(Message{}.n)]byte{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Controllen)]byte               = [unsafe.Offsetof(Message{}.controlLen)]byte{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Iov)]byte                      = [unsafe.Offsetof(Message{}.iov)]byte{}
	_ [unsafe.Sizeof(unix.Cmsghdr{})]byte                           = [cmsgHeader]byte{}
	_ [unsafe.Sizeof(unix.RawSockaddrInet6{})]byte                  = [NameSize]byte{}
	_ [unsafe.Sizeof(Message{}) - unsafe.Sizeof(unix.Msghdr{})]byte = [8]byte{}
)

// SetName says where the message goes. The caller keeps b alive, here and below.
func (m *Message) SetName(b []byte) { m.name, m.nameLen = addressOf(b), uint32(len(b)) }

// SetControl gives the message its control messages.
func (m *Message) SetControl(b []byte) { m.control, m.controlLen = addressOf(b), uint64(len(b)) }

// SetIovecs says what the message consists of.
func (m *Message) SetIovecs(v []Iovec) {
	m.iov, m.iovLen = uintptr(unsafe.Pointer(unsafe.SliceData(v))), uint64(len(v))
}

// Len returns the bytes sent or received.
func (m *Message) Len() int { return int(m.n) }

// Truncated reports whether the received message was longer than its buffer.
func (m *Message) Truncated() bool { return m.flags&unix.MSG_TRUNC != 0 }

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// The calls below return at once, so they go without telling Go's scheduler; for bursts of a few packets that is a good
// part of their cost.

// Sendmmsg sends messages, without waiting, and returns how many.
func Sendmmsg(fd int, m []Message) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(m))),
		uintptr(len(m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

func recvmmsg(fd int, m []Message, flags int) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(m))),
		uintptr(len(m)), uintptr(unix.MSG_DONTWAIT|flags), 0, 0)
	return int(n), errno
}

// ready fills in which descriptors of an epoll set are readable now, without waiting.
func ready(epoll int, events []unix.EpollEvent) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return int(n), errno
}
