package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's structures, with addresses as plain numbers. Payload lies in mappings that come and go: a Go pointer left
// behind in one of these would, once the runtime took that range of addresses for itself, be a bad pointer to the garbage
// collector. What they point to in Go's own heap is kept alive by the port and by the frames being sent, and Go does not
// move heap memory.

// iovec is struct iovec.
type iovec struct {
	base uintptr
	len  uint64
}

// message is struct mmsghdr on a 64-bit system.
type message struct {
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

// The layouts are the kernel's, or this does not compile.
var (
	_ [unsafe.Sizeof(unix.Iovec{})]byte                             = [unsafe.Sizeof(iovec{})]byte{}
	_ [unsafe.Sizeof(unix.Msghdr{})]byte                            = [unsafe.Offsetof(message{}.n)]byte{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Controllen)]byte               = [unsafe.Offsetof(message{}.controlLen)]byte{}
	_ [unsafe.Offsetof(unix.Msghdr{}.Iov)]byte                      = [unsafe.Offsetof(message{}.iov)]byte{}
	_ [unsafe.Sizeof(unix.Cmsghdr{})]byte                           = [cmsgHeader]byte{}
	_ [unsafe.Sizeof(unix.RawSockaddrInet6{})]byte                  = [nameSize]byte{}
	_ [unsafe.Sizeof(message{}) - unsafe.Sizeof(unix.Msghdr{})]byte = [8]byte{}
)

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func addressOfIovecs(v []iovec) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(v))) }

// The calls below return at once, so they go without telling Go's scheduler; for bursts of a few packets that is a good
// part of their cost.

func sendmmsg(fd int, m []message) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(m))),
		uintptr(len(m)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

func recvmmsg(fd int, m []message) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(m))),
		uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// ready fills in which descriptors of an epoll set are readable now, without waiting.
func ready(epoll int, events []unix.EpollEvent) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll),
		uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	return int(n), errno
}
